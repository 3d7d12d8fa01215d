"""Functions as targets, evaluators, hooks and metrics; rows as cases; reports and comparisons."""

import asyncio
import datetime
import inspect
import json
import re
import threading
from pathlib import Path
from typing import Any

import pytest

import agentv
from agentv import AgentvError, EvalReport
from agentv.providers import user_functions
from tests.kits.project import Write, a_case
from tests.kits.project import agentv as command

CASES = [
    {"id": "a", "input": "hello", "expected_outcome": "greets", "metadata": {"lang": "en", "gold": "d2 d3"}},
    {"id": "b", "input": "salut", "expected_outcome": "greets", "metadata": {"lang": "fr"}},
    {"id": "c", "input": "hello", "expected_outcome": "greets", "metadata": {"lang": "en", "gold": "d9"}},
]
HELLO = {"type": "contains", "value": "hello"}


@pytest.fixture(autouse=True)
def empty_folder(write: Write) -> None:
    """Run each test in an empty folder."""


def run(**options: Any) -> EvalReport:
    given: dict[str, Any] = {"cases": CASES, "target": str, "evaluators": [HELLO]}
    return asyncio.run(agentv.evaluate(**(given | options)))


@agentv.evaluator(weight=0)
def reciprocal_rank(metadata: dict[str, Any], response_metadata: dict[str, Any]) -> float | None:
    """Find the first relevant document."""
    if "gold" not in metadata:
        return None
    ids = [document["id"] for document in response_metadata["documents"]]
    return next((1 / rank for rank, id_ in enumerate(ids, 1) if id_ in metadata["gold"].split()), 0.0)


def retrieving(question: str, config: dict[str, Any]) -> dict[str, Any]:
    documents = [{"id": f"d{number}"} for number in range(1, config["k"] + 1)]
    return {"text": question, "metadata": {"documents": documents}}


def test_an_evaluator_sees_metadata_and_what_the_agent_found() -> None:
    report = run(target=retrieving, config={"k": 3}, evaluators=[HELLO, reciprocal_rank], out="o.jsonl")
    assert [row["evaluator.reciprocal_rank"] for row in report.table()] == [0.5, None, 0.0]
    assert [row["score"] for row in report.table()] == [1.0, 0.0, 1.0]
    assert report.results[1].evaluator_results[1].applicable is False
    assert reciprocal_rank({"gold": "x"}, {"documents": [{"id": "x"}]}) == 1.0
    assert (reciprocal_rank.name, reciprocal_rank.__doc__) == ("reciprocal_rank", "Find the first relevant document.")


def test_a_case_without_metadata_has_an_empty_mapping() -> None:
    bare = [{"id": "a", "input": "hello", "expected_outcome": "greets"}]
    report = run(cases=bare, evaluators=[HELLO, reciprocal_rank])
    (_, ranked) = report.results[0].evaluator_results
    assert (ranked.applicable, ranked.failed) == (False, False)


def test_functions_are_evaluators_by_their_name_and_in_a_case() -> None:
    def short(candidate_answer: str) -> bool:
        return len(candidate_answer) < 3

    def exact(candidate_answer: str, reference_answer: str) -> bool:
        return candidate_answer == reference_answer

    required = agentv.evaluator(exact, name="same", required=True)
    cases = [CASES[0], {**CASES[1], "expected_output": "salut", "evaluators": [required]}]
    report = run(cases=cases, evaluators=[short])
    scored = [(part.name, part.score) for result in report.results for part in result.evaluator_results]
    assert scored == [("short", 0.0), ("same", 1.0)]


def test_a_changed_evaluator_is_noticed() -> None:
    def made(limit: Any) -> Any:
        def limited(candidate_answer: str) -> bool:
            return bool(len(candidate_answer) < limit)

        return limited

    def digests(evaluator: Any) -> set[str]:
        report = run(evaluators=[evaluator])
        return {result.digests.evaluators for result in report.results if result.digests is not None}

    assert digests(made(3)) == digests(made(3))
    assert digests(made(3)) != digests(made(4))
    assert digests(made(object())) == digests(made(object()))  # only its class counts


