"""No signal is lost: a waiting process wakes up for it."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.kits.processes import PATIENCE_SECONDS, start_process

TAKEN_BY_ANOTHER_THREAD = """
import asyncio, signal, threading, time
from pathlib import Path
from agentv.processes import interrupts

interrupts.install()


def send_signal(waits):
    waits.wait()
    main = Path(f"/proc/self/task/{threading.main_thread().native_id}/stat")
    while main.read_text().rpartition(")")[2].split()[0] != "S":
        time.sleep(0.001)
    signal.pthread_kill(threading.get_ident(), signal.NUMBER)  # the main thread is not interrupted by it


waits = threading.Event()
threading.Thread(target=send_signal, args=(waits,), daemon=True).start()
"""
RUN = """
async def run():
    with interrupts.stop_on_signal(asyncio.current_task()) as stop:
        waits.set()
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            print("stopped", stop.is_requested)
            asyncio.current_task().uncancel()


asyncio.run(run())
"""
VIEWER = """
with interrupts.end_on_ctrl_c() as ending:
    waits.set()
    ending.wait()
    print("ended")
"""


def _run(script: str) -> str:
    process = start_process([sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    out, err = process.communicate(timeout=PATIENCE_SECONDS)
    assert (process.returncode, err) == (0, "")
    return str(out)


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="tells by /proc when the main thread waits")
@pytest.mark.parametrize("number", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_a_signal_that_does_not_interrupt_the_event_loop_stops_the_run(number: str) -> None:
    assert _run(TAKEN_BY_ANOTHER_THREAD.replace("NUMBER", number) + RUN) == "stopped True\n"


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="tells by /proc when the main thread waits")
def test_a_signal_that_does_not_interrupt_the_wait_for_ctrl_c_ends_it() -> None:
    assert _run(TAKEN_BY_ANOTHER_THREAD.replace("NUMBER", "SIGINT") + VIEWER) == "ended\n"


def test_the_wake_up_descriptor_of_a_program_that_handles_signals_itself_is_left_alone() -> None:
    script = """
import asyncio, signal, socket
from agentv.processes import interrupts

ours, _theirs = socket.socketpair()
ours.setblocking(False)
signal.set_wakeup_fd(ours.fileno())


async def run():
    with interrupts.stop_on_signal(asyncio.current_task()):
        print(signal.set_wakeup_fd(-1) == ours.fileno())


asyncio.run(run())
"""
    assert _run(script) == "True\n"


@pytest.mark.parametrize("number", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_no_thread_receives_a_signal_once_the_exit_code_is_decided(number: str) -> None:
    script = """
import signal, threading
from agentv.processes import interrupts

interrupts.install()
is_over = threading.Event()
other = threading.Thread(target=is_over.wait)
other.start()
interrupts.disable()
signal.pthread_kill(other.ident, signal.NUMBER)
is_over.set()
other.join()
print("exited normally")
"""
    assert _run(script.replace("NUMBER", number)) == "exited normally\n"
