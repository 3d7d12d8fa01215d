"""Paid answers are never lost: kills, interruptions, resuming, full disks, and concurrent runs."""

import fcntl
import json
import os
import random
import resource
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.kits.processes import PATIENCE_SECONDS, start_process, wait_until
from tests.kits.project import PRINT_PEAK_KB, Write, a_case, agentv_process
from tests.kits.runs import HELLO, MOCK, SLOW, evaluate, results, start, wait_for_results


@pytest.fixture
def cases(write: Write) -> Path:
    write("targets.yaml", SLOW)
    return write("a.jsonl", [a_case(f"case-{n}", evaluators=[HELLO]) for n in range(300)])


SOME = """
import asyncio, os, random
left = int(os.environ.get("ANSWERS", "100000"))

async def answer(question):
    global left
    left -= 1
    if left < 0:
        await asyncio.Event().wait()
    await asyncio.sleep(random.uniform(0.005, 0.03))
    return "hello"
"""
"""An agent that answers as often as it is told to, and then never again: its run does not end by itself."""


@pytest.fixture
def some(write: Write, cases: Path) -> Path:
    write("agent.py", SOME)
    write("targets.yaml", "targets:\n  - {name: default, provider: python, function: 'agent.py:answer'}\n")
    return cases


@pytest.mark.parametrize("form", ["jsonl", "yaml"])
@pytest.mark.slow
def test_a_run_that_is_killed_many_times_ends_with_every_id_exactly_once(some: Path, form: str) -> None:
    out, end = Path(f"out.{form}"), {"jsonl": b"}\n", "yaml": b"\n...\n"}[form]
    dice = random.Random(7)

    def written() -> int:
        return out.read_bytes().count(end) if out.exists() else 0

    for kill in range(6):
        before, more = written(), dice.randint(1, 40)
        run = start(str(some), "--workers", "8", "--out", str(out), "--resume", "--quiet", env=answering(40))
        if kill % 3:
            wait_until(lambda: written() >= before + more)  # noqa: B023 - it is called at once
            time.sleep(dice.random() * 0.02)
        else:  # at any moment, and while it starts
            time.sleep(dice.random() * 0.6)
        run.send_signal(signal.SIGKILL)
        run.communicate()
        assert run.returncode == -signal.SIGKILL
    assert 4 <= written() < 300
    ran = evaluate(some, "--workers", "8", "--out", out, "--resume")
    if form == "jsonl":
        ids = [result["eval_id"] for result in results(out)]
    else:
        ids = [line.split()[1] for line in out.read_text().splitlines() if line.startswith("eval_id: ")]
    assert Counter(ids) == Counter(f"case-{n}" for n in range(300))
    assert "300 planned = " in ran.stdout
    assert "mean 1.000" in ran.stdout
    assert sorted(path.name for path in Path.cwd().glob("out.*")) == [out.name]


def answering(count: int) -> dict[str, str]:
    return {**os.environ, "ANSWERS": str(count)}


def test_resume_runs_exactly_the_rest_and_reports_skipped_cases(write: Write) -> None:
    write("targets.yaml", MOCK + "  - {name: bad, provider: python, function: 'agent.py:answer'}\n")
    write("agent.py", "def answer(question):\n    raise ValueError('not today')\n")
    write("calls.py", "")
    entries = [a_case(name, evaluators=[HELLO]) for name in ("done", "failed", "changed", "new")]
    entries[1]["execution"] = {"target": "bad"}
    evaluate(write("a.jsonl", entries[:3]), "--out", "o.jsonl", expect=1)
    before = {result["eval_id"]: result for result in results("o.jsonl")}

    write("agent.py", "def answer(question):\n    return 'hello again'\n")
    entries[2]["input_messages"] = [{"role": "user", "content": "Something else"}]
    ran = evaluate(write("a.jsonl", entries), "--out", "o.jsonl", "--resume")

    after = results("o.jsonl")
    assert sorted(result["eval_id"] for result in after) == ["changed", "done", "failed", "new"]
    assert next(result for result in after if result["eval_id"] == "done") == before["done"]
    assert "1 already done, 1 to re-run after an error, 1 to re-run because the case has changed" in ran.stderr
    assert "4 planned = 3 scored + 1 already done" in ran.stdout
    assert len(results("o.jsonl.bak")) == 3


