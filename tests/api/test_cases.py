"""Cases without files: lists, iterables that are read during the run, and their errors."""

import asyncio
import json
import re
from collections.abc import Iterator
from datetime import date
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest

import agentv
from agentv import AgentvError, EvalCase, EvalReport, Message, load_eval_cases
from agentv.cases.objects import READ_AHEAD
from tests.kits.project import Write, a_case

HELLO = {"type": "contains", "value": "hello"}


@pytest.fixture(autouse=True)
def empty_folder(write: Write) -> None:
    """Run each test in an empty folder."""


def case(number: int, **fields: Any) -> dict[str, Any]:
    return {"id": f"c{number}", "input": f"hello {number}", "expected_outcome": "greets"} | fields


def run(cases: Any, **options: Any) -> EvalReport:
    given: dict[str, Any] = {"target": str, "evaluators": [HELLO]}
    return asyncio.run(agentv.evaluate(cases=cases, **(given | options)))


def ids(report: EvalReport) -> list[str]:
    return [result.eval_id for result in report.results]


def refused(cases: Any, **options: Any) -> str:
    with pytest.raises(AgentvError) as caught:
        run(cases, **options)
    return "\n".join([str(caught.value), *getattr(caught.value, "__notes__", [])])


def test_mappings_and_eval_cases_run_without_a_file() -> None:
    message = Message(role="user", content="hello there")
    own = EvalCase(id="own", expected_outcome="greets", input_messages=(message,))
    report = run([case(1), own, case(2, evaluators=[{"type": "contains", "value": "bye"}])], dataset="greetings")
    assert [(result.eval_id, result.position, result.score) for result in report.results] == [
        ("c1", 1, 1.0),
        ("own", 2, 1.0),
        ("c2", 3, 0.0),
    ]
    assert {(result.dataset, result.file, result.line) for result in report.results} == {("greetings", None, None)}
    assert not list(Path().iterdir())  # without `out`, nothing is written


def test_cases_of_a_file_keep_their_dataset_and_their_folder(write: Write) -> None:
    write("evals/notes.txt", "hello from the file")
    attached = [{"role": "user", "content": [{"type": "file", "value": "notes.txt"}]}]
    write("evals/some.jsonl", [a_case("one", input_messages=attached)])
    (result,) = run(list(load_eval_cases("evals/some.jsonl"))).results
    assert (result.dataset, result.file, result.score) == ("some", "evals/some.jsonl", 1.0)


def test_relative_paths_targets_and_attachments_start_in_the_current_folder(write: Write) -> None:
    write("targets.yaml", "targets: [{name: mine, provider: mock, response: hello}]")
    write("notes.txt", "hello")
    attached = [{"role": "user", "content": [{"type": "file", "value": "notes.txt"}]}]
    (result,) = run([case(1, input=attached)], target="mine").results
    assert (result.target, result.score) == ("mine", 1.0)
    gone = [{"role": "user", "content": [{"type": "file", "value": "gone.txt"}]}]
    assert "no such file: gone.txt" in refused([case(1, input=gone)], target="mine")


def test_results_are_in_the_order_of_the_cases_with_many_workers() -> None:
    async def last_first(eval_id: str) -> str:
        for _ in range(20 - int(eval_id[1:])):
            await asyncio.sleep(0)
        return "hello"

    report = run([case(number) for number in range(20)], target=last_first, workers=20, trials=2, out="o.jsonl")
    assert [(result.position, result.trial) for result in report.results] == [
        (number, trial) for number in range(1, 21) for trial in (1, 2)
    ]
    loaded = agentv.load_results("o.jsonl")
    assert loaded.results == report.results
    assert loaded.summary.mean == report.summary.mean == 1.0


def test_results_of_several_datasets_are_in_the_order_of_the_cases(write: Write) -> None:
    write("a.jsonl", [a_case("a"), a_case("b")])
    first, second = load_eval_cases("a.jsonl")
    cases = [case(1), second, case(2), first]
    for given in (cases, iter(cases)):
        report = run(given)
        assert [(result.eval_id, result.position) for result in report.results] == [
            ("c1", 1),
            ("b", 1),
            ("c2", 2),
            ("a", 2),
        ]


def test_any_number_of_ids_costs_one_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    compared = 0

    def compare(id_: str, pattern: str) -> bool:
        nonlocal compared
        compared += 1
        return fnmatchcase(id_, pattern)

    monkeypatch.setattr("agentv.cases.id_patterns.fnmatchcase", compare)
    plain = [case(number) for number in range(2000)]
    family = case(0, id="ask", matrix={"n": list(range(2000))})
    wanted = [each["id"] for each in plain]
    wanted += [f"ask[n={number}]" for number in range(2000)]
    found = agentv.plan(cases=[*plain, family], target=str, evaluators=[HELLO], ids=[*wanted, "c?"])
    assert found.cases == len(wanted)
    assert 0 < compared < 10 * len(wanted)  # not every id with every pattern