def test_two_evaluators_that_look_alike_are_both_called() -> None:
    def made(client: Any) -> Any:
        def asks(candidate_answer: str) -> float:
            return float(client())

        return asks

    class Client:
        def __init__(self, value: float):
            self.value = value

        def __call__(self) -> float:
            return self.value

    one = made(Client(0.25))
    other = made(Client(0.75))
    (first, *_) = run(evaluators=[one, other]).results
    assert [part.score for part in first.evaluator_results] == [0.25, 0.75]


def test_config_is_part_of_the_version() -> None:
    def version(**options: Any) -> str:
        digests = run(target=retrieving, **options).results[0].digests
        assert digests is not None
        return digests.target

    assert version(config={"k": 3}) == version(config={"k": 3})
    assert version(config={"k": 3}) != version(config={"k": 4})
    assert version(config={"k": 3}, version="1") != version(config={"k": 4}, version="1")


def test_config_without_a_parameter_for_it_is_an_error() -> None:
    with agentv.collect_warnings() as warnings:
        run(config={"k": 3})
    assert [warning.message for warning in warnings] == ["config is ignored: the function has no parameter 'config'"]
    with pytest.raises(AgentvError, match="config is set, but target is not a function"):
        run(target="mine", config={"k": 3})
    with pytest.raises(AgentvError, match="config is 3"):
        run(config=3)


def test_hooks_and_metrics_are_functions() -> None:
    called: list[str] = []

    def before_all() -> dict[str, str]:
        return {"token": "t"}

    def before_each(eval_id: str) -> None:
        called.append(eval_id)

    def after_all() -> None:
        called.append("end")

    def english(results: list[dict[str, Any]]) -> float:
        languages = [result["metadata"]["lang"] for result in results]
        return languages.count("en") / len(languages)

    report = run(
        target=lambda question, state: question + state["token"],
        hooks={"before_all": before_all, "before_each": before_each, "after_all": after_all},
        metrics=[english, {"name": "again", "function": english, "interval": False}],
        out="o.jsonl",
    )
    assert called == ["a", "b", "c", "end"]
    assert [result.candidate_answer for result in report.results] == ["hellot", "salutt", "hellot"]
    assert report.metrics["english"].value == pytest.approx(2 / 3)
    assert report.metrics["again"].ci_lower is None
    assert agentv.load_results("o.jsonl").metrics == report.metrics


def test_a_function_that_cancels_its_task_fails_its_case_only() -> None:
    async def answer(question: str) -> str:
        if question == "salut":
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
            await asyncio.sleep(60)
        return question

    report = run(target=answer)

    errors = [result.error or "" for result in report.results]
    assert [bool(error) for error in errors] == [False, True, False]
    assert "CancelledError" in errors[1]


def test_state_is_masked_in_warnings_and_errors() -> None:
    def before() -> dict[str, str]:
        return {"token": "token-of-the-state"}

    def fail(state: dict[str, str]) -> None:
        raise OSError(f"{state['token']} is in use")

    hooks = {"before_all": before, "before_each": before, "after_each": fail, "after_all": fail}
    with agentv.collect_warnings() as warnings:
        run(hooks=hooks, cases=CASES[:1])
    assert [warning.message.partition("OSError: ")[2] for warning in warnings] == ["*** is in use"] * 2

    with pytest.raises(AgentvError, match=r"OSError: \*\*\* is in use"):
        run(hooks={"before_all": fail_at_once})


def fail_at_once() -> None:
    """Fail with a string that an earlier run has returned as its state."""
    raise OSError("token-of-the-state is in use")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"hooks": {"before": print}}, "hooks.before: unknown field"),
        ({"hooks": print}, "hooks is a builtin_function_or_method"),
        ({"metrics": print}, "metrics is a builtin_function_or_method"),
        ({"metrics": [3]}, "metrics[0] is 3"),
        ({"fail_under": 2}, "fail_under is 2"),
        ({"out": 3}, "out is 3"),
        ({"resume": "yes", "out": "o.jsonl"}, "resume is 'yes'"),
        ({"ids": [3]}, "ids is [3]"),
        ({"progress": "yes"}, "progress is 'yes'"),
        ({"dataset": ""}, "dataset is ''"),
        ({"version": 3}, "version is 3"),
    ],
)
def test_invalid_argument_values_are_rejected(options: dict[str, Any], message: str) -> None:
    with pytest.raises(AgentvError) as caught:
        run(**options)
    assert caught.value.message.startswith(message)
    assert caught.value.hint


