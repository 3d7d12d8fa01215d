"""Child processes that misbehave, observed in the real process table."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from agentv.processes import guardian
from agentv.processes.child import ProcessResult, end_orphans, run_process
from agentv.processes.streams import Capture, StreamOutput
from tests.kits.naps import sleeping
from tests.kits.processes import PATIENCE_SECONDS, living, start_process, wait_until
from tests.kits.project import PRINT_PEAK_KB, Write, a_case
from tests.kits.runs import ANY, evaluate, one_case, results, start, target


def run_shell(script: str, **options: Any) -> ProcessResult:
    async def run() -> ProcessResult:
        try:
            return await run_process([b"/bin/sh", b"-c", script.encode()], os.environb, **options)
        finally:
            await end_orphans()

    return asyncio.run(run())


def cancelled(script: str, nap: str) -> None:
    """Start a script, cancel it once it has started to sleep."""

    async def run() -> None:
        task = asyncio.create_task(run_process([b"/bin/sh", b"-c", script.encode()], os.environb))
        while not sleeping(nap):
            await asyncio.sleep(0.02)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(run())


def test_a_hanging_child_is_killed_with_its_descendants(write: Write, nap: str) -> None:
    result = one_case(write, f"{nap} & {nap}", timeout_seconds=0.3)
    assert (result["error"], result["failure"]) == ("timed out after 0.3 s", "timeout")
    assert living(nap) == []


def test_a_timeout_includes_the_output_of_the_command(write: Write, nap: str, reached: str) -> None:
    result = one_case(write, f"echo still at it >&2; {reached}; {nap}", timeout_seconds=2)
    assert result["error"] == "timed out after 2 s: still at it"


def test_the_time_limit_of_the_command_line_takes_precedence(write: Write, nap: str) -> None:
    result = one_case(write, nap, "--agent-timeout", "0.2", timeout_seconds=60)
    assert result["error"] == "timed out after 0.2 s"
    result = one_case(write, "sleep 0.4; echo hello", "--agent-timeout", "30", timeout_seconds=0.2, expect=0)
    assert result["candidate_answer"] == "hello\n"


def test_a_child_that_ignores_term_is_killed(nap: str) -> None:
    cancelled(f"trap '' TERM; {nap} & {nap}; {nap}", nap)
    assert living(nap) == []


def test_a_child_receives_sigterm_before_sigkill(write: Write, nap: str, reached: str) -> None:
    one_case(write, f"trap 'echo bye > asked; exit' TERM; {nap} & {reached}; wait", timeout_seconds=2)
    assert Path("asked").read_text() == "bye\n"
    assert living(nap) == []


def test_leftover_processes_in_the_group_are_killed_without_waiting(nap: str) -> None:
    """It holds the pipes, too."""
    finished = run_shell(f"{nap} & {nap} & echo done; echo oh >&2")
    assert (finished.code, finished.stdout.tail, finished.stderr.tail) == (0, b"done\n", b"oh\n")
    assert living(nap) == []


def test_processes_that_left_the_group_are_found_by_their_environment(nap: str) -> None:
    if not Path("/proc/self/environ").exists():
        pytest.skip("this system does not show the environment of processes")
    assert run_shell(f"setsid {nap} & setsid setsid {nap} < /dev/null > /dev/null 2>&1 &").code == 0
    assert living(nap) == []
    cancelled(f"trap '' TERM; setsid {nap} & {nap}; {nap}", nap)
    assert living(nap) == []


def test_a_process_that_is_just_starting_a_program_is_found_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While it does, its environment is empty."""
    tmp_path.joinpath("7").mkdir()
    tmp_path.joinpath("7/stat").write_text("7 (sh) R 1 7 7 0")
    environment = tmp_path / "7/environ"
    environment.touch()
    monkeypatch.setattr(guardian, "_PROC", str(tmp_path))
    monkeypatch.setattr(time, "sleep", lambda _: environment.write_bytes(b"HOME=/\0AGENTV_PROCESS=/x-1/\0"))
    assert guardian.list_processes() == [guardian.Process(7, 7, b"/x-1/")]


@pytest.mark.parametrize(("group", "looks"), [(7, 5), (0, 0)], ids=["without an environment", "of the kernel"])
def test_a_process_without_an_environment_is_not_checked_forever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, group: int, looks: int
) -> None:
    tmp_path.joinpath("7").mkdir()
    tmp_path.joinpath("7/stat").write_text(f"7 (sh) S 1 {group} 7 0")
    tmp_path.joinpath("7/environ").touch()
    pauses: list[float] = []
    monkeypatch.setattr(guardian, "_PROC", str(tmp_path))
    monkeypatch.setattr(time, "sleep", pauses.append)
    assert guardian.list_processes() == [guardian.Process(7, group, b"")]
    assert len(pauses) == looks


