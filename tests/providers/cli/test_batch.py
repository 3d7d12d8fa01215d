"""Batches: one process answers all the cases of a file that use the target."""

import asyncio
import json
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from agentv.calls.caller import TIMEOUT_SECONDS, Caller, CallPolicy
from agentv.project.validate import check_file
from tests.kits.batches import COUNTED, PYTHON, project, runs
from tests.kits.naps import sleeping
from tests.kits.processes import PATIENCE_SECONDS, living, wait_until
from tests.kits.project import PRINT_PEAK_KB, Write, a_case
from tests.kits.runs import ANY, ECHO, Batch, evaluate, results, start, target


def answers(path: str = "out.jsonl") -> dict[str, str]:
    return {result["eval_id"]: result["candidate_answer"] for result in results(path)}


@pytest.mark.parametrize(
    ("lines", "error"),
    [
        ((7, {"id": "a"}), "line 1: a record without an 'id': 7"),
        (({"id": "a", "text": "A"}, {"text": "B"}), 'line 2: a record without an \'id\': {"text": "B"}'),
        (({"id": 1, "text": "A"},), 'line 1: \'id\' is not a string: {"id": 1, "text": "A"}'),
        (({"id": "a"}, "", {"id": "b"}, {"id": "a"}), "line 4: duplicate id 'a', first on line 1"),
        (('{"id": "a", "text": NaN}',), 'line 1: Invalid JSON: NaN is not a JSON value: {"id": "a", "text": NaN}'),
        (('{"id": "a"} x',), 'line 1: Invalid JSON: Extra data: {"id": "a"} x'),
        (("[" * 5000,), "line 1: "),
    ],
)
def test_errors_that_fail_a_batch_have_their_line(batch: Batch, lines: tuple[Any, ...], error: str) -> None:
    text = [line if isinstance(line, dict | str) else json.dumps(line) for line in lines]
    assert batch.fails(*text).startswith(f"the output of the batch, {error}")


def test_the_raw_output_of_a_failed_batch_is_kept_and_named(batch: Batch) -> None:
    error = batch.fails({"id": "a", "text": "paid for"})
    path = Path(error.rpartition(": ")[2])
    assert path.parent.parent == Path(".agentv/batches").absolute()
    assert path.read_text() == '{"id": "a", "text": "paid for"}\n'


def test_nothing_is_kept_of_a_successful_batch(batch: Batch) -> None:
    batch.run({"id": "a", "text": "A"}, {"id": "b", "text": "B"})
    assert not Path(".agentv/batches").exists()


def test_a_failed_batch_without_output_keeps_nothing(write: Write) -> None:
    project(write, command="exit 3 # {OUTPUT_FILE}")
    evaluate("cases.jsonl", "--out", "out.jsonl", expect=1)
    assert {r["error"] for r in results("out.jsonl")} == {"the command failed with exit code 3, without any output"}
    assert not Path(".agentv/batches").exists()


def test_files_are_kept_after_a_successful_batch_on_request(write: Write) -> None:
    project(write, keep_temp_files=True)
    evaluate("cases.jsonl", "--out", "out.jsonl")
    (folder,) = Path(".agentv/batches").iterdir()
    assert {"requests.jsonl", "output.jsonl"} <= {path.name for path in folder.iterdir()}


def test_a_case_whose_record_cannot_be_used_fails_alone(batch: Batch) -> None:
    batch.expected = 1
    found = batch.run({"id": "a", "note": "paid for"}, {"id": "b", "text": "B"})
    assert found["a"]["error"].startswith(
        "the answer has neither 'text' nor 'output_messages'; its raw output is kept: "
    )
    assert "paid for" in Path(found["a"]["error"].rpartition(": ")[2]).read_text()
    assert found["b"]["candidate_answer"] == "B"


def test_invalid_figures_do_not_lose_the_answer(batch: Batch) -> None:
    usage = {"input": "5", "output": 2.0, "cached": "many"}
    odd = {"cost_usd": True, "duration_ms": "12", "token_usage": usage, "e": 1}
    found = batch.run({"id": "a", "text": "A", **odd}, ids=("a",))
    assert found["a"]["candidate_answer"] == "A"
    assert found["a"]["execution_metrics"] == {"token_usage": {"input": 5, "output": 2}, "duration_ms": 12.0}


