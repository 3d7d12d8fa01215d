"""The scenarios of the eval command, each under its own title."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.kits.cases import ONE_LINE, SAME_IN_YAML
from tests.kits.project import Write, a_case, agentv, agentv_process, flat
from tests.kits.runs import HELLO, MOCK, evaluate, results, run_one

AGENT = """
import asyncio, json, os, time
from pathlib import Path

def echo(question):
    return question

async def slow(question):
    await asyncio.sleep(60)

def tools(question):
    call = {"tool": "search", "input": {"q": question}, "output": [1]}
    return {"text": "done", "output_messages": [{"role": "assistant", "content": "done", "tool_calls": [call, call]}]}

def key(question):
    return os.environ.get("ONLY_IN_DOTENV", "not set")

def crash(question):
    raise ValueError("no such luck")

at_work = most = 0

async def counted(question):
    global at_work, most
    at_work += 1
    most = max(most, at_work)
    while most < int(os.environ.get("MEET", "1")):
        await asyncio.sleep(0.01)
    await asyncio.sleep(0.02)
    at_work -= 1
    return str(most)
"""


def function(name: str, target: str = "default") -> str:
    return f"  - {{name: {target}, provider: python, function: 'agent.py:{name}'}}\n"


@pytest.fixture
def project(write: Write) -> Write:
    """A project with a mock as its default target, and an agent in Python."""
    write("targets.yaml", MOCK + "".join(function(n, n) for n in ("echo", "slow", "tools", "key", "crash", "counted")))
    write("agent.py", AGENT)
    return write


# Requirement: Target and Environment Resolution


def test_targets_file_discovery_and_selection(write: Write) -> None:
    write(".git/HEAD", "")
    path = write("evals/deep/a.jsonl", [a_case(evaluators=[HELLO])])

    def answer(*args: str) -> str:
        return str(run_one(path, *args)["candidate_answer"])

    def targets(place: str) -> None:
        mocks = [f"  - {{name: {name}, provider: mock, response: {place} {name}}}\n" for name in ("default", "other")]
        write(place, "targets:\n" + "".join(mocks))

    targets(".agentv/targets.yml")
    assert answer() == ".agentv/targets.yml default"
    targets(".agentv/targets.yaml")
    assert answer() == ".agentv/targets.yaml default"
    targets("targets.yml")
    assert answer() == "targets.yml default"
    targets("evals/.agentv/targets.yaml")
    assert answer() == "evals/.agentv/targets.yaml default"
    targets("evals/deep/targets.yaml")
    assert answer() == "evals/deep/targets.yaml default"
    targets("elsewhere/nested/targets.yaml")
    assert answer("--targets", "elsewhere/nested/targets.yaml") == "elsewhere/nested/targets.yaml default"
    assert answer("--targets", "elsewhere/nested") == "elsewhere/nested/targets.yaml default"
    assert answer("--target", "other") == "evals/deep/targets.yaml other"
    write("evals/deep/a.yaml", "execution: {target: other}\n")
    assert answer() == "evals/deep/targets.yaml other"
    assert answer("--target", "default") == "evals/deep/targets.yaml other"


def test_the_current_folder_is_searched_last(write: Write, tmp_path: Path) -> None:
    write("elsewhere/.git/HEAD", "")
    write("elsewhere/a.jsonl", [a_case(evaluators=[HELLO])])
    write("here/targets.yaml", MOCK)
    ran = agentv("eval", tmp_path / "elsewhere/a.jsonl", cwd=tmp_path / "here")
    assert ran.returncode == 0


def test_targets_validation_with_warnings(project: Write) -> None:
    path = project("a.jsonl", [a_case(evaluators=[HELLO])])
    project("targets.yaml", MOCK + "  - {name: mine, provider: openai, model: m, api_key: '${{ NOT_MINE }}'}\n")
    ran = evaluate(path)
    assert "warning: " in ran.stderr
    assert "target 'mine': api_key: the environment variable NOT_MINE is not set" in ran.stderr

    project("targets.yaml", MOCK + "  - {name: bad, provider: mock, respnse: x}\n")
    ran = evaluate(path, "--out", "none.jsonl", expect=2)
    assert "targets.yaml:3:33: target 'bad': respnse: unknown field" in ran.stderr
    assert "did you mean 'response'?" in ran.stderr
    assert not Path("none.jsonl").exists()


def test_lazy_dotenv_loading(project: Write) -> None:
    project(".git/HEAD", "")
    path = project("evals/a.jsonl", [a_case(evaluators=[HELLO])])
    project("evals/agent.py", AGENT)
    assert run_one(path, "--target", "key")["candidate_answer"] == "not set"
    project(".env", "ONLY_IN_DOTENV=root\n")
    assert run_one(path, "--target", "key")["candidate_answer"] == "root"
    project("evals/.env", "ONLY_IN_DOTENV=near\n")
    assert run_one(path, "--target", "key")["candidate_answer"] == "near"
    ran = agentv_process(
        "eval", path, "--target", "key", "--out", "o.jsonl", "--verbose", env={"ONLY_IN_DOTENV": "set", "PATH": ""}
    )
    assert results("o.jsonl")[0]["candidate_answer"] == "set"
    assert f"note: variables are read from {path.parent / '.env'}" in ran.stderr


# Requirement: Eval Input Resolution


def test_path_expansion_and_validation(project: Write) -> None:
    for name in ("b", "a", "deep/c"):
        project(f"evals/{name}.jsonl", [a_case(name, evaluators=[HELLO])])
    project("evals/b.yaml", "dataset: renamed\n")
    for paths in (["evals"], ["evals/**/*.jsonl", "evals/a.jsonl"], ["evals/*.*", "evals/deep/c.jsonl"]):
        evaluate(*paths, "--out", "out.jsonl")
        assert [result["eval_id"] for result in results("out.jsonl")] == ["a", "b", "deep/c"]
    ran = evaluate("evals/a.jsonl", "nope/*.yaml", expect=2)
    assert "error: no file matches 'nope/*.yaml'" in ran.stderr


def test_dry_run_mode(project: Write) -> None:
    judged = a_case("judged")
    path = project("a.jsonl", [judged, a_case("checked", evaluators=[{"type": "contains", "value": "Mock"}])])
    evaluate(
        path,
        "--dry-run",
        "--target",
        "crash",
        "--dry-run-delay-min",
        "5",
        "--dry-run-delay-max",
        "20",
        "--out",
        "o.jsonl",
    )
    one, two = results("o.jsonl")
    assert one["candidate_answer"] == two["candidate_answer"] == "Mock dry-run response"
    assert one["misses"] == ["dry run: no judge was called"]
    assert (one["score"], two["score"]) == (0.0, 1.0)
    assert one["execution_metrics"]["duration_ms"] >= 5
    evaluate(path, "--dry-run", "--dry-run-delay", "30", "--out", "o.jsonl")
    assert results("o.jsonl")[0]["execution_metrics"]["duration_ms"] >= 29


# Requirement: Concurrency and Worker Scheduling


@pytest.mark.parametrize("count", ["0", "51", "-1"])
def test_worker_limits_and_validation(project: Write, count: str, monkeypatch: pytest.MonkeyPatch) -> None:
    path = project("a.jsonl", [a_case(str(n), evaluators=[HELLO]) for n in range(6)])
    ran = evaluate(path, "--workers", count, expect=2)
    assert f"{count} is not in the range from 1 to 50" in ran.stderr
    for workers, most in ((["--workers", "abc"], 1), ([], 1), (["--workers", "3"], 3)):
        monkeypatch.setenv("MEET", str(most))  # so many wait for each other, however slow they are to start
        evaluate(path, "--target", "counted", *workers, "--out", "o.jsonl")
        assert max(int(result["candidate_answer"]) for result in results("o.jsonl")) == most


def test_file_level_worker_balancing(project: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    from agentv.run.jobs import divide

    assert divide(1, 3) == [1]
    assert divide(2, 5) == [1, 1]
    assert divide(6, 3) == [2, 2, 2]
    assert divide(8, 3) == [3, 3, 2]
    assert divide(4, 1) == [4]
    for name in ("a", "b", "c"):
        project(f"evals/{name}.jsonl", [a_case(f"{name}{n}", evaluators=[HELLO]) for n in range(6)])
    project("evals/agent.py", AGENT)
    monkeypatch.setenv("MEET", "4")
    evaluate("evals", "--target", "counted", "--workers", "4", "--out", "o.jsonl")
    found = results("o.jsonl")
    assert len({result["eval_id"] for result in found}) == 18
    assert max(int(result["candidate_answer"]) for result in found) == 4


def test_vs_code_worker_cap(project: Write) -> None:
    path = project("a.jsonl", [a_case(str(n), evaluators=[HELLO]) for n in range(3)])
    project("targets.yaml", "targets:\n  - {name: default, provider: vscode}\n")
    ran = evaluate(path, "--dry-run", "--workers", "5")
    assert "warning: target 'default' does not support concurrent cases: using 1 worker" in ran.stderr


# Requirement: Output Persistence and Formats


def test_default_output_location_and_format(project: Write) -> None:
    path = project("a.jsonl", [a_case(evaluators=[HELLO])])
    evaluate(path)
    evaluate(path)
    evaluate(path, "--output-format", "yaml")
    ran = evaluate(path, "--output-format", "xml")
    assert "warning: unknown output format 'xml': using jsonl" in ran.stderr
    found = sorted(file.name for file in Path(".agentv/results").iterdir())
    assert len(found) == 4
    assert sum(name.endswith(".jsonl") for name in found) == 3
    assert all(name.startswith("eval_2") for name in found)
    evaluate(path, "--out", "some/new/folder/r.jsonl")
    assert len(results("some/new/folder/r.jsonl")) == 1


def test_jsonl_output(project: Write) -> None:
    answer = 'two\nlines, a " and a \u2028'
    cases = [a_case(str(n), input=answer, input_messages=None, evaluators=[HELLO]) for n in range(50)]
    evaluate(project("a.jsonl", cases), "--target", "echo", "--workers", "10", "--out", "o.jsonl")
    raw = Path("o.jsonl").read_bytes()
    assert raw.endswith(b"}\n")
    assert raw.count(b"\n") == 50
    assert {result["candidate_answer"] for result in results("o.jsonl")} == {answer}


@pytest.mark.parametrize(
    "answer", ["two\nlines\n", "  indented\n\ttab ", "NO", "0o17", "1e3", "a: b", "---\n...\n", "\x07é😀\r\n", ""]
)
def test_yaml_output(project: Write, answer: str) -> None:
    project("answers.py", f"def answer(question):\n    return {answer!r}\n")
    project("targets.yaml", "targets:\n  - {name: default, provider: python, function: 'answers.py:answer'}\n")
    path = project("a.jsonl", [a_case("1", evaluators=[HELLO]), a_case("2", evaluators=[HELLO])])
    evaluate(path, "--out", "o.yaml")
    text = Path("o.yaml").read_bytes().decode()
    assert text.startswith("---\n")
    assert text.count("\n...\n") == 2
    found = list(yaml.safe_load_all(text))
    assert [result["candidate_answer"] for result in found] == [answer, answer]
    assert [result["eval_id"] for result in found] == ["1", "2"]
    if answer == "two\nlines\n":
        assert "candidate_answer: |\n  two\n  lines\n" in text


# Requirement: Prompt Dumping


def test_dump_prompts_enabled(project: Write) -> None:
    project("rules.instructions.md", "Be brief.")
    blocks = [{"type": "file", "value": "rules.instructions.md"}, {"type": "text", "value": "Say hello"}]
    path = project("a.jsonl", [a_case("x", input_messages=[{"role": "user", "content": blocks}], evaluators=[HELLO])])
    evaluate(path, "--target", "echo", "--dump-prompts", "--out", "o.jsonl")
    dumped = json.loads(Path(".agentv/prompts/x.json").read_text())
    assert dumped == {
        "eval_id": "x",
        "question": "[[ ## Guidelines ## ]]\n\nBe brief.\n\n[[ ## Request ## ]]\n\n<Attached: rules.instructions.md>\nSay hello",
        "guidelines": "Be brief.",
        "guideline_paths": [str(path.parent / "rules.instructions.md")],
    }
    assert results("o.jsonl")[0]["candidate_answer"] == dumped["question"]
    for args in (["--dump-prompts", "a.jsonl"], ["a.jsonl", "--dump-prompts", "--quiet"]):
        evaluate(*args)
    evaluate("--dump-prompts", "my prompts", "a.jsonl")
    assert Path("my prompts/x.json").exists()
    evaluate("a.jsonl", "--dump-prompts=other")
    assert Path("other/x.json").exists()


def test_dump_prompts_disabled(project: Write) -> None:
    evaluate(project("a.jsonl", [a_case(evaluators=[HELLO])]))
    assert not Path(".agentv/prompts").exists()


# Requirement: Summary Reporting


def test_statistics_and_distribution(project: Write) -> None:
    def scored(id_: str, good: int) -> dict[str, Any]:
        checks = [{"type": "contains", "value": "x" if n < good else "y", "name": str(n)} for n in range(5)]
        return a_case(id_, input="x", input_messages=None, evaluators=checks)

    path = project("a.jsonl", [scored(f"case-{n}", n) for n in (5, 0, 1, 2, 3, 4)])
    ran = evaluate(path, "--target", "echo", "--out", "o.jsonl")
    assert (
        re.sub("duration .*", "duration …", ran.stdout)
        == """\