def test_processes_of_a_running_child_are_not_touched(nap: str) -> None:
    async def run() -> bytes:
        daemon = f"setsid {nap} & sleep 1.5; kill -0 $! && echo alive"
        async with asyncio.TaskGroup() as group:
            first = group.create_task(run_process([b"/bin/sh", b"-c", daemon.encode()], os.environb))
            for _ in range(3):
                await asyncio.sleep(0.4)
                await run_process([b"/bin/sh", b"-c", b":"], os.environb)
                await end_orphans()
        return first.result().stdout.tail

    assert asyncio.run(run()) == b"alive\n"
    asyncio.run(end_orphans())
    assert living(nap) == []


def test_a_child_that_closes_its_output_early_is_waited_for() -> None:
    finished = run_shell("echo first; exec >&- 2>&-; sleep 0.3; exit 4")
    assert (finished.code, finished.stdout.tail) == (4, b"first\n")


@pytest.mark.slow
def test_a_gigabyte_of_output_does_not_fill_memory(write: Write) -> None:
    code = (
        "import asyncio, os\nfrom agentv.processes.child import run_process\n"
        "script = b'head -c 1000000000 /dev/zero >&2; echo the end >&2; head -c 300000000 /dev/zero; exit 5'\n"
        "finished = asyncio.run(run_process([b'/bin/sh', b'-c', script], os.environb))\n"
        "assert finished.code == 5 and finished.stderr.tail.endswith(b'the end\\n'), finished\n"
        "assert not finished.stderr.is_complete and len(finished.stderr.tail) == 16 * 1024\n"
    )
    run = subprocess.run([sys.executable, "-c", code + PRINT_PEAK_KB], capture_output=True, text=True, check=True)
    assert int(run.stdout) < 60_000


def test_an_answer_that_is_too_long_is_an_error(write: Write) -> None:
    command = "head -c 20000000 /dev/zero"
    assert one_case(write, command)["error"] == "the command answered with more than 16 MiB"
    error = one_case(write, f"{command} > {{OUTPUT_FILE}}")["error"]
    assert error == "the command wrote more than 16 MiB to {OUTPUT_FILE}"


def test_a_truncated_json_object_is_a_plain_text_answer(write: Write) -> None:
    assert one_case(write, """printf '{"text": "Par'""", expect=0)["candidate_answer"] == '{"text": "Par'


@pytest.mark.parametrize(
    ("command", "error"),
    [
        ("kill -SEGV $$", "the command was killed by SIGSEGV, without any output"),
        ("echo help >&2; sh -c 'kill -9 $$'", "the command failed with exit code 137 (SIGKILL): "),
        ("nosuchcommand {PROMPT}", "the command failed with exit code 127 (command not found): "),
        ("./plain", "the command failed with exit code 126 (command not executable): "),
        ("echo out; exit 3", "the command failed with exit code 3: out"),
        ("echo out; echo err >&2; exit 3", "the command failed with exit code 3: err"),
        (
            "echo said > /dev/null # {OUTPUT_FILE}\n: {OUTPUT_FILE}",
            "the command succeeded but wrote no {OUTPUT_FILE}, without",
        ),
        ("echo here it is; : {OUTPUT_FILE}", "the command succeeded but wrote no {OUTPUT_FILE}: here it is"),
        ("mkdir {OUTPUT_FILE}", "the command created {OUTPUT_FILE}, but it is not a regular file"),
        ("mkfifo {OUTPUT_FILE}", "the command created {OUTPUT_FILE}, but it is not a regular file"),
        ('rm -rf "$PWD"; cd ..; exit 6', "the command failed with exit code 6, without any output"),
    ],
)
def test_the_cause_of_a_failed_command_is_reported(write: Write, command: str, error: str) -> None:
    write("evals/plain", "no program")
    write("targets.yaml", target(command))
    write("evals/cases.jsonl", [a_case("a", evaluators=[ANY])])
    evaluate("evals/cases.jsonl", "--out", "out.jsonl", "--max-retries", "2", expect=1)
    (result,) = results("out.jsonl")
    assert result["error"].startswith(error)
    assert (result["failure"], result["attempt"]) == ("target", 1)