def test_unknown_messages_do_not_lose_the_answer(batch: Batch) -> None:
    calls = [{"tool": "search", "id": 7}, {"names": "no tool"}, {"tool": "read"}]
    messages = [
        {"role": "developer"},
        7,
        {"role": "assistant", "content": [{"type": "text", "text": "x"}], "toolCalls": calls},
    ]
    found = batch.run({"id": "a", "text": "A", "output_messages": messages}, ids=("a",), args=("--include-trace",))
    assert found["a"]["trace"] == [
        {"type": "tool_call", "id": "7", "name": "search"},
        {"type": "tool_call", "name": "read"},
    ]
    assert found["a"]["trace_complete"] is False


def test_tool_calls_replace_an_empty_trace(batch: Batch) -> None:
    messages = [{"role": "assistant", "tool_calls": [{"tool": "x"}]}]
    found = batch.run(
        {"id": "a", "text": "A", "trace": [], "output_messages": messages}, {"id": "b", "text": "B", "trace": [{}]}
    )
    assert found["a"]["trace_summary"]["eventCount"] == 1
    assert found["b"]["trace_summary"]["eventCount"] == 0


@pytest.mark.parametrize(
    ("command", "error"),
    [
        ("ln -s missing.jsonl {OUTPUT_FILE}", "the output of the batch: no such file"),
        ("ln -s output.jsonl {OUTPUT_FILE}; exit 2", "the command failed with exit code 2, without any output"),
        ('rm -rf "$(dirname {OUTPUT_FILE})"; exit 3', "the command failed with exit code 3, without any output"),
        ("mkdir {OUTPUT_FILE}", "the output of the batch: this is a folder, not a file"),
        ("mkfifo {OUTPUT_FILE}", "the output of the batch: not a regular file"),
        (": {OUTPUT_FILE}", "the command succeeded but wrote no {OUTPUT_FILE}, without any output"),
        (
            "cat {BATCH_FILE} > /dev/null; exit 4 # {OUTPUT_FILE}",
            "the command failed with exit code 4, without any output",
        ),
        ("echo boom; exit 4", "the command failed with exit code 4: boom"),
    ],
)
def test_invalid_outputs(write: Write, command: str, error: str) -> None:
    project(write, command=command)
    evaluate("cases.jsonl", "--out", "out.jsonl", expect=1)
    errors = [result["error"] for result in results("out.jsonl")]
    assert len(errors) == 5
    assert len(set(errors)) == 1
    assert errors[0].startswith(error)
    assert "requests.jsonl" not in errors[0]


LOSE_FILE = {"type": "command", "command_template": "rm gone.txt"}
"""A health check runs after the plan and before the first case: the file is lost between them."""


def test_an_empty_batch_is_not_run(write: Write) -> None:
    blocks = [{"type": "file", "value": "gone.txt"}]
    project(write, healthcheck=LOSE_FILE)
    write("gone.txt", "")
    write("cases.jsonl", [a_case("lost", input_messages=[{"role": "user", "content": blocks}], evaluators=[ANY])])
    evaluate("cases.jsonl", "--out", "out.jsonl", expect=1)
    assert not Path("count").exists()


def test_the_first_of_two_batches_is_scored_while_the_second_runs(write: Write) -> None:
    project(write)
    slow = {"name": "slow", "provider": "cli", "provider_batching": True}
    slow["command_template"] = f"while ! grep -q 'eval_id...c4' out.jsonl; do sleep 0.05; done; {COUNTED}"
    alone = {"name": "alone", "provider": "cli", "command_template": "echo {PROMPT}"}
    targets = json.loads(Path("targets.yaml").read_text())["targets"]
    write("targets.yaml", json.dumps({"targets": [slow, *targets, alone]}))
    first = [
        a_case("s", execution={"target": "slow"}, evaluators=[ANY]),
        a_case("o", execution={"target": "alone"}, evaluators=[ANY]),
    ]
    lines = "".join(json.dumps(case) + "\n" for case in first)
    write("cases.jsonl", lines + Path("cases.jsonl").read_text())
    evaluate("cases.jsonl", "--out", "out.jsonl", "--agent-timeout", "100")
    assert [result["eval_id"] for result in results("out.jsonl")] == ["o", "c0", "c1", "c2", "c3", "c4", "s"]


