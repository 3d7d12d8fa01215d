"""`agentv show` and `agentv runs`: failures and past runs."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kits.processes import start_process, wait_until
from tests.kits.project import PRINT_PEAK_KB, Write, a_case, agentv
from tests.kits.runs import HELLO, evaluate, results

AGENT = "def answer(eval_id):\n    return 'hello ' + eval_id if eval_id != 'bad' else 'no\\nsecond line'\n"


@pytest.fixture
def project(write: Write) -> Write:
    write("targets.yaml", "targets:\n  - {name: default, provider: python, function: agent.py:answer}\n")
    write("evals/agent.py", AGENT)
    case = {"expected_outcome": "Greets.", "expected_output": "hello there", "evaluators": [HELLO]}
    write("evals/a.jsonl", [a_case(name, input="Say it.", **case) for name in ("good", "bad", "fine")])
    return write


def test_results_carry_their_context(project: Write) -> None:
    evaluate("evals", "--out", "o.jsonl")
    found = results("o.jsonl")
    assert len({result["run_id"] for result in found}) == 1
    assert {name: found[1][name] for name in ("question", "expected_outcome", "reference_answer", "file", "line")} == {
        "question": "Query",
        "expected_outcome": "Greets.",
        "reference_answer": "hello there",
        "file": "evals/a.jsonl",
        "line": 2,
    }
    evaluate("evals", "--out", "o.jsonl", "--no-inputs")
    assert not {"question", "expected_outcome", "reference_answer"} & results("o.jsonl")[0].keys()


def test_the_file_of_a_case_is_relative_to_the_repo_root(project: Write) -> None:
    subprocess.run(["git", "init", "-q"], check=True)
    os.chdir("evals")
    evaluate("a.jsonl", "--out", "o.jsonl")
    assert results("o.jsonl")[0]["file"] == "evals/a.jsonl"


def test_show_prints_the_worst_first(project: Write) -> None:
    evaluate("evals", "--out", "o.jsonl")
    ran = agentv("show", "o.jsonl", "--failed")
    assert ran.returncode == 0, ran.stderr
    shown = ran.stdout.splitlines()
    assert shown[0] == "bad: 0.000 fail (a, evals/a.jsonl:2, target default)"
    assert shown[1:7] == [
        "  question    Query",
        "  answer      no",
        "              second line",
        "  expected    Greets.",
        "  reference   hello there",
        "  contains    0.000 fail",
    ]
    assert shown[7] == "              - does not contain 'hello'"
    ids = [line.split(":")[0] for line in agentv("show", "o.jsonl").stdout.splitlines() if line[:1].strip()]
    assert ids == ["bad", "good", "fine"]
    assert agentv("show").stdout == agentv("show", "o.jsonl").stdout  # the newest run


def test_show_names_the_variables_that_are_masked(project: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GREETING_TOKEN", "second line")
    evaluate("evals", "--out", "o.jsonl")
    shown = agentv("show", "o.jsonl").stdout
    assert "\n  masked      GREETING_TOKEN\n" in shown
    assert "masked" not in agentv("show", "o.jsonl", "--eval-id", "good").stdout


def test_show_takes_ids_limits_and_json(project: Write) -> None:
    evaluate("evals", "--out", "o.yaml")
    ran = agentv("show", "o.yaml", "--eval-id", "f*", "--format", "json")
    assert [json.loads(line)["eval_id"] for line in ran.stdout.splitlines()] == ["fine"]
    assert "2 more: use --limit 3 to show all" in agentv("show", "o.yaml", "--limit", "1").stdout
    ran = agentv("show", "o.yaml", "--eval-id", "nobody")
    assert (ran.returncode, ran.stderr.splitlines()[0]) == (2, "error: o.yaml: no result with id 'nobody'")
    run_id = results_run_id()
    assert agentv("show", run_id).stdout == agentv("show", "o.yaml").stdout


def results_run_id() -> str:
    return sorted(Path(".agentv/runs").glob("*.json"))[-1].stem


def test_a_second_argument_names_the_option_for_ids(project: Write) -> None:
    shown = agentv("show", "o.jsonl", "france")

    assert shown.returncode == 2
    assert "error: got unexpected extra argument (france)\n" in shown.stderr
    assert "hint: to show a single case, use --eval-id: agentv show o.jsonl --eval-id france\n" in shown.stderr


def test_show_reports_the_problem_of_a_file(project: Write) -> None:
    ran = agentv("show")
    assert (ran.returncode, ran.stderr.splitlines()[0]) == (2, "error: no results in this folder yet")
    ran = agentv("show", "nowhere.jsonl")
    assert (ran.returncode, "error: no such results file or run: nowhere.jsonl" in ran.stderr) == (2, True)
    evaluate("evals", "--out", "o.jsonl")
    whole = Path("o.jsonl").read_text()
    project("o.jsonl", whole[:-20])
    ran = agentv("show", "o.jsonl", "--format", "json")
    assert (ran.returncode, len(ran.stdout.splitlines())) == (0, 2)
    assert "warning: o.jsonl:3: the last line is truncated" in ran.stderr
    for truncated in (
        whole[:100],
        long_results(2) + long_results(1)[:-20],
    ):  # nothing else in the file, or in its block
        project("o.jsonl", truncated)
        ran = agentv("show", "o.jsonl", "--format", "json")
        assert (ran.returncode, len(ran.stdout.splitlines())) == (0, truncated.count("\n"))
        assert f"warning: o.jsonl:{truncated.count(chr(10)) + 1}: the last line is truncated" in ran.stderr
    project("o.jsonl", "nonsense\n" + whole)
    ran = agentv("show", "o.jsonl")
    assert (ran.returncode, "error: o.jsonl:1:1: " in ran.stderr) == (2, True)


def long_results(count: int) -> str:
    line = json.dumps({"timestamp": "t", "eval_id": "x", "score": 0.5, "candidate_answer": "a" * 100_000})
    return f"{line}\n" * count


def test_results_without_verdict_dataset_and_target_are_shown(project: Write) -> None:
    project("old.jsonl", [{"eval_id": "low", "score": 0.5}, {"eval_id": "high", "score": 1}])
    assert agentv("show", "old.jsonl").stdout == "low: 0.500 fail\n\nhigh: 1.000 pass\n\n"
    assert agentv("show", "old.jsonl", "--failed").stdout == "low: 0.500 fail\n\n"
    table = agentv("export", "old.jsonl", "--to", "csv").stdout.splitlines()
    assert [row.split(",")[5] for row in table] == ["verdict", "fail", "pass"]


@pytest.mark.slow
def test_show_uses_little_memory_for_a_large_file(project: Write) -> None:
    line = {"eval_id": "x", "score": 0.5, "verdict": "fail", "candidate_answer": "a" * 2000, "timestamp": "t"}
    for name, count in (("small.jsonl", 100), ("large.jsonl", 40_000)):
        project(name, [line] * count)
    code = f"import sys\nfrom agentv.cli import run\ntry:\n    run()\nfinally:\n    {PRINT_PEAK_KB}\n"
    project("peak.py", code)
    peaks = []
    for name in ("small.jsonl", "large.jsonl"):
        ran = subprocess.run(
            [sys.executable, "peak.py", "show", name, "--limit", "1"], capture_output=True, text=True, check=True
        )
        peaks.append(int(ran.stdout.split()[-1]))
    assert peaks[1] - peaks[0] < 8_000


def test_runs_lists_the_newest_first(project: Write) -> None:
    assert agentv("runs").stdout == "no runs yet: 'agentv eval' records each run in .agentv/runs\n"
    evaluate("evals")
    evaluate("evals", "--dry-run")
    ran = agentv("runs", "--format", "json")
    newest, first = json.loads(ran.stdout)
    assert (newest["targets"][0]["provider"], first["targets"][0]["provider"]) == ("mock", "python")
    assert (first["status"], first["exit_code"], first["ledger"]["scored"]) == ("done", 0, 3)
    assert first["command"] == ["agentv", "eval", "evals"]
    assert first["eval_files"] == [{"path": "evals/a.jsonl", "cases": 3}]
    assert first["summary"]["mean"] == pytest.approx(2 / 3)
    assert "git" not in first
    lines = agentv("runs", "--limit", "1").stdout.splitlines()
    assert lines[0].split() == ["run", "started", "targets", "cases", "mean", "pass", "rate", "status"]
    assert lines[1].startswith(newest["run_id"])
    assert len(lines) == 2


def test_run_records_contain_the_commit(project: Write) -> None:
    for command in (
        ["init", "-q", "-b", "trunk"],
        ["add", "."],
        ["-c", "user.name=a", "-c", "user.email=b", "commit", "-qm", "x"],
    ):
        subprocess.run(["git", *command], check=True)
    evaluate("evals", "--quiet")
    project("evals/agent.py", AGENT + "\n")
    evaluate("evals", "--quiet")
    dirty, tidy = json.loads(agentv("runs", "--format", "json").stdout)
    assert (tidy["git"]["branch"], tidy["git"]["dirty"]) == ("trunk", False)
    assert (len(dirty["git"]["commit"]), dirty["git"]["dirty"]) == (40, True)


def test_a_killed_run_is_shown_as_killed(project: Write) -> None:
    project("evals/agent.py", "import time\ndef answer(question):\n    time.sleep(600)\n")
    run = start_process([sys.executable, "-m", "agentv", "eval", "evals"], stderr=subprocess.DEVNULL)
    wait_until(lambda: any(Path(".agentv/runs").glob("*.json")))
    assert json.loads(agentv("runs", "--format", "json").stdout)[0]["status"] == "running"
    run.kill()
    run.wait()
    assert json.loads(agentv("runs", "--format", "json").stdout)[0]["status"] == "killed"


def test_a_record_that_cannot_be_written_is_a_warning(project: Write) -> None:
    project(".agentv/runs", "a file")
    ran = evaluate("evals", "--out", "o.jsonl")
    assert "the record of this run cannot be written" in ran.stderr
    assert len(results("o.jsonl")) == 3


def test_secrets_are_masked_in_records(project: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_API_KEY", "canary-1234567")
    evaluate("evals", "--eval-id", "canary-1234567", "--eval-id", "good", expect=2)
    evaluate("evals", "--out", "canary-1234567.jsonl")
    (record,) = Path(".agentv/runs").glob("*.json")
    assert "canary-1234567" not in record.read_text()


def test_an_id_that_passed_is_shown_although_only_failures_are_listed(project: Write) -> None:
    project("o.jsonl", [{"eval_id": "fine", "score": 1, "verdict": "pass"}, {"eval_id": "bad", "score": 0}])
    ran = agentv("show", "o.jsonl", "--eval-id", "fine", "--failed")
    assert (ran.returncode, ran.stdout) == (0, "all cases passed\n")


def test_a_file_without_results_does_not_count_as_passed(project: Write) -> None:
    project("o.jsonl", "")
    ran = agentv("show", "o.jsonl", "--failed")
    assert (ran.returncode, ran.stdout) == (0, "no results\n")


def test_results_after_an_empty_line_or_a_byte_order_mark_are_found(project: Write) -> None:
    line = '{"eval_id": "a", "score": 1, "verdict": "pass", "candidate_answer": "one"}\n'
    Path("o.jsonl").write_bytes(f"\ufeff{line}\n{line.replace('one', 'zwö')}{line}".encode())
    ran = agentv("show", "o.jsonl", "--format", "json", "--limit", "5")
    assert ran.returncode == 0
    assert ran.stdout.splitlines() == [line.rstrip(), line.rstrip().replace("one", "zwö"), line.rstrip()]