def test_an_output_file_written_after_the_exit_is_ignored(write: Write, nap: str) -> None:
    write("late.sh", "while ! test -e ended; do sleep 0.05; done; echo late > $2; echo late > late")
    result = one_case(write, f"sh late.sh '{nap}' {{OUTPUT_FILE}} & :")
    Path("ended").touch()
    assert result["error"].startswith("the command succeeded but wrote no {OUTPUT_FILE}")
    assert living(nap) == []
    assert not Path("late").exists()


def test_children_have_no_terminal_input(write: Write) -> None:
    command = "cat; (exec 3< /dev/tty) 2> /dev/null || echo no terminal"
    assert one_case(write, command, expect=0)["candidate_answer"] == "no terminal\n"


def start_fifty(write: Write, nap: str) -> "subprocess.Popen[str]":
    """A run with fifty children, each with a child outside of its group; half of them ignore TERM."""
    command = f"case {{EVAL_ID}} in *[02468]) trap '' TERM;; esac; setsid {nap} & {nap} & {nap}; {nap}"
    write("targets.yaml", target(command))
    write("cases.jsonl", [a_case(str(n), evaluators=[ANY]) for n in range(60)])
    run = start("cases.jsonl", "--workers", "50", "--out", "out.jsonl", start_new_session=True)
    wait_until(lambda: len(living(nap)) >= 150)
    return run


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.slow
def test_an_interruption_kills_all_of_fifty_children(write: Write, nap: str, number: int) -> None:
    run = start_fifty(write, nap)
    run.send_signal(number)
    _, err = run.communicate(timeout=PATIENCE_SECONDS)
    assert (run.returncode, living(nap)) == (130, [])
    assert "Traceback" not in err


def test_a_second_interruption_kills_them_at_once(write: Write, nap: str) -> None:
    run = start_fifty(write, nap)
    os.killpg(run.pid, signal.SIGINT)
    time.sleep(0.1)
    os.killpg(run.pid, signal.SIGINT)
    run.communicate(timeout=PATIENCE_SECONDS)
    assert (run.returncode, living(nap)) == (130, [])


def test_killing_agentv_kills_its_children(write: Write, nap: str) -> None:
    run = start_fifty(write, nap)
    os.killpg(run.pid, signal.SIGKILL)
    run.communicate(timeout=PATIENCE_SECONDS)
    wait_until(lambda: living(f"guardian.py {run.pid} ") == [])
    assert living(nap) == []


def guarded_groups(pid: int) -> bytes:
    """The table of groups that a run has written, which is all that is known of its children after its death."""
    for path in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            if "memfd:groups" in os.readlink(path):
                return path.read_bytes()
    return b""


def test_a_child_without_its_environment_ends_with_agentv_too(write: Write, nap: str) -> None:
    """It is known by its group then."""
    write("targets.yaml", target(f"exec env -i /bin/{nap}"))
    write("cases.jsonl", [a_case("a", evaluators=[ANY])])
    run = start("cases.jsonl")
    wait_until(lambda: sleeping(nap) == 1)
    wait_until(lambda: any(guarded_groups(run.pid)))
    run.kill()
    run.wait()
    wait_until(lambda: living(nap) == [])
    assert run.returncode == -signal.SIGKILL


@pytest.mark.slow
def test_a_nested_run_leaves_no_processes(write: Write, nap: str) -> None:
    write("inner/targets.yaml", target(f"setsid {nap} & {nap}"))
    write("inner/cases.jsonl", [a_case("a", evaluators=[ANY])])
    command = f"trap '' TERM; {sys.executable} -m agentv eval inner/cases.jsonl; {nap}"
    write("targets.yaml", target(command, timeout_seconds=3))
    write("cases.jsonl", [a_case("a", evaluators=[ANY])])
    evaluate("cases.jsonl", "--out", "out.jsonl", expect=1)
    wait_until(lambda: living(nap) == [])


def test_exit_codes_are_known_when_the_parent_ignores_its_children(write: Write) -> None:
    write("targets.yaml", target("exit 3"))
    write("cases.jsonl", [a_case("a", evaluators=[ANY])])
    ignore = (
        "import os, signal, sys; signal.signal(signal.SIGCHLD, signal.SIG_IGN); os.execv(sys.argv[1], sys.argv[1:])"
    )
    command = [sys.executable, "-m", "agentv", "eval", "cases.jsonl", "--out", "out.jsonl"]
    subprocess.run([sys.executable, "-c", ignore, *command], capture_output=True, check=False)
    assert results("out.jsonl")[0]["error"].startswith("the command failed with exit code 3")