def test_sync_is_for_scripts() -> None:
    report = agentv.evaluate_sync(cases=CASES, target=str, evaluators=[HELLO])
    assert report.summary.done == 3

    async def cell() -> None:
        agentv.evaluate_sync(cases=CASES, target=str)

    with pytest.raises(AgentvError, match=r"use 'await agentv.evaluate\(...\)'"):
        asyncio.run(cell())


def test_an_error_in_a_script_is_the_only_one_in_its_traceback() -> None:
    with pytest.raises(AgentvError) as raised:
        agentv.evaluate_sync(cases=[])
    assert raised.value.__context__ is None


@pytest.mark.parametrize("function", [agentv.evaluate, agentv.evaluate_sync, agentv.stream, agentv.plan])
def test_an_unknown_parameter_is_named_with_its_function(function: Any) -> None:
    message = rf"^{function.__name__}\(\) got an unexpected keyword argument 'workerz'"
    with pytest.raises(TypeError, match=message):
        function(cases=CASES, target=str, workerz=3)


def test_help_shows_every_parameter() -> None:
    assert "workers: int | None = None" in str(inspect.signature(agentv.plan))
    assert str(inspect.signature(agentv.evaluate_sync)).endswith("-> agentv.api.report.EvalReport")
    with pytest.raises(TypeError, match="unexpected keyword argument 'wrokers'"):
        agentv.plan(cases=CASES, wrokers=3)  # type: ignore[call-arg]


def test_an_async_evaluator_that_blocks_does_not_stop_later_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(user_functions, "PROBE_SECONDS", 0.01)
    released = threading.Event()

    async def blocks(candidate_answer: str) -> float:
        released.wait()
        return 1.0

    async def returns(candidate_answer: str) -> float:
        return 1.0

    try:
        blocked = {"type": "python", "function": blocks, "timeout_seconds": 0.05}
        (result,) = run(cases=CASES[:1], evaluators=[blocked]).results
        assert result.failure == "judge"
        (later,) = run(cases=CASES[:1], evaluators=[returns]).results
        assert later.score == 1.0
    finally:
        released.set()


# ---- the report ----


def test_the_table_and_the_groups_of_a_report() -> None:
    report = run(out="o.jsonl", min_pass_rate=0.9)
    assert report.exit_code == 1
    table = report.table()
    assert [list(row) == list(table[0]) for row in table] == [True] * 3
    assert table[1]["metadata.lang"] == "fr"
    assert table[1]["metadata.gold"] is None
    exported = command("export", "o.jsonl", "--to", "jsonl").stdout.splitlines()
    assert [{**json.loads(line), "answer_digest": None} for line in exported] == [
        {**row, "answer_digest": None} for row in table
    ]
    groups = report.by("lang")
    assert [(row["lang"], row["n"], row["mean"]) for row in groups] == [("en", 2, 1.0), ("fr", 1, 0.0)]
    with pytest.raises(AgentvError, match="by: no result has 'lung'; known keys: conversation_id, dataset, "):
        report.by("lung")


def test_a_case_is_shown_with_its_trials_and_without_markup() -> None:
    report = run(target=lambda question: "<b>hello</b>", trials=2)
    shown = report.case("a")
    assert str(shown).count("<b>hello</b>") == 2
    assert "a, trial 2: 1.000 pass" in str(shown)
    assert "&lt;b&gt;hello" in shown._repr_html_()
    assert "<b>" not in shown._repr_html_()
    with pytest.raises(AgentvError, match="no result with id 'z'"):
        report.case("z")