def test_a_changed_file_is_a_changed_case(write: Write) -> None:
    write("targets.yaml", MOCK)
    write("data.txt", "one")
    block = {"type": "file", "value": "data.txt"}
    path = write("a.jsonl", [a_case(input_messages=[{"role": "user", "content": [block]}], evaluators=[HELLO])])
    evaluate(path, "--out", "o.jsonl")
    assert "1 already done" in evaluate(path, "--out", "o.jsonl", "--resume").stderr
    write("data.txt", "two")
    assert "1 to re-run because the case has changed" in evaluate(path, "--out", "o.jsonl", "--resume").stderr
    assert len(results("o.jsonl")) == 1


def test_two_concurrently_resumed_runs_do_not_interfere(cases: Path) -> None:
    evaluate(cases, "--limit", "200", "--workers", "50", "--out", "o.jsonl", "--quiet")
    runs = [start(str(cases), "--workers", "8", "--out", "o.jsonl", "--resume", "--quiet") for _ in range(4)]
    for run in runs:
        run.communicate(timeout=PATIENCE_SECONDS)
    assert sorted(run.returncode for run in runs)[0] == 0
    assert {run.returncode for run in runs} <= {0, 2}
    ids = [result["eval_id"] for result in results("o.jsonl")]
    assert Counter(ids) == Counter(f"case-{n}" for n in range(300))
    assert [path.name for path in Path.cwd().glob("o.*")] == ["o.jsonl"]


@pytest.mark.parametrize("flags", [[], ["--resume"]])
def test_an_eval_file_is_never_written_to(write: Write, flags: list[str]) -> None:
    write("targets.yaml", MOCK)
    path = write("a.jsonl", [a_case(evaluators=[HELLO])])
    before = path.read_bytes()
    ran = evaluate(path, "--out", "./a.jsonl", *flags, expect=2)
    assert "--out is one of the eval files" in ran.stderr
    assert path.read_bytes() == before


def test_resume_does_not_touch_files_of_other_tools(write: Write) -> None:
    write("targets.yaml", MOCK)
    path = write("a.jsonl", [a_case(evaluators=[HELLO])])
    for diary in ("dear diary\n", "dear diary", "---\ndear: diary\n", "--- dear diary", "{}\n", '{"a": 1}', "{"):
        write("diary.txt", diary)
        ran = evaluate(path, "--out", "diary.txt", "--resume", expect=0 if diary == "{" else 2)
        if diary != "{":  # which is how a result begins
            assert "1 is not a result of agentv" in ran.stderr
            assert Path("diary.txt").read_text() == diary


def test_resume_depends_on_the_content_of_a_file_not_its_name(write: Write) -> None:
    write("targets.yaml", MOCK)
    path = write("a.jsonl", [a_case(str(n), evaluators=[HELLO]) for n in range(3)])
    evaluate(path, "--out", "odd.jsonl", "--output-format", "yaml", "--limit", "2")
    ran = evaluate(path, "--out", "odd.jsonl", "--resume")
    assert "2 already done" in ran.stderr
    assert Path("odd.jsonl").read_text().count("\n...\n") == 3


def test_resuming_a_selection_keeps_other_results(write: Write) -> None:
    write("targets.yaml", MOCK + "  - {name: bad, provider: python, function: 'agent.py:answer'}\n")
    write("agent.py", "def answer(question):\n    raise ValueError('no')\n")
    path = write("a.jsonl", [a_case(str(n), execution={"target": "bad"}, evaluators=[HELLO]) for n in range(4)])
    evaluate(path, "--out", "o.jsonl", expect=1)
    ran = evaluate(path, "--out", "o.jsonl", "--resume", "--eval-id", "1", expect=1)
    assert "1 planned = 1 target error" in ran.stdout
    assert sorted(result["eval_id"] for result in results("o.jsonl")) == ["0", "1", "2", "3"]
    write("targets.yaml", MOCK + "  - {name: bad, provider: mock, response: hello}\n")
    evaluate(path, "--out", "o.jsonl", "--resume")
    ran = evaluate(path, "--out", "o.jsonl", "--resume", "--limit", "2")
    assert "2 planned = 2 already done\n" in ran.stdout
    assert len(results("o.jsonl")) == 4