def test_secrets_are_masked_in_what_we_write(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_API_KEY", "c1234-secret")
    project(write, 3, command="printf '%070d' 0 > {OUTPUT_FILE}; echo $MY_API_KEY >> {OUTPUT_FILE}")
    evaluate("cases.jsonl", "--out", "out.jsonl", expect=1)
    assert "***" in results("out.jsonl")[0]["error"]
    assert "c1234" not in Path("out.jsonl").read_text()


@pytest.mark.parametrize(
    "text",
    [
        '\ufeff{"id": "a", "text": "A"}\r\n\r\n  \n{"id":"b","text":"B"}',
        '{"id":"b","text":"B"}\n{"id": "a", "text": "A"}',
    ],
)
def test_line_ends_blank_lines_and_marks_do_not_matter(batch: Batch, text: str) -> None:
    found = batch.run(text)
    assert {id_: result["candidate_answer"] for id_, result in found.items()} == {"a": "A", "b": "B"}


def test_a_batch_may_answer_on_standard_output(write: Write) -> None:
    project(write, command=f"echo noise >&2; {PYTHON} all.py {{BATCH_FILE}} /dev/stdout")
    evaluate("cases.jsonl", "--out", "out.jsonl")
    assert answers() == {f"c{n}": f"Q{n}" for n in range(5)}


def test_the_requests_of_a_batch(write: Write) -> None:
    write("a.txt", "A")
    write("x.instructions.md", "Be brief")
    blocks = [
        {"type": "text", "value": "Hi"},
        *({"type": "file", "value": name} for name in ("a.txt", "x.instructions.md")),
    ]
    write("targets.yaml", target("cp {BATCH_FILE} asked; exit 1", provider_batching=True))
    write("cases.jsonl", [a_case("é/1", input_messages=[{"role": "user", "content": blocks}], evaluators=[ANY])])
    evaluate("cases.jsonl", expect=1)
    text = 'Hi\n<file: path="a.txt">\n<Attached: x.instructions.md>'
    assert results("asked") == [
        {
            "id": "é/1",
            "question": text,
            "guidelines": "Be brief",
            "input_files": [str(Path("a.txt").absolute())],
            "chat_prompt": [
                {"role": "system", "content": "[[ ## Guidelines ## ]]\n\nBe brief"},
                {"role": "user", "content": text},
            ],
        }
    ]


def test_a_case_whose_file_is_missing_does_not_fail_the_batch(write: Write) -> None:
    project(write, 2, healthcheck=LOSE_FILE)
    write("gone.txt", "")
    with Path("cases.jsonl").open("a") as file:
        blocks = [{"type": "file", "value": "gone.txt"}]
        file.write(
            json.dumps(a_case("lost", input_messages=[{"role": "user", "content": blocks}], evaluators=[ANY])) + "\n"
        )
    evaluate("cases.jsonl", "--out", "out.jsonl", expect=1)
    errors = [result.get("error", "") for result in results("out.jsonl")]
    assert errors[:2] == ["", ""]
    assert errors[2].startswith("cases.jsonl:3: no such file: gone.txt")
    assert runs() == 1


def test_one_process_for_each_file_and_target(write: Write) -> None:
    project(write)
    write("more.jsonl", Path("cases.jsonl").read_text().replace('"id": "c', '"id": "d'))
    other = {"name": "other", "provider": "mock", "response": "mock"}
    targets = json.loads(Path("targets.yaml").read_text())["targets"]
    write("targets.yaml", json.dumps({"targets": [*targets, other]}))
    with Path("cases.jsonl").open("a") as file:
        file.write(json.dumps(a_case("alone", execution={"target": "other"}, evaluators=[ANY])) + "\n")
    evaluate("cases.jsonl", "more.jsonl", "--workers", "4", "--out", "out.jsonl")
    assert runs() == 2
    assert len(answers()) == 11
    assert answers()["alone"] == "mock"


def test_a_resumed_batch_contains_only_missing_cases(write: Write) -> None:
    project(write)
    evaluate("cases.jsonl", "--out", "out.jsonl")
    lines = Path("out.jsonl").read_text().splitlines(keepends=True)
    Path("out.jsonl").write_text("".join(lines[:2]))
    write("targets.yaml", target(COUNTED + "; cp {BATCH_FILE} asked", provider_batching=True))
    evaluate("cases.jsonl", "--out", "out.jsonl", "--resume", "--keep-stale")
    assert [request["id"] for request in results("asked")] == ["c2", "c3", "c4"]
    assert sorted(answers()) == [f"c{n}" for n in range(5)]
    evaluate("cases.jsonl", "--out", "out.jsonl", "--resume", "--keep-stale")
    assert runs() == 2


def test_a_batch_that_times_out_is_retried_and_then_fails(write: Write, reached: str) -> None:
    late = f"{{ {reached}; sleep 60; }}"
    project(
        write,
        command=f"echo run >> count; [ {{ATTEMPT}} = 2 ] || {late}; {PYTHON} all.py {{BATCH_FILE}} {{OUTPUT_FILE}}",
        timeout_seconds=5,
    )
    ran = evaluate("cases.jsonl", "--out", "out.jsonl", "--max-retries", "1")
    assert "target default: attempt 1 failed, retrying: timed out after 5 s" in ran.stderr
    assert {result["attempt"] for result in results("out.jsonl")} == {2}
    Path("reached").unlink()
    project(write, command=f"echo '{{\"half' > {{OUTPUT_FILE}}; {late}", timeout_seconds=2)
    evaluate("cases.jsonl", "--out", "out.jsonl", expect=1)
    (error,) = {result["error"] for result in results("out.jsonl")}
    assert error.startswith("timed out after 2 s; its raw output is kept: /")
    assert {result["failure"] for result in results("out.jsonl")} == {"timeout"}


def test_by_default_a_batch_has_the_time_of_all_its_cases() -> None:
    """So that hours of work are not cut off after ten minutes."""
    slots, of_its_own = asyncio.Semaphore(1), CallPolicy(seconds=7)
    assert Caller(slots).batch_seconds(CallPolicy(), 1000) == 1000 * TIMEOUT_SECONDS
    assert Caller(slots).batch_seconds(of_its_own, 1000) == 7
    assert Caller(slots, seconds=5).batch_seconds(of_its_own, 1000) == 5


def test_an_interrupted_batch_keeps_its_output(write: Write, nap: str) -> None:
    project(write, command=f'echo \'{{"id": "c1"}}\' > {{OUTPUT_FILE}}; exec {nap}')
    run = start("cases.jsonl", "--out", "out.jsonl")
    wait_until(lambda: sleeping(nap) > 0)
    run.send_signal(signal.SIGINT)
    _, err = run.communicate(timeout=PATIENCE_SECONDS)
    assert (run.returncode, living(nap)) == (130, [])
    path = err.partition("a batch was interrupted; its raw output is kept: ")[2].split("\n")[0]
    assert Path(path).read_text() == '{"id": "c1"}\n'


def test_a_kill_while_scoring_loses_no_output(write: Write) -> None:
    project(write, 50)
    write(
        "run.py",
        "import os, agentv.evaluators.checks.text as text\n"
        "async def evaluate(self, exchange):\n    os.kill(os.getpid(), 9)\n"
        "text.Contains.evaluate = evaluate\nfrom agentv.__main__ import main\nmain()\n",
    )
    run = subprocess.run([PYTHON, "run.py", "eval", "cases.jsonl"], capture_output=True, check=False)
    assert run.returncode == -signal.SIGKILL
    (folder,) = Path(".agentv/batches").iterdir()
    assert len(results(folder / "output.jsonl")) == 50


def test_a_long_list_of_missing_ids_goes_into_a_file(write: Write) -> None:
    project(write, 3000, command=": > {OUTPUT_FILE}")
    ran = evaluate("cases.jsonl", "--out", "out.jsonl", expect=1)
    error = results("out.jsonl")[0]["error"]
    assert error.startswith("the output of the batch has no record for 3000 of 3000 cases: c0, c1, c2, ")
    path = Path(error.partition("2980 more, see ")[2].partition(";")[0])
    assert path.read_text().split() == [f"c{n}" for n in range(3000)]
    assert "Traceback" not in ran.stderr


@pytest.mark.slow
def test_a_batch_is_read_as_a_stream(write: Write) -> None:
    """The answers of the longer run take 80 MB on disk."""
    peaks = []
    for count in (1_000, 41_000):
        project(write, count)
        write("all.py", ECHO.replace('request["question"]', '"x" * 2000'))
        code = "import sys; from agentv.__main__ import main\nsys.argv[1:] = ['eval', 'cases.jsonl', '--quiet']\n"
        code += f"try:\n    main()\nfinally:\n    {PRINT_PEAK_KB}"
        run = subprocess.run([PYTHON, "-c", code], capture_output=True, text=True, check=True)
        peaks.append(int(run.stdout.split()[-1]))
    assert peaks[1] - peaks[0] < 15_000


SECRET = "s3cret-of-the-environment"


def kept_folder() -> Path:
    (folder,) = Path(".agentv/batches").iterdir()
    return folder


def test_the_raw_output_that_is_kept_is_masked(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first answer is read as it was written, and can be scored."""
    monkeypatch.setenv("MY_API_KEY", SECRET)
    record = '{"id": "c0", "text": "%s"}\\n{"id": "c1"}\\n'
    command = f"cp {{BATCH_FILE}} asked; printf '{record}' $MY_API_KEY > {{OUTPUT_FILE}}"
    project(write, 2, command=command)
    check = {"type": "regex", "value": f"^{SECRET}$"}
    question = [{"role": "user", "content": f"What is {SECRET}?"}]
    write("cases.jsonl", [a_case(f"c{n}", evaluators=[check], input_messages=question) for n in range(2)])
    evaluate("cases.jsonl", "--out", "out.jsonl", expect=1)
    assert [result["score"] for result in results("out.jsonl")] == [1.0, 0.0]
    assert SECRET in Path("asked").read_text()
    assert (kept_folder() / "output.jsonl").read_text() == '{"id": "c0", "text": "***"}\n{"id": "c1"}\n'
    assert "What is ***?" in (kept_folder() / "requests.jsonl").read_text()
    assert [path for path in Path(".agentv").rglob("*") if path.is_file() and SECRET in path.read_text()] == []


def test_the_output_of_a_batch_that_is_interrupted_twice_is_masked(
    write: Write, monkeypatch: pytest.MonkeyPatch, nap: str
) -> None:
    monkeypatch.setenv("MY_API_KEY", SECRET)
    command = f"trap 'touch asked' TERM; echo key $MY_API_KEY > {{OUTPUT_FILE}}; {nap} & while :; do wait; done"
    project(write, command=command)
    run = start("cases.jsonl", "--out", "out.jsonl")
    wait_until(lambda: sleeping(nap) > 0)
    run.send_signal(signal.SIGINT)
    wait_until(Path("asked").exists)
    run.send_signal(signal.SIGINT)
    _, err = run.communicate(timeout=PATIENCE_SECONDS)
    assert (run.returncode, living(nap)) == (130, [])
    assert (kept_folder() / "output.jsonl").read_text() == "key ***\n"
    assert "a batch was interrupted; its raw output is kept: " in err


# Incomplete batches


@pytest.fixture
def tolerant(write: Write) -> Batch:
    """A batch of which only the cases without an answer fail."""
    made = Batch(write)
    settings = {"provider_batching": True, "batch_on_missing": "fail_case"}
    write("targets.yaml", target("cp records.jsonl {OUTPUT_FILE}", **settings))
    made.expected = 1
    return made


def test_a_missing_record_fails_its_case_alone(tolerant: Batch) -> None:
    found = tolerant.run({"id": "a", "text": "A"})
    assert found["a"]["candidate_answer"] == "A"
    assert found["a"]["verdict"] == "pass"
    assert found["b"]["error"].startswith(
        "the output of the batch has no record for this case; its raw output is kept: "
    )
    assert found["b"]["failure"] == "target"


def test_of_duplicate_records_none_is_used(tolerant: Batch) -> None:
    lines = [{"id": "a", "text": "A"}, {"id": "b", "text": "1"}, {"id": "b", "text": "2"}, {"id": "b", "text": "3"}]
    found = tolerant.run(*lines)
    assert found["a"]["candidate_answer"] == "A"
    assert found["b"]["candidate_answer"] == ""
    assert found["b"]["error"].startswith(
        "the output of the batch has more than one record for this case; all are ignored; its raw output is kept: "
    )


def test_unreadable_lines_are_counted_in_the_error_of_each_missing_case(tolerant: Batch) -> None:
    lines: list[Any] = ['{"id": "b", "te', {"text": "whose?"}, "", {"id": "a", "text": "A"}]
    found = tolerant.run(*lines, ids=("a", "b", "c"))
    assert found["a"]["candidate_answer"] == "A"
    expected = (
        "the output of the batch has no record for this case; 2 of its lines cannot be read "
        '(line 1: Invalid JSON: Unterminated string: {"id": "b", "te); its raw output is kept: '
    )
    assert found["b"]["error"].startswith(expected)
    assert found["c"]["error"].startswith(expected)


@pytest.mark.parametrize("end", ["", "\n"])
def test_a_line_that_is_too_long_is_counted_as_unreadable(tolerant: Batch, end: str) -> None:
    long_line = json.dumps({"id": "b", "text": "x" * 40_000_000})
    found = tolerant.run(long_line, {"id": "a", "text": "A"}, "", {"id": "c", "text": "C"}, ids=("a", "b", "c"))
    assert found["a"]["candidate_answer"] == "A"
    assert found["c"]["candidate_answer"] == "C"
    expected = "has no record for this case; 1 of its lines cannot be read (line 1: longer than 16 MiB); its raw"
    assert expected in found["b"]["error"]

    found = tolerant.run({"id": "a", "text": "A"}, long_line + end)
    assert found["a"]["candidate_answer"] == "A"
    assert "(line 2: longer than 16 MiB)" in found["b"]["error"]


def test_a_complete_batch_with_unreadable_lines_succeeds(tolerant: Batch) -> None:
    tolerant.expected = 0
    found = tolerant.run("no JSON", {"id": "a", "text": "A"}, {"id": "b", "text": "B"})
    assert found["b"]["candidate_answer"] == "B"


@pytest.mark.parametrize("record", [{}, {"text": "partial"}])
def test_the_error_of_a_record_is_the_error_of_its_case(batch: Batch, record: dict[str, str]) -> None:
    batch.expected = 1
    found = batch.run({"id": "a", "error": "rate limited", **record}, {"id": "b", "text": "B", "error": ""})
    assert found["a"]["error"].startswith("rate limited; its raw output is kept: ")
    assert found["a"]["candidate_answer"] == ""
    assert found["b"]["candidate_answer"] == "B"


def test_records_with_unknown_ids_are_shown_if_cases_are_missing(batch: Batch, tolerant: Batch) -> None:
    padded = [{"id": f" {n} ", "text": ""} for n in range(5)]
    others = "it has 5 records with other ids: ' 0 ', ' 1 ', ' 2 ' and 2 more"
    found = tolerant.run(*padded, {"id": "a", "text": "A"})
    assert found["b"]["error"].startswith(f"the output of the batch has no record for this case; {others}; its raw")
    strict = Batch(tolerant.write)
    expected = f"the output of the batch has no record for 1 of 2 cases: b; {others}; its raw output is kept: "
    assert strict.fails(*padded, {"id": "a", "text": "A"}).startswith(expected)
    strict.expected = 0
    strict.run(*padded, {"id": "a", "text": "A"}, {"id": "b", "text": "B"})
    assert "other ids" not in strict.ran.stderr


def test_batch_on_missing_needs_a_batch(write: Write) -> None:
    path = write("targets.yaml", target("cat {PROMPT_FILE}", batch_on_missing="fail_case"))
    (problem,) = check_file(path).problems
    assert problem.message == "target 'default': batch_on_missing: the target does not answer in batches"
    assert problem.hint == "set provider_batching: true, or remove batch_on_missing"
    path = write("targets.yaml", target("cat {BATCH_FILE}", provider_batching=True, batch_on_missing="ignore"))
    (problem,) = check_file(path).problems
    assert problem.message == "target 'default': batch_on_missing: unknown batch_on_missing 'ignore'"