def test_after_resume_the_report_covers_earlier_and_new_results() -> None:
    asked: list[str] = []

    def agent(question: str, eval_id: str) -> str:
        asked.append(eval_id)
        return question

    run([case(3), case(1)], target=agent, version="1", out="o.jsonl")
    report = run([case(number) for number in (1, 2, 3)], target=agent, version="1", out="o.jsonl", resume=True)
    assert asked == ["c3", "c1", "c2"]
    assert [(result.eval_id, result.position) for result in report.results] == [("c1", 1), ("c2", 2), ("c3", 3)]
    assert len(report.table()) == report.summary.done == 3


def test_resume_reads_an_iterable_up_to_its_end() -> None:
    run([case(1)], version="1", out="o.jsonl")
    assert ids(run((case(number) for number in (1, 2)), version="1", out="o.jsonl", resume=True)) == ["c1", "c2"]


def test_families_and_variables_are_cases_in_memory_too() -> None:
    matrix = case(1, input="hello {{ vars.who }} {{ vars.n }}", matrix={"who": ["you", "all"], "n": [1, 2]})
    family = [
        {**matrix, "exclude": [{"who": "all", "n": 1}]},
        case(2, input="hello {{ vars.who }}", rows=[{"who": "Ada"}, {"id": "second", "who": "Bo"}]),
        case(3, input="hello {{ vars.who }}", vars={"who": "Cy"}),
    ]
    for cases in (family, iter(family)):
        rows = run(cases, workers=4).table()
        assert [(row["eval_id"], row["candidate_answer"]) for row in rows] == [
            ("c1[who=you,n=1]", "hello you 1"),
            ("c1[who=you,n=2]", "hello you 2"),
            ("c1[who=all,n=2]", "hello all 2"),
            ("c2[1]", "hello Ada"),
            ("c2[second]", "hello Bo"),
            ("c3", "hello Cy"),
        ]
        assert [row["vars.who"] for row in rows] == ["you", "you", "all", "Ada", "Bo", "Cy"]


def test_cases_without_evaluators_are_refused_for_that_reason_without_a_targets_file() -> None:
    assert refused([case(1)], evaluators=None).startswith(
        "cases[0]: case 'c1': no evaluators are set, and the default evaluator, llm_judge, needs a judge\n"
        "hint: add evaluators to the case"
    )
    judge = {"type": "llm_judge", "judge_target": "judge"}
    assert refused([case(1)], evaluators=[judge]).startswith("no targets file found")


CIRCULAR: dict[str, Any] = {}
CIRCULAR["self"] = CIRCULAR


@pytest.mark.parametrize(
    ("cases", "message"),
    [
        ([{"id": "a"}], "cases[0]: missing expected_outcome, input_messages"),
        ([case(1, input="{{ vars.x }}")], "cases[0]: input: unknown variable {{ vars.x }}\nhint: add it to 'vars'"),
        ([case(1, matrix={"a": 3})], "cases[0]: matrix.a: expected an array, got an integer"),
        ([case(1, rows="none.csv")], "cases[0]: rows: no such file: none.csv"),
        ([case(1, rows=[{}], matrix={"a": [1]})], "cases[0]: rows: cannot be combined with 'matrix'"),
        ([case(1), 3], "cases[1] is an int\nhint: a case is a mapping"),
        ([case(1), "evals/a.yaml"], "cases[1] is 'evals/a.yaml'\nhint: pass eval files as the first argument"),
        ("evals/a.yaml", "cases is 'evals/a.yaml'\nhint: pass eval files as the first argument"),
        (case(1), "cases is a dict\nhint: pass a list of cases, even if there is only one"),
        ([], "no cases: 'cases' is empty\nhint: pass at least one case"),
        (iter([]), "no cases: 'cases' is empty\nhint: a generator yields its cases only once"),
        ([case(1), case(1)], "cases[1]: duplicate id 'c1', first in cases[0]\nhint: use unique ids"),
        ([case(1, id=1)], "cases[0]: id: expected a string, got an integer\nhint: quote it"),
        ([case(1, input=("hi",))], "cases[0]: input: expected a string or an array, got a value of type 'tuple'"),
        (
            [case(1, input=1, metadata={"day": date(2026, 1, 2)})],
            "2 problems:\ncases[0]: input: expected a string or an array, got an integer\n"
            "cases[0]: metadata.day: expected a JSON value, got a value of type 'date'",
        ),
        (
            [case(1, evaluators=[{"type": "latencey"}])],
            "cases[0]: case 'c1': evaluators[0]: unknown evaluator type 'latencey'\nhint: did you mean 'latency'?",
        ),
        (
            [case(1, input="half \ud83d")],
            "cases[0]: input: cannot be written as JSON\nhint: it contains itself, or text",
        ),
        ([EvalCase(id="\ud83d", expected_outcome="x", input_messages=())], "cases[0]: id: cannot be written as JSON"),
        ([case(1, metadata=CIRCULAR)], "cases[0]: metadata: cannot be written as JSON"),
        (7, "cases is an int\nhint: pass a list of mappings"),
    ],
)
def test_invalid_cases_are_rejected_before_the_run(cases: Any, message: str) -> None:
    assert refused(cases, target=lambda question: pytest.fail("called")).startswith(message)