def test_resume_reports_results_of_another_target(write: Write) -> None:
    write("targets.yaml", MOCK)
    path = write("a.jsonl", [a_case(str(n), evaluators=[HELLO]) for n in range(3)])
    evaluate(path, "--out", "o.jsonl")
    write("targets.yaml", MOCK.replace("from default", "from another"))
    ran = evaluate(path, "--out", "o.jsonl", "--resume", "--keep-stale")
    assert "3 already done, 3 kept although the target has changed" in ran.stderr
    write("a.jsonl", [a_case(str(n), evaluators=[HELLO, HELLO]) for n in range(3)])
    ran = evaluate(path, "--out", "o.jsonl", "--resume", "--keep-stale")
    assert "3 kept although the evaluators have changed" in ran.stderr


def test_resume_reports_results_of_a_dry_run(write: Write) -> None:
    write("targets.yaml", MOCK)
    path = write("a.jsonl", [a_case(evaluators=[HELLO])])
    evaluate(path, "--out", "o.jsonl", "--dry-run")
    ran = evaluate(path, "--out", "o.jsonl", "--resume")
    assert "0 already done, 1 to re-run because a mock answered in a dry run" in ran.stderr


def test_of_several_results_the_one_for_the_current_case_is_kept(write: Write) -> None:
    write("targets.yaml", MOCK)
    evaluate(write("a.jsonl", [a_case("x", expected_outcome="old", evaluators=[HELLO])]), "--out", "old.jsonl")
    path = write("a.jsonl", [a_case("x", expected_outcome="new", evaluators=[HELLO])])
    evaluate(path, "--out", "new.jsonl")
    old, new = Path("old.jsonl").read_text(), Path("new.jsonl").read_text()
    write("both.jsonl", old + new + new)
    ran = evaluate(path, "--out", "both.jsonl", "--resume")
    assert "1 already done, previous answers saved in both.jsonl.bak\n" in ran.stderr
    assert Path("both.jsonl").read_text() == new


def test_datasets_with_the_same_name_are_an_error(write: Write) -> None:
    write("targets.yaml", MOCK)
    for folder in ("a", "b"):
        write(f"{folder}/x.jsonl", [a_case(str(n), evaluators=[HELLO]) for n in range(3)])
    evaluate("a", "b", "--out", "o.jsonl", "--dump-prompts=prompts")
    assert len(results("o.jsonl")) == 6
    assert len(list(Path("prompts").iterdir())) == 6
    ran = evaluate("a", "b", "--out", "o.jsonl", "--resume", expect=2)
    assert "two eval files have the same dataset name and the same ids" in ran.stderr
    assert len(results("o.jsonl")) == 6


def test_resuming_keeps_the_file_mode_and_the_symlink(write: Write) -> None:
    write("targets.yaml", MOCK)
    path = write("a.jsonl", [a_case(evaluators=[HELLO])])
    evaluate(path, "--out", "real.jsonl")
    Path("real.jsonl").chmod(0o600)
    Path("link.jsonl").symlink_to("real.jsonl")
    evaluate(path, "--out", "link.jsonl", "--resume")
    assert Path("link.jsonl").is_symlink()
    assert Path("real.jsonl").stat().st_mode & 0o777 == 0o600


def test_a_truncated_last_line_is_repaired(write: Write) -> None:
    write("targets.yaml", MOCK)
    path = write("a.jsonl", [a_case(str(n), evaluators=[HELLO]) for n in range(3)])
    evaluate(path, "--out", "o.jsonl")
    whole = Path("o.jsonl").read_bytes()
    Path("o.jsonl").write_bytes(whole[:-40])
    evaluate(path, "--out", "o.jsonl", "--resume")
    assert [result["eval_id"] for result in results("o.jsonl")] == ["0", "1", "2"]