SUMMARY
  6 planned = 6 scored
  mean 0.500 (95% interval 0.107 to 0.893)
  median 0.500, min 0.000, max 1.000
  standard deviation 0.374
  pass 2/6 (95% interval 0.097 to 0.700)
  duration …

EVALUATORS
  name  n  mean   pass
  0     6  0.833  5/6
  1     6  0.667  4/6
  2     6  0.500  3/6
  3     6  0.333  2/6
  4     6  0.167  1/6

DISTRIBUTION
  [0,0.2)   ████████████████████ 1
  [0.2,0.4) ████████████████████ 1
  [0.4,0.6) ████████████████████ 1
  [0.6,0.8) ████████████████████ 1
  [0.8,1.0] ████████████████████████████████████████ 2

FAILURES (4)
  0.000  case-0
         - 0: does not contain 'y'
         - 1: does not contain 'y'
         answer: x
  0.200  case-1
         - 1: does not contain 'y'
         - 2: does not contain 'y'
         answer: x
  0.400  case-2
         - 2: does not contain 'y'
         - 3: does not contain 'y'
         answer: x
  0.600  case-3
         - 3: does not contain 'y'
         - 4: does not contain 'y'
         answer: x
  show all: agentv show o.jsonl --failed

TOP AND BOTTOM (all 6 cases)
  1.000  case-5
  0.800  case-4
  0.600  case-3
  0.400  case-2
  0.200  case-1
  0.000  case-0