def test_a_case_that_was_not_judged_is_counted_in_a_notebook() -> None:
    def lost(candidate_answer: str) -> float:
        raise ValueError("<b>lost</b>")

    shown = run(cases=CASES[:1], evaluators=[lost])._repr_html_()
    assert "<p>1 judge failure</p>" in shown
    assert "<b>lost" not in shown


def test_a_report_as_a_value_in_an_interpreter_is_one_line() -> None:
    assert repr(run()) == "<EvalReport: mean 0.667 (95%: 0.000 to 1.000), 67% passed, 3 cases>"


@pytest.mark.parametrize(
    ("paths", "message"),
    [
        (3, "paths is 3\nhint: pass a results file, or a list of the files of all shards"),
        (None, "paths is None"),
        ([], "paths is empty"),
        (["o.jsonl", 3], "paths contains 3"),
        ("o.jsonl", "o.jsonl: no such file"),
        ("empty", "empty: this is a folder, not a results file"),
        ("foreign.jsonl", "2 problems:\nforeign.jsonl:1:1: missing eval_id"),
    ],
)
def test_results_that_cannot_be_loaded(paths: Any, message: str) -> None:
    Path("empty").mkdir()
    Path("foreign.jsonl").write_text('{"a": 1}\n')
    with pytest.raises(AgentvError) as raised:
        agentv.load_results(paths)
    assert "\n".join([str(raised.value), *getattr(raised.value, "__notes__", [])]).startswith(message)


def test_the_results_of_shards_and_of_a_resumed_run_are_loaded_as_one_report() -> None:
    whole = run()
    for number in (1, 2, 3):
        run(shard=f"{number}/3", out=f"{number}.jsonl")
    shards = agentv.load_results(["3.jsonl", "1.jsonl", "2.jsonl"])
    assert [row["eval_id"] for row in shards.table()] == [row["eval_id"] for row in whole.table()]
    assert shards.summary.mean == whole.summary.mean

    run(out="o.jsonl", limit=1)
    resumed = run(out="o.jsonl", resume=True, min_pass_rate=0.9)
    loaded = agentv.load_results("o.jsonl")
    assert [row["eval_id"] for row in loaded.table()] == ["a", "b", "c"]
    assert loaded.table() == resumed.table()
    assert (loaded.exit_code, resumed.exit_code) == (1, 1)
    for record in Path(".agentv/runs").iterdir():
        record.unlink()
    assert agentv.load_results("o.jsonl").exit_code == 0  # its gates are unknown


@pytest.mark.parametrize("by", ["lung", ["dataset", "lung"]])
def test_a_key_that_no_case_has_is_refused_before_the_run(by: str | list[str]) -> None:
    asked: list[str] = []
    with pytest.raises(AgentvError) as caught:
        run(by=by, target=asked.append)
    known = "conversation_id, dataset, evaluator, gold, lang, target"
    assert caught.value.message == f"by: no case has 'lung'; known keys: {known}"
    assert caught.value.hint == "did you mean 'lang'?"
    assert asked == []
    for key in ("lang", "metadata.lang", "evaluator", "conversation_id"):
        assert len(run(by=key).results) == 3


@pytest.mark.parametrize("keys", [(), ("",), (3,), (["dataset"],)])
def test_keys_that_are_not_names_are_rejected(keys: Any) -> None:
    with pytest.raises(AgentvError, match="by needs the names of fields or metadata keys"):
        run().by(*keys)


def test_errors_in_the_users_functions_point_to_their_own_lines() -> None:
    def broken(*_: Any) -> float:
        raise ValueError("no database")

    def fails() -> None:
        broken()

    place = rf"test_functions\.py:{broken.__code__.co_firstlineno + 1} in broken: ValueError: no database"
    result = run(target=lambda question: broken()).results[0]
    assert result.error is not None
    assert re.search(place, result.error)
    result = run(evaluators=[agentv.evaluator(lambda candidate_answer: broken(), name="e")]).results[0]
    assert re.search(place, result.misses[0])
    assert result.failure == "judge"
    result = run(hooks={"before_each": fails}).results[0]
    assert result.error is not None
    assert re.search(place, result.error)
    with pytest.raises(AgentvError, match=place) as raised:
        run(hooks={"before_all": fails})
    assert raised.value.message.startswith("before_all fails: ")
    assert raised.value.file is None
    with agentv.collect_warnings() as warnings:
        assert run(metrics=[{"name": "m", "function": lambda results: broken()}]).metrics == {}
    assert re.search(f"metric 'm': .*{place}", warnings[0].message)