def test_an_error_in_the_given_evaluators_is_reported_once() -> None:
    told = refused([case(1), case(2)], evaluators=[{"type": "latencey"}])
    assert told.startswith("evaluators[0]: unknown evaluator type 'latencey'")
    assert refused([case(1)], evaluators=HELLO).startswith("evaluators is {'type': ")
    assert refused([case(1)], evaluators=["x"]).startswith("evaluators[0] is 'x'\nhint: pass a function")


def test_paths_and_cases_are_distinguished() -> None:
    for paths, message in (
        ([case(1)], "paths contains a dict\nhint: pass cases with cases=[...]"),
        (case(1), "paths is a dict\nhint: pass cases with cases=[...]"),
        (None, "no cases given\nhint: pass eval files as the first argument, or cases=[...]"),
    ):
        with pytest.raises(AgentvError) as caught:
            asyncio.run(agentv.evaluate(paths, target=str))  # type: ignore[arg-type]
        assert "\n".join([str(caught.value), *caught.value.__notes__]) == message
    with pytest.raises(AgentvError, match="paths and cases are both given"):
        asyncio.run(agentv.evaluate("evals", cases=[case(1)], target=str))


# ---- iterables ----


class Counted:
    """An endless iterable that counts its cases."""

    def __init__(self, fails_at: int | None = None, wrong_at: int | None = None):
        self.taken = 0
        self._fails_at = fails_at
        self._wrong_at = wrong_at

    def __iter__(self) -> Iterator[dict[str, Any]]:
        while True:
            self.taken += 1
            if self.taken == self._fails_at:
                raise ValueError("the table is gone")
            if self.taken == self._wrong_at:
                yield {"id": "wrong"}
            yield case(self.taken)


def test_limit_ends_an_endless_iterable() -> None:
    for limit in (3, READ_AHEAD + 30):
        cases = Counted()
        report = run(cases, limit=limit, workers=4, out=f"{limit}.jsonl", record="record.json")
        assert len(report.results) == limit
        assert cases.taken == limit
        assert report.exit_code == 0
        assert report.summary.cases == limit
        record = json.loads(Path("record.json").read_text())
        assert record["eval_files"] == [{"path": "<cases>", "cases": limit}]


@pytest.mark.parametrize(
    ("options", "taken"),
    [
        ({"resume": True, "out": "o.jsonl"}, 30),
        ({"require": "id:c1"}, 30),
        ({"shard": "1/2", "out": "o.jsonl"}, 30),
        ({"ids": ["c*"]}, 30),
        ({"ids": ["c3", "c40"], "limit": 2}, 40),
        ({"ids": ["c3", "c40"], "limit": 1}, 40),
    ],
)
def test_options_that_need_all_cases_read_no_further_than_the_limit(options: dict[str, Any], taken: int) -> None:
    cases = Counted(fails_at=100)
    report = run(cases, **({"limit": 30} | options))
    assert report.exit_code == 0
    assert cases.taken == taken


def test_progress_of_an_iterable_has_no_total(capsys: pytest.CaptureFixture[str]) -> None:
    cases = [case(number) for number in range(LATE)]
    run(iter(cases), progress=True)
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith("running cases as they arrive from dataset cases")
    assert all(re.match(r"\d+ done, mean 1\.000, 0:\d\d elapsed", line) for line in lines[1:])
    assert lines[-1].startswith(f"{LATE} done")
    run(iter(cases[:3]), progress=True)
    assert capsys.readouterr().err.splitlines()[-1].startswith("3/3 done")
    run(iter(cases), progress=True, limit=5)
    assert capsys.readouterr().err.splitlines()[-1].startswith("5/5 done")


def test_only_a_few_cases_are_read_ahead() -> None:
    cases = Counted()
    ahead: list[int] = []

    def agent(question: str) -> str:
        ahead.append(cases.taken)
        return question

    run(cases, target=agent, limit=100)
    assert ahead[0] == READ_AHEAD
    assert ahead[-1] == 100