Results: o.jsonl
"""
    )
    single = evaluate(project("one.jsonl", [scored("one", 5)]), "--target", "echo").stdout
    assert "standard deviation" not in single
    assert "mean 1.000\n" in single


def test_error_surfacing(project: Write) -> None:
    entries = [a_case("good", evaluators=[HELLO]), a_case("bad", evaluators=[HELLO], execution={"target": "crash"})]
    ran = evaluate(project("a.jsonl", entries), "--out", "o.jsonl", expect=1)
    assert ran.stdout.startswith("ERRORS (1)\n  bad: agent.py:19 in crash: ValueError: no such luck\n\nSUMMARY\n")
    assert "2 planned = 1 scored + 1 target error" in ran.stdout
    assert "1 result without a score counts as 0 (the mean could be up to 1.000)" in flat(ran.stdout)
    bad = next(result for result in results("o.jsonl") if result["eval_id"] == "bad")
    error = "agent.py:19 in crash: ValueError: no such luck"
    assert (bad["error"], bad["score"], bad["verdict"]) == (error, 0.0, "fail")


# Requirement: Result output SHALL include trace summary by default

SUMMARY = {"eventCount": 2, "toolNames": ["search"], "toolCallsByName": {"search": 2}, "errorCount": 0}


def test_jsonl_includes_trace_summary_by_default(project: Write) -> None:
    result = run_one(project("a.jsonl", [a_case(evaluators=[HELLO])]), "--target", "tools")
    assert "trace" not in result
    assert {name: result["trace_summary"][name] for name in SUMMARY} == SUMMARY


def test_trace_summary_includes_tool_identity(project: Write) -> None:
    result = run_one(project("a.jsonl", [a_case(evaluators=[HELLO])]), "--target", "tools")
    assert result["trace_summary"]["toolNames"] == ["search"]
    assert result["trace_summary"]["toolCallsByName"] == {"search": 2}


def test_no_trace_available(project: Write) -> None:
    assert "trace_summary" not in run_one(project("a.jsonl", [a_case(evaluators=[HELLO])]))


# Requirement: Trace artifacts MAY be dumped to files


def test_dump_traces_enabled(project: Write) -> None:
    entries = [
        a_case("branch-deactivation-001", evaluators=[HELLO]),
        a_case("plain", execution={"target": "default"}, evaluators=[HELLO]),
    ]
    entries[0]["execution"] = {"target": "tools"}
    evaluate(project("a.jsonl", entries), "--dump-traces")
    dumped = json.loads(Path(".agentv/traces/branch-deactivation-001_attempt-1.json").read_text())
    assert (dumped["eval_id"], dumped["attempt"], dumped["target"]) == ("branch-deactivation-001", 1, "tools")
    assert [event["name"] for event in dumped["trace"]] == ["search", "search"]
    assert dumped["trace_summary"]["eventCount"] == 2
    plain = json.loads(Path(".agentv/traces/plain_attempt-1.json").read_text())
    assert (plain["trace"], plain["trace_summary"]) == (None, None)


def test_dump_traces_disabled_by_default(project: Write) -> None:
    evaluate(project("a.jsonl", [a_case(evaluators=[HELLO])]), "--target", "tools")
    assert not Path(".agentv/traces").exists()


# Requirement: Full trace MAY be included inline via CLI flag


def test_include_full_trace_in_results(project: Write) -> None:
    result = run_one(project("a.jsonl", [a_case(evaluators=[HELLO])]), "--target", "tools", "--include-trace")
    assert [event["type"] for event in result["trace"]] == ["tool_call", "tool_call"]
    assert result["trace"][0]["input"] == {"q": "Query"}
    assert result["trace_summary"]["eventCount"] == 2


def test_default_excludes_full_trace(project: Write) -> None:
    result = run_one(project("a.jsonl", [a_case(evaluators=[HELLO])]), "--target", "tools")
    assert "trace" not in result
    assert "trace_summary" in result


# From the JSONL dataset's scenarios


def test_cli_works_with_both_formats(project: Write) -> None:
    project("evals/test.jsonl", ONE_LINE)
    project("evals/other.yaml", SAME_IN_YAML + "evaluator: equals\n")
    project("evals/test.yaml", "evaluators: [{type: contains, value: hello}]\n")
    project("evals/other.yaml", SAME_IN_YAML + "evaluators: [{type: contains, value: hello}]\n")
    found = []
    for path in ("evals/test.jsonl", "evals/other.yaml"):
        ran = agentv("run", path, "--out", "o.jsonl")
        assert ran.returncode == 0, ran.stderr
        (result,) = results("o.jsonl")
        own = ("timestamp", "run_id", "dataset", "file", "line", "execution_metrics")
        found.append({name: value for name, value in result.items() if name not in own})
    assert found[0] == found[1]
