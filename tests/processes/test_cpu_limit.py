"""Limits on CPU time: code that uses too much is stopped, code that only waits is not."""

import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from agentv.processes.cpu_limit import call_with_cpu_limit
from tests.kits.processes import start_process, wait_until


def burn(seconds: float) -> str:
    """Take this much CPU time of this thread."""
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass
    return "done"


def test_a_call_that_exceeds_its_cpu_time_is_stopped() -> None:
    start = time.thread_time()
    with pytest.raises(TimeoutError):
        call_with_cpu_limit(0.2, lambda: burn(60))
    assert 0.2 <= time.thread_time() - start < 1


def test_a_call_that_only_waits_is_not_stopped() -> None:
    def sleep_and_work() -> str:
        time.sleep(0.5)
        return burn(0.05)

    assert call_with_cpu_limit(0.2, sleep_and_work) == "done"


def test_the_cpu_time_of_other_threads_does_not_count() -> None:
    thread = threading.Thread(target=burn, args=[0.6])

    def wait() -> str:
        thread.start()
        thread.join()
        return "done"

    assert call_with_cpu_limit(0.2, wait) == "done"


def test_a_call_in_a_suspended_process_is_not_stopped() -> None:
    code = (
        "import sys, time\nfrom agentv.processes.cpu_limit import call_with_cpu_limit\n"
        "def work():\n    print('ready', flush=True)\n    sys.stdin.readline()\n    return 'done'\n"
        "print(call_with_cpu_limit(0.3, work), flush=True)\n"
    )
    with start_process(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGSTOP)
        wait_until(lambda: os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOHANG) is not None)
        time.sleep(0.5)
        process.send_signal(signal.SIGCONT)
        process.stdin.write("go on\n")
        process.stdin.close()
        assert process.stdout.read() == "done\n"


def test_exceptions_of_the_call_are_raised() -> None:
    with pytest.raises(ZeroDivisionError):
        call_with_cpu_limit(1, lambda: 1 // 0)
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