@pytest.mark.parametrize("at", [1, 4, READ_AHEAD + 5])
def test_an_exception_of_an_iterable_reaches_the_caller_and_results_so_far_stay(at: int) -> None:
    with pytest.raises(ValueError, match="the table is gone"):
        run(Counted(fails_at=at), out="o.jsonl", workers=3)
    lines = []
    if at > 1:
        lines = [json.loads(line)["eval_id"] for line in Path("o.jsonl").read_text().splitlines()]
        (record,) = Path(".agentv/runs").glob("*.json")
        assert json.loads(record.read_text())["exit_reason"] == "errors"
    assert sorted(lines) == sorted(f"c{number}" for number in range(1, at))


@pytest.mark.parametrize("at", [1, 4, READ_AHEAD + 5])
def test_an_invalid_case_of_an_iterable_ends_the_run(at: int) -> None:
    told = refused(Counted(wrong_at=at), out="o.jsonl")
    assert told.startswith(f"cases[{at - 1}]: missing expected_outcome, input_messages")
    if at > 1:
        assert Path("o.jsonl").read_text().count("\n") == at - 1


LATE = READ_AHEAD + 5
"""The index of a case that is read while the run is under way."""


def with_late_case(**fields: Any) -> list[dict[str, Any]]:
    """Return cases that are alike, except for the one at `LATE`."""
    cases = [case(number) for number in range(LATE + 2)]
    cases[LATE] = case(LATE, **fields)
    return cases


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"execution": {"target": "b"}}, "no earlier case uses target 'b'"),
        ({"evaluators": [{"type": "llm_judge"}]}, "no earlier case uses the judge of target 'default'"),
        ({"evaluators": [{"type": "llm_judge", "judge_target": "b"}]}, "no earlier case uses judge 'b'"),
    ],
)
def test_a_late_case_with_another_target_or_judge_ends_the_run(
    write: Write, fields: dict[str, Any], message: str
) -> None:
    reply = '{"score": 1, "hits": [], "misses": [], "reasoning": "fine"}'
    settings = {"provider": "mock", "response": f"hello {reply}"}
    targets = [{"name": "default", "judge_target": "b", **settings}, {"name": "b", **settings}]
    write("targets.yaml", json.dumps({"targets": targets}))
    cases = with_late_case(**fields)
    told = refused(iter(cases), target=None, out="o.jsonl")
    assert told.startswith(
        f"cases[{LATE}]: case 'c{LATE}': {message}\nhint: the first {READ_AHEAD} cases of an iterable"
    )
    assert Path("o.jsonl").read_text().count("\n") == LATE
    assert [result.error for result in run(cases, target=None).results] == [None] * len(cases)


def test_a_late_case_that_needs_a_workspace_ends_the_run() -> None:
    cases = with_late_case(evaluators=[{"type": "command", "command": "true", "cwd": "workspace"}])
    told = refused(iter(cases))
    assert told.startswith(
        f"cases[{LATE}]: case 'c{LATE}': evaluators[0]: evaluator 'command' needs the agent's workspace"
    )
    assert told == refused(cases)


def test_unknown_fields_and_skipped_cases_of_an_iterable_are_reported_at_its_end() -> None:
    cases = [case(number, skip=number % 2 == 0, tgas=["x"]) for number in range(3 * READ_AHEAD)]
    for given in (cases, iter(cases)):
        with agentv.collect_warnings() as warnings:
            report = run(given)
        message = f"cases[0]: tgas: unknown field (in {len(cases)} cases), ignored"
        assert [warning.message for warning in warnings] == [message]
        assert report.summary.skipped == len(cases) // 2


def test_a_late_case_without_a_variable_of_its_target_ends_the_run(write: Write) -> None:
    url = "http://localhost:1/{{ vars.user.name }}"
    write("targets.yaml", json.dumps({"targets": [{"name": "default", "provider": "http", "url": url}]}))
    cases = [case(number, vars={"user": {"name": "n"}}) for number in range(READ_AHEAD)]
    late = case(99, vars={"user": {}})
    told = refused(iter([*cases, late]), target=None, max_retries=0)
    assert told.startswith("case 'c99': target 'default': unknown variable {{ vars.user.name }}\n")


def test_max_errors_ends_an_endless_iterable() -> None:
    def agent(question: str) -> str:
        raise ValueError(question)

    report = run(Counted(), target=agent, max_errors=3)
    assert (len(report.results), report.exit_code) == (3, 1)


@pytest.mark.slow
def test_a_large_iterable_takes_little_memory_per_case() -> None:
    import tracemalloc

    async def count(most: int) -> int:
        tracemalloc.start()
        async for _ in agentv.stream(cases=Counted(), target=str, evaluators=[HELLO], limit=most):
            pass
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return peak

    asyncio.run(count(100))
    small = asyncio.run(count(1_000))
    assert asyncio.run(count(20_000)) < small + 20_000 * 200