def test_objects_cannot_be_sent_to_a_cluster(write: Write) -> None:
    write("a.jsonl", [a_case("a")])
    objects: dict[str, Any] = {"evaluators": [HELLO], "hooks": {"before_all": print}, "metrics": [len]}
    reason = "cannot be sent to a cluster, whose workers read eval files: write them to an eval file"
    for name, value in objects.items():
        given = {name: value}
        with pytest.raises(AgentvError, match=f"^{name} {reason}$"):
            agentv.evaluate_sync("a.jsonl", target=str, cluster="local:1", **given)
    with pytest.raises(AgentvError, match=f"^cases, evaluators {reason}$"):
        run(cluster="local:1")


def test_a_judge_is_compared_with_labels() -> None:
    report = run(out="o.jsonl")
    Path("labels.csv").write_text("eval_id,label,answer\na,pass,hello\nb,pass,salut\nc,fail,hello\n")
    command("labels", "import", "labels.csv")
    printed = json.loads(command("judge", "o.jsonl", "--format", "json").stdout)
    assert printed["labels"]["used"] == 3
    for results in (report, "o.jsonl", ["o.jsonl"]):
        figures = agentv.judge_agreement(results)
        assert figures.labels.used == 3
        assert figures["kappa"]["value"] == printed["kappa"]["value"]
    assert agentv.judge_agreement(report, evaluator="contains").evaluator == "contains"
    with pytest.raises(AgentvError) as raised:
        agentv.judge_agreement(report, labels="none.jsonl")
    assert raised.value.hint.endswith("or choose another file with labels")


def test_runs_are_compared_as_reports_and_files() -> None:
    first = run(out="o.jsonl")
    second = run(target=lambda question: "hello")
    comparison = agentv.compare_results(first, second)
    assert [(pair.eval_id, pair.outcome) for pair in comparison.matched] == [("a", "tie"), ("b", "win"), ("c", "tie")]
    rows = comparison.table()
    assert repr(comparison).startswith("<Comparison: cannot tell, difference +0.333 (95%: ")
    assert repr(comparison).endswith(", 3 pairs>")
    assert rows[1] == {
        "eval_id": "b",
        "dataset": "cases",
        "score1": 0.0,
        "score2": 1.0,
        "delta": 1.0,
        "outcome": "win",
    }
    assert agentv.compare_results(Path("o.jsonl"), first)["summary"]["meanDelta"] == 0.0
    with pytest.raises(AgentvError, match=r"first is 3\n.*or a report"):
        agentv.compare_results(3, second)  # type: ignore[arg-type]
    with pytest.raises(AgentvError, match="second is empty"):
        agentv.compare_results(first, [])
    with pytest.raises(AgentvError, match="labels is 3"):
        agentv.compare_results(first, second, labels=3)  # type: ignore[arg-type]
    with pytest.raises(AgentvError, match="labels is 3"):
        agentv.judge_agreement(first, labels=3)  # type: ignore[arg-type]
    with pytest.raises(AgentvError, match="labels"):
        agentv.judge_agreement(first)
    forecast = agentv.plan(cases=CASES, target=str, evaluators=[HELLO])
    assert forecast["cases"] == 3
    assert repr(forecast) == "<Forecast: 3 cases, 3 calls, unknown cost>"


def test_several_runs_in_one_process_do_not_disturb_each_other() -> None:
    async def cell() -> list[EvalReport]:
        runs = [agentv.evaluate(cases=CASES, target=str, evaluators=[HELLO]) for _ in range(3)]
        return list(await asyncio.gather(*runs))

    assert [report.summary.done for report in asyncio.run(cell())] == [3, 3, 3]


# ---- rows ----


class Scalar:
    """A stand-in for a numpy scalar."""

    ndim = 0

    def item(self) -> int:
        return 7