def test_it_works_without_pidfds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "pidfd_open", raising=False)
    assert run_shell("echo hello; exit 7") == ProcessResult(
        7, StreamOutput(tail=b"hello\n", is_complete=False), StreamOutput()
    )


def test_waiting_takes_no_threads(nap: str) -> None:
    async def run() -> int:
        tasks = [asyncio.create_task(run_process([b"/bin/sh", b"-c", nap.encode()], os.environb)) for _ in range(10)]
        while len(living(nap)) < 10:
            await asyncio.sleep(0.02)
        threads = threading.active_count()
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        return threads

    before = threading.active_count()
    assert asyncio.run(run()) <= before  # a thread of another test may end meanwhile
    assert living(nap) == []


def test_no_descriptors_are_left_open() -> None:
    run_shell(":")
    before = sorted(os.listdir("/dev/fd"))
    for script in ("echo hello", "sleep 0.05; echo hello", "exec >&-", "exit 9"):
        run_shell(script, stdout=Capture(10))
    assert len(os.listdir("/dev/fd")) <= len(before)  # a server of another test may close some meanwhile


def test_the_kept_output_is_bounded() -> None:
    finished = run_shell("printf 0123456789; printf abc >&2", stdout=Capture(4))
    assert finished == ProcessResult(0, StreamOutput(b"0123", b"0123456789", False), StreamOutput(b"", b"abc", False))


def test_the_limits_of_one_argument(write: Write) -> None:
    write("targets.yaml", target("printf %s {PROMPT} | cksum"))
    write(
        "cases.jsonl",
        [
            a_case("long", input_messages=[{"role": "user", "content": "x" * 200_000}], evaluators=[ANY]),
            a_case("nul", input_messages=[{"role": "user", "content": "a\0b"}], evaluators=[ANY]),
            a_case("fits", input_messages=[{"role": "user", "content": "ü" * 60_000}], evaluators=[ANY]),
        ],
    )
    evaluate("cases.jsonl", "--out", "out.jsonl", expect=1)
    long, nul, fits = results("out.jsonl")
    assert long["error"].startswith("the prompt has 200000 bytes, more than the ")
    assert long["error"].endswith(": use {PROMPT_FILE} in command_template")
    hint = "a NUL character, which a command-line argument cannot contain: use {PROMPT_FILE} in command_template"
    assert nul["error"] == f"the prompt has {hint}"
    assert fits["candidate_answer"].endswith(" 120000\n")
    write("targets.yaml", target("wc -c < {PROMPT_FILE}; cp {PROMPT_FILE} {EVAL_ID}"))
    evaluate("cases.jsonl", "--out", "out.jsonl")
    assert [int(result["candidate_answer"]) for result in results("out.jsonl")] == [200_000, 3, 120_000]
    assert Path("nul").read_bytes() == b"a\0b"


@pytest.mark.parametrize(
    "script",
    [
        "echo start $MY_API_KEY$(head -c 1960 /dev/zero | tr '\\0' x) >&2",
        "for i in $(seq 300); do echo $MY_API_KEY >&2; done",
        "printf %s $MY_API_KEY >&2; head -c 16340 /dev/zero | tr '\\0' '\\n' >&2",
        "head -c 16777180 /dev/zero | tr '\\0' z; printf %s $MY_API_KEY",
    ],
)
def test_secrets_are_masked_before_output_is_truncated(
    write: Write, monkeypatch: pytest.MonkeyPatch, script: str
) -> None:
    monkeypatch.setenv("MY_API_KEY", "s3cret-" * 10)
    error = one_case(write, f"{script}; exit 1")["error"]
    assert error.startswith("the command failed with exit code 1")
    assert not any("s3cret-"[at : at + 5] in error for at in range(3))


def test_the_end_of_a_long_output_is_shown(write: Write) -> None:
    error = one_case(write, "yes filler | head -c 20000000; echo the real error; exit 3")["error"]
    assert error.endswith("the real error")
    assert len(error) < 2100


def test_a_run_that_ignores_hangups_continues(write: Write) -> None:
    write("targets.yaml", target("sleep 1; echo hello"))
    write("cases.jsonl", [a_case("a", evaluators=[ANY])])
    line = f"trap '' HUP; exec {sys.executable} -m agentv eval cases.jsonl --out out.jsonl"
    run = start_process(["/bin/sh", "-c", line], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wait_until(lambda: Path("out.jsonl").exists())
    run.send_signal(signal.SIGHUP)
    assert run.wait(PATIENCE_SECONDS) == 0