def test_resume_without_an_earlier_run_starts_a_new_one(write: Write) -> None:
    write("targets.yaml", MOCK)
    path = write("a.jsonl", [a_case(evaluators=[HELLO])])
    assert "no earlier run of these eval files and targets: starting a new run" in evaluate(path, "--resume").stderr
    ran = evaluate(path, "--resume")
    assert "1 already done" in ran.stderr
    assert len(list(Path(".agentv/results").iterdir())) == 1
    assert "o.jsonl does not exist: starting a new run" in evaluate(path, "--out", "o.jsonl", "--resume").stderr


def test_an_out_file_that_exists_is_kept(write: Write) -> None:
    write("targets.yaml", MOCK)
    path = write("a.jsonl", [a_case(evaluators=[HELLO])])
    write("o.jsonl", "precious\n")
    ran = evaluate(path, "--out", "o.jsonl")
    assert "o.jsonl already existed: moved it to o.jsonl.bak" in ran.stderr
    assert Path("o.jsonl.bak").read_text() == "precious\n"
    assert len(results("o.jsonl")) == 1


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interruption_stops_cleanly(some: Path, number: signal.Signals) -> None:
    run = start(str(some), "--workers", "5", "--out", "o.jsonl", env=answering(30))
    wait_for_results(Path("o.jsonl"), 10)
    run.send_signal(number)
    out, err = run.communicate(timeout=PATIENCE_SECONDS)
    assert run.returncode == 130
    assert "Traceback" not in err
    assert "interrupted: finished cases are saved; continue with --resume" in err
    done = len(results("o.jsonl"))
    assert 10 <= done <= 30
    assert f"300 planned = {done} scored" in out
    assert f"{300 - done} not run" in out


@pytest.mark.slow
def test_a_target_that_never_awaits_does_not_block_signals(write: Write) -> None:
    write("targets.yaml", MOCK)
    path = write("a.jsonl", [a_case(str(n), evaluators=[HELLO]) for n in range(100_000)])
    run = start(str(path), "--out", "o.jsonl", "--quiet")
    wait_for_results(Path("o.jsonl"), 10)
    run.send_signal(signal.SIGINT)
    run.communicate(timeout=PATIENCE_SECONDS)
    assert run.returncode == 130
    assert len(results("o.jsonl")) < 100_000


STUBBORN = """
import asyncio

async def answer(question):
    open("started", "w").close()
    try:
        await asyncio.sleep(600)
    finally:
        await asyncio.sleep(600)
"""


@pytest.mark.parametrize(
    "source", [STUBBORN, STUBBORN.replace("await asyncio.sleep(600)", "__import__('time').sleep(600)")]
)
def test_a_target_that_does_not_stop_does_not_block_the_exit(write: Write, source: str) -> None:
    write("agent.py", source)
    write("targets.yaml", "targets:\n  - {name: default, provider: python, function: 'agent.py:answer'}\n")
    path = write("a.jsonl", [a_case(evaluators=[HELLO])])
    run = start(str(path), "--out", "o.jsonl")
    wait_until(Path("started").exists)
    run.send_signal(signal.SIGINT)
    out, err = run.communicate(timeout=PATIENCE_SECONDS)
    assert run.returncode == 130
    assert "1 not run" in out
    assert "Traceback" not in err
    ran = agentv_process("eval", path, "--out", "o.jsonl", "--agent-timeout", "0.3")
    assert ran.returncode == 1
    assert "timed out after 0.3 s" in ran.stdout


def test_a_second_interruption_exits_immediately(write: Write) -> None:
    write("targets.yaml", "targets:\n  - {name: default, provider: mock, response: hello, delay_ms: 60000}\n")
    write("slow.py", BLOCKED)
    path = write("a.jsonl", [a_case(evaluators=[HELLO])])
    run = start_process([sys.executable, "slow.py", path], stderr=subprocess.DEVNULL)
    wait_until(Path("started").exists)
    run.send_signal(signal.SIGINT)
    wait_until(Path("asked to stop").exists)
    time.sleep(0.5)
    assert run.poll() is None
    run.send_signal(signal.SIGINT)
    assert run.wait(timeout=PATIENCE_SECONDS) == 130