class NAType:
    """A stand-in for pandas' missing value."""


ROWS = [
    {"id": 5, "q": "hello", "a": "hi", "lang": "en", "level": Scalar(), "day": datetime.date(2026, 1, 2)},
    {"id": 6.0, "q": "salut", "a": float("nan"), "lang": None, "level": NAType(), "day": NAType()},
]


def test_rows_become_cases() -> None:
    cases = agentv.cases_from(
        ROWS,
        input="q",
        expected_output="a",
        metadata=["lang", "level"],
        vars="day",
        defaults={"expected_outcome": "greets", "metadata": {"source": "table"}},
    )
    assert cases == [
        {
            "expected_outcome": "greets",
            "metadata": {"source": "table", "lang": "en", "level": 7},
            "id": "5",
            "input": "hello",
            "expected_output": "hi",
            "vars": {"day": "2026-01-02"},
        },
        {"expected_outcome": "greets", "metadata": {"source": "table"}, "id": "6", "input": "salut"},
    ]
    assert run(cases=cases).summary.done == 2
    assert [each["id"] for each in agentv.cases_from([{"q": "x"}, {"q": "y"}], input="q")] == ["1", "2"]


@pytest.mark.parametrize(
    ("rows", "options", "message"),
    [
        (ROWS, {"input": "Q"}, "input: no column 'Q'; the columns are 'id', 'q', 'a', 'lang', 'level', 'day'"),
        (ROWS, {"input": "q", "metadata": ["lang", "tone"]}, "metadata: no column 'tone'; the columns are"),
        ("rows.csv", {"input": "q"}, "rows is 'rows.csv'"),
        ([], {"input": "q"}, "rows is empty"),
        ([3], {"input": "q"}, "row 1 is 3"),
        (ROWS, {"input": "q", "defaults": 3}, "defaults is 3"),
        (ROWS, {"input": "q", "vars": 3}, "vars is 3"),
    ],
)
def test_tables_that_cannot_be_used(rows: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(AgentvError) as caught:
        agentv.cases_from(rows, **options)
    assert caught.value.message.startswith(message)


def test_columns_of_metadata_may_be_named_by_an_index_of_pandas() -> None:
    frames = pytest.importorskip("pandas")
    frame = frames.DataFrame({"q": ["hello"], "gold": ["d1"], "level": ["easy"]})
    (case,) = agentv.cases_from(frame, input="q", metadata=frame.columns[1:])
    assert case["metadata"] == {"gold": "d1", "level": "easy"}


def test_columns_of_pandas_may_have_numbers_as_names() -> None:
    frames = pytest.importorskip("pandas")
    frame = frames.DataFrame([["hello", "easy"]])
    (case,) = agentv.cases_from(frame, input="0", metadata="1")
    assert case == {"id": "1", "input": "hello", "metadata": {"1": "easy"}}


def test_a_lazy_frame_of_polars_has_no_rows_yet() -> None:
    frames = pytest.importorskip("polars")
    with pytest.raises(AgentvError, match="rows is a LazyFrame") as caught:
        agentv.cases_from(frames.LazyFrame({"q": ["hello"]}), input="q")
    assert caught.value.hint == "pass rows.collect(), its data frame"


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_data_frames_become_cases(library: str) -> None:
    frames = pytest.importorskip(library)
    frame = frames.DataFrame({"q": ["hello", "salut"], "gold": ["d1", None], "n": [1, None], "id": [10, 11]})
    cases = agentv.cases_from(frame, input="q", metadata=["gold", "n"], defaults={"expected_outcome": "greets"})
    assert [each["id"] for each in cases] == ["10", "11"]
    assert cases[0]["metadata"] == {"gold": "d1", "n": 1}
    assert "metadata" not in cases[1]
    report = run(cases=cases)
    assert frames.DataFrame(report.table()).shape[0] == 2
    with pytest.raises(AgentvError, match="no column 'Q'; the columns are 'q', 'gold', 'n', 'id'"):
        agentv.cases_from(frame, input="Q")
    with pytest.raises(AgentvError, match="cases is a DataFrame"):
        run(cases=frame)