BLOCKED = """
import asyncio, sys
from agentv.__main__ import main
from agentv.providers.mock import Mock

async def stubborn(self, request):
    open("started", "w").close()
    while True:
        try:
            await asyncio.sleep(600)
        except asyncio.CancelledError:
            open("asked to stop", "w").close()

Mock.invoke = stubborn
sys.argv = ["agentv", "eval", sys.argv[1], "--out", "o.jsonl"]
main()
"""


def test_an_interruption_while_starting_shows_no_traceback(write: Write) -> None:
    write("targets.yaml", "targets:\n  - {name: default, provider: mock, response: hello, delay_ms: 600000}\n")
    path = write("a.jsonl", [a_case(str(n), evaluators=[HELLO]) for n in range(20_000)])
    ends = []
    for wait in (0.04, 0.08, 0.12, 0.16, 0.2, 0.25, 0.3, None):
        run = start(str(path), "--out", f"{wait}.jsonl", "--quiet")
        if wait is None:
            wait_until(Path(f"{wait}.jsonl").exists)
        else:
            time.sleep(wait)
        run.send_signal(signal.SIGTERM)
        _, err = run.communicate(timeout=PATIENCE_SECONDS)
        assert "Traceback" not in err
        ends.append(run.returncode)
    assert {*ends} <= {130, -signal.SIGTERM}  # the latter before Python itself has started
    assert ends[-1] == 130


def test_two_simultaneous_runs_have_separate_files(cases: Path) -> None:
    runs = [start(str(cases), "--workers", "4", "--limit", "60") for _ in range(4)]
    for run in runs:
        run.communicate(timeout=PATIENCE_SECONDS)
    assert [run.returncode for run in runs] == [0, 0, 0, 0]
    files = list(Path(".agentv/results").iterdir())
    assert len(files) == 4
    assert {len(results(file)) for file in files} == {60}


def test_a_file_that_another_run_writes_to_is_rejected(write: Write) -> None:
    write("targets.yaml", MOCK)
    path = write("a.jsonl", [a_case(evaluators=[HELLO])])
    write("o.jsonl", "")
    with Path("o.jsonl").open("a") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        for flags in ([], ["--resume"]):
            ran = evaluate(path, "--out", "o.jsonl", *flags, expect=2)
            assert "another run is writing to this file" in ran.stderr
    assert Path("o.jsonl").exists()


def test_a_full_disk_stops_the_run_cleanly(write: Write) -> None:
    write("targets.yaml", MOCK)
    path = write("a.jsonl", [a_case(str(n), evaluators=[HELLO]) for n in range(100)])

    def small_files_only() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (5000, 5000))

    run = start(str(path), "--out", "o.jsonl", preexec_fn=small_files_only)
    out, err = run.communicate(timeout=PATIENCE_SECONDS)
    assert run.returncode == 1
    assert "o.jsonl: results cannot be written: File too large" in err
    assert "continue with --resume" in err
    found = results("o.jsonl")
    assert 0 < len(found) < 100
    assert f"100 planned = {len(found)} scored" in out
    evaluate(path, "--out", "o.jsonl", "--resume")
    assert len(results("o.jsonl")) == 100


def test_unwritable_output_paths(write: Write) -> None:
    write("targets.yaml", MOCK)
    path = write("a.jsonl", [a_case(evaluators=[HELLO])])
    write("folder/x", "")
    ran = evaluate(path, "--out", "folder", expect=2)
    assert "folder: --out is a folder" in ran.stderr
    ran = evaluate(path, "--out", "folder/x/y.jsonl", expect=2)
    assert "results cannot be written there: " in ran.stderr
    write(".agentv/results", "not a folder")
    ran = evaluate(path, expect=2)
    assert ".agentv/results: results cannot be written there: File exists" in ran.stderr
    assert "hint: pass --out, or set AGENTV_STATE_DIR to a folder that you can write to" in ran.stderr
    ran = evaluate(path, "--dump-prompts=folder/x", expect=2)
    assert "the folder cannot be created: File exists" in ran.stderr


@pytest.mark.slow
def test_a_run_continues_if_its_output_is_closed(write: Write) -> None:
    write("targets.yaml", "targets:\n  - {name: default, provider: mock, response: hello, delay_ms: 20}\n")
    path = write("a.jsonl", [a_case(str(n), evaluators=[HELLO]) for n in range(10)])
    for ends in ("2>&1 | head -c 1", "2>&-", ">&-", "2>/dev/full", ">/dev/full", "2>&- >&-"):
        line = f"{sys.executable} -m agentv eval {path} --out o.jsonl {ends}; exit ${{PIPESTATUS[0]}}"
        run = subprocess.run(["bash", "-c", line], capture_output=True, check=False)
        assert (ends, run.returncode) == (ends, 0)
        assert len(results("o.jsonl")) == 10


def test_results_can_be_written_to_a_pipe(write: Write) -> None:
    write("targets.yaml", MOCK)
    path = write("a.jsonl", [a_case(evaluators=[HELLO])])
    ran = agentv_process("eval", path, "--out", "/dev/stdout", "--quiet")
    assert ran.returncode == 0
    assert json.loads(ran.stdout.splitlines()[0])["eval_id"] == "test-1"


def test_a_symlink_is_kept_when_its_file_becomes_a_backup(write: Write) -> None:
    write("targets.yaml", MOCK)
    path = write("a.jsonl", [a_case(evaluators=[HELLO])])
    write("shared/old.jsonl", "{}\n")
    Path("o.jsonl").symlink_to("shared/old.jsonl")
    evaluate(path, "--out", "o.jsonl")
    assert Path("o.jsonl").is_symlink()
    assert len(results("shared/old.jsonl")) == 1
    assert Path("shared/old.jsonl.bak").read_text() == "{}\n"


def test_a_closed_pipe_ends_the_command_quietly(write: Write) -> None:
    write("targets.yaml", MOCK)
    path = write("a.jsonl", [a_case(evaluators=[HELLO])])
    line = f"{sys.executable} -m agentv eval {path} --out o.jsonl 2>err.txt | head -c 1; exit ${{PIPESTATUS[0]}}"
    run = subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=False)
    assert run.returncode == 0
    assert "Traceback" not in Path("err.txt").read_text()
    read, closed = os.pipe()
    os.close(read)
    ran = subprocess.run(
        [sys.executable, "-m", "agentv", "eval", path, "--quiet"], stdout=closed, stderr=subprocess.PIPE, check=False
    )
    os.close(closed)
    assert (ran.returncode, ran.stderr) == (0, b"")


PEAK = f"""
import sys
from agentv.__main__ import main
sys.argv = ["agentv", "eval", sys.argv[1], "--workers", "4", "--quiet", "--out", "out.jsonl"]
try:
    main()
finally:
    {PRINT_PEAK_KB}
"""


def peak_kb(path: Path) -> int:
    run = subprocess.run([sys.executable, "-c", PEAK, path], capture_output=True, text=True, check=True)
    return int(run.stdout.split()[-1])


@pytest.mark.slow
def test_memory_stays_flat_regardless_of_the_size_of_answers(write: Write) -> None:
    write("agent.py", "def answer(question):\n    return 'hello' * 20_000\n")
    write("targets.yaml", "targets:\n  - {name: default, provider: python, function: 'agent.py:answer'}\n")
    few, many = (
        peak_kb(write(f"{count}.jsonl", [a_case(f"case-{n}", evaluators=[HELLO]) for n in range(count)]))
        for count in (100, 1500)
    )
    assert many - few < 10_000


@pytest.mark.slow
def test_memory_stays_flat_if_each_case_has_its_own_evaluators(write: Write) -> None:
    write("targets.yaml", MOCK)
    few, many = (
        peak_kb(
            write(
                f"{count}.jsonl",
                [a_case(f"case-{n}", evaluators=[{"type": "contains", "value": str(n)}]) for n in range(count)],
            )
        )
        for count in (1000, 25_000)
    )
    assert many - few < 10_000
