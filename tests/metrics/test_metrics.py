"""Metrics over a run: functions of an eval file that receive all of its results."""

import json
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest

from agentv import load_results
from agentv.metrics.compute import MAX_CASES, MetricFailed, compute, compute_difference, metric_values
from agentv.report.metrics import format_difference, format_value
from agentv.stats.metrics import Metric, MetricValue
from tests.kits.pages import page_content
from tests.kits.project import Write, agentv

FUNCTIONS = """
import json
from pathlib import Path

def rate(results):
    return sum(result["score"] for result in results) / len(results)

def by_topic(results):
    topics = [result["metadata"]["topic"] for result in results]
    return {topic: topics.count(topic) for topic in topics}

def fails(results):
    return results[0]["nope"]

def leaves(results):
    raise SystemExit(3)

def none(results):
    pass

def count(results):
    return len(results)

def dump(results):
    Path("seen.json").write_text(json.dumps(results))
    return 0
"""


def a_case(eval_id: str, value: str = "hello", topic: str = "geo") -> dict[str, Any]:
    checks = [{"type": "contains", "value": value}]
    return {"id": eval_id, "expected_outcome": "x", "input": "x", "evaluators": checks, "metadata": {"topic": topic}}


def project(write: Write, *metrics: Any, cases: list[dict[str, Any]] | None = None) -> None:
    if cases is None:
        cases = [a_case("a"), a_case("b", "bye"), a_case("c", topic="art")]
    write("targets.yaml", "targets: [{name: default, provider: mock, response: hello}]\n")
    write("metrics.py", FUNCTIONS)
    named = []
    for metric in metrics:
        if isinstance(metric, str):
            named.append({"name": metric, "function": f"metrics.py:{metric}"})
        else:
            named.append(metric)
    write("m.yaml", json.dumps({"metrics": named, "evalcases": cases}))


def evaluated(*args: str, expect: int = 0) -> CompletedProcess[str]:
    ran = agentv("eval", "m.yaml", "--out", "o.jsonl", "--record", "record.json", *args)
    assert ran.returncode == expect, ran.stderr
    return ran


def recorded() -> dict[str, Any]:
    metrics: dict[str, Any] = json.loads(Path("record.json").read_text()).get("metrics", {})
    return metrics


def test_metrics_are_in_the_summary_and_in_the_record(write: Write) -> None:
    project(write, "rate", "by_topic")
    ran = evaluated()
    assert ran.stdout.partition("METRICS\n")[2].splitlines()[:4] == [
        "  name          value  95% interval",
        "  rate          0.667  0.000 to 1.000",
        "  by_topic.geo  2.000",
        "  by_topic.art  1.000",
    ]
    found = recorded()
    assert list(found) == ["rate", "by_topic.geo", "by_topic.art"]
    assert found["rate"] == {"value": pytest.approx(2 / 3), "ci_lower": 0.0, "ci_upper": 1.0}
    assert found["by_topic.art"] == {"value": 1.0, "ci_lower": None, "ci_upper": None}


def test_metrics_are_in_the_data_of_the_report(write: Write) -> None:
    project(write, "count")
    evaluated("--report", "page.html")
    row = b'"metrics":[{"name":"count","value":"3.000","interval":"3.000 to 3.000"}]'
    assert row in page_content("page.html")


def test_the_function_gets_plain_mappings_of_all_results(write: Write) -> None:
    project(write, {"name": "seen", "function": "metrics.py:dump", "interval": False})
    evaluated("--trials", "2")
    written = [json.loads(line) for line in Path("o.jsonl").read_text().splitlines()]
    assert json.loads(Path("seen.json").read_text()) == written
    assert recorded() == {"seen": {"value": 0.0, "ci_lower": None, "ci_upper": None}}


def test_a_sidecar_has_metrics_too(write: Write) -> None:
    project(write, "rate")
    write("s.jsonl", [a_case("a")])
    write("s.yaml", "metrics: [{name: cases, function: 'metrics.py:count'}]\n")
    assert agentv("eval", "s.jsonl", "--out", "o.jsonl", "--record", "record.json").returncode == 0
    assert recorded()["cases"]["value"] == 1


def test_a_resumed_run_covers_all_results(write: Write) -> None:
    project(write, "count")
    evaluated("--limit", "2")
    assert recorded()["count"]["value"] == 2
    evaluated("--resume")
    assert recorded()["count"]["value"] == 3


def test_two_files_with_a_metric_of_the_same_name(write: Write) -> None:
    project(write, "count")
    write("n.yaml", Path("m.yaml").read_text())
    assert agentv("eval", "m.yaml", "n.yaml", "--out", "o.jsonl", "--record", "record.json").returncode == 0
    assert [name.rpartition("/")[2] for name in recorded()] == ["m.yaml:count", "n.yaml:count"]
    compared = json.loads(agentv("compare", "o.jsonl", "o.jsonl").stdout)["metrics"]
    assert [name.rpartition("/")[2] for name in compared] == ["m.yaml:count", "n.yaml:count"]
    assert {metric["value2"] for metric in compared.values()} == {3.0}


@pytest.mark.parametrize(
    ("function", "message"),
    [
        ("fails", "warning: metric 'fails': metrics.py:13 in fails: KeyError: 'nope'"),
        ("leaves", "warning: metric 'leaves': metrics.py:16 in leaves: SystemExit: 3"),
        (
            "none",
            "warning: metric 'none': the function returned None"
            " (return a finite number, or a mapping of finite numbers)",
        ),
    ],
)
def test_a_function_that_fails_is_a_warning_and_costs_nothing(write: Write, function: str, message: str) -> None:
    project(write, function, "count")
    ran = evaluated()
    assert message in ran.stderr
    assert "Traceback" not in ran.stderr
    assert list(recorded()) == ["count"]
    assert len(Path("o.jsonl").read_text().splitlines()) == 3


@pytest.mark.parametrize(
    ("metric", "message"),
    [
        ("rat", "m.yaml:1:30: metric 'rat': metrics.py has no function 'rat'\nhint: did you mean 'rate'?"),
        (
            {"name": "x", "function": "gone.py:x"},
            "m.yaml:1:28: metric 'x': gone.py cannot be loaded: no such file",
        ),
        ({"function": "metrics.py:rate"}, "m.yaml:1:14: metrics[0]: missing name"),
        ({"name": "x", "function": "metrics.py:rate", "intervall": False}, "metrics[0].intervall: unknown field"),
        ({"name": "x", "function": "metrics.py:rate", "interval": 3}, "expected a boolean, got an integer"),
    ],
    ids=range(5),
)
def test_an_invalid_metric_stops_the_run_before_any_case(write: Write, metric: Any, message: str) -> None:
    project(write, metric)
    ran = evaluated(expect=2)
    assert f"error: {message}" in ran.stderr or f": {message}" in ran.stderr
    assert not Path("o.jsonl").exists()
    assert message.splitlines()[0] in agentv("validate", "m.yaml").stdout.replace("error: ", "")


def test_a_module_that_cannot_be_imported_stops_the_run(write: Write) -> None:
    project(write, "rate")
    write("metrics.py", "def rate(results): return 1\nboom\n")
    assert "m.yaml:1:31: metric 'rate': metrics.py cannot be loaded: metrics.py:2" in evaluated(expect=2).stderr


def test_metrics_of_the_same_name_in_a_file_are_an_error(write: Write) -> None:
    project(write, "rate", "rate")
    assert "duplicate metric 'rate'\nhint: use unique names" in evaluated(expect=2).stderr


def test_compare_resamples_pairs_with_the_current_functions(write: Write) -> None:
    project(write, "count", cases=[a_case(name) for name in "abc"])
    evaluated()
    Path("o.jsonl").rename("before.jsonl")
    project(write, "count", cases=[a_case("a", "bye"), a_case("b"), a_case("c"), a_case("new")])
    evaluated()
    project(write, "rate")

    ran = agentv("compare", "before.jsonl", "o.jsonl")
    found = json.loads(ran.stdout)["metrics"]
    assert found == {
        "rate": {
            "value1": 1.0,
            "value2": pytest.approx(2 / 3),
            "delta": {"value": pytest.approx(-1 / 3), "ci_lower": -1.0, "ci_upper": 0.0},
        }
    }
    table = agentv("compare", "before.jsonl", "o.jsonl", "--format", "table").stdout
    assert "metric   A       B       Δ        95% CI\n" in table
    assert "rate     1.000   0.667   −0.333   −1.000 to 0.000\n" in table
    assert agentv("report", "before.jsonl", "o.jsonl", "--out", "page.html").returncode == 0
    row = '"metrics":[{"name":"rate","value1":"1.000","value2":"0.667","delta":"−0.333","interval":"−1.000 to 0.000"}]'
    assert row.encode() in page_content("page.html")
    assert "| rate | 1.000 | 0.667 |" in agentv("compare", "before.jsonl", "o.jsonl", "--format", "markdown").stdout


def test_compare_covers_the_selected_cases(write: Write) -> None:
    project(write, "count")
    evaluated()
    ran = agentv("compare", "o.jsonl", "o.jsonl", "--filter", "metadata.topic:geo")
    assert json.loads(ran.stdout)["metrics"]["count"]["value1"] == 2


@pytest.mark.parametrize("is_absolute", [False, True])
def test_compare_runs_no_code_that_results_name_outside_of_the_project(
    write: Write, monkeypatch: pytest.MonkeyPatch, is_absolute: bool
) -> None:
    project(write, "count")
    evaluated()
    write("mine/.git/HEAD", "ref: refs/heads/main\n")
    file = "../m.yaml"
    if is_absolute:
        file = str(Path("m.yaml").absolute())
    named = Path("o.jsonl").read_text().replace('"file":"m.yaml"', json.dumps({"file": file})[1:-1])
    write("mine/o.jsonl", named)
    write("metrics.py", "raise SystemExit('called')\n")
    monkeypatch.chdir("mine")
    ran = agentv("compare", "o.jsonl", "o.jsonl")
    assert ran.returncode == 0
    assert "metrics" not in json.loads(ran.stdout)
    message = f"warning: the metrics of {file} are not computed: this file is outside of the project"
    assert message in ran.stderr


def test_compare_without_metrics_has_none(write: Write) -> None:
    project(write, "rate")
    evaluated()
    project(write)
    assert "metrics" not in json.loads(agentv("compare", "o.jsonl", "o.jsonl").stdout)
    project(write, "fails")
    ran = agentv("compare", "o.jsonl", "o.jsonl")
    assert "metrics" not in json.loads(ran.stdout)
    assert "warning: metric 'fails': metrics.py:13 in fails: KeyError: 'nope'" in ran.stderr


# ---- several files of one run ----


def run_in_shards(write: Write, *metrics: Any) -> list[str]:
    """Run four cases in two shards, and return the names of their files."""
    project(write, *metrics, cases=[a_case(f"c{number}") for number in range(4)])
    files = ["1.jsonl", "2.jsonl"]
    for number, file in enumerate(files, 1):
        ran = agentv("eval", "m.yaml", "--shard", f"{number}/2", "--out", file)
        assert ran.returncode == 0, ran.stderr
    return files


def test_merge_computes_the_metrics_of_the_whole_run(write: Write) -> None:
    files = run_in_shards(write, "count", "fails")
    ran = agentv("merge", *files, "--out", "merged.jsonl")
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.partition("METRICS\n")[2].splitlines()[:2] == [
        "  name   value  95% interval",
        "  count  4.000  4.000 to 4.000",
    ]
    assert "warning: metric 'fails': metrics.py:13 in fails: KeyError: 'nope'" in ran.stderr


def test_reports_of_shards_and_of_merged_files_have_the_metrics_of_the_whole_run(write: Write) -> None:
    files = run_in_shards(write, "count")
    assert agentv("merge", *files, "--out", "merged.jsonl").returncode == 0
    for names in (files, ["merged.jsonl"]):
        assert agentv("report", *names, "--out", "page.html").returncode == 0
        row = b'"metrics":[{"name":"count","value":"4.000","interval":"4.000 to 4.000"}]'
        assert row in page_content("page.html")


def test_a_single_shard_has_the_metrics_of_its_record(write: Write) -> None:
    files = run_in_shards(write, "count")
    Path("m.yaml").unlink()
    assert agentv("report", files[0], "--out", "page.html").returncode == 0
    loaded = load_results(files[0])
    count = len(loaded.results)
    assert loaded.metrics["count"].value == count
    assert f'"name":"count","value":"{count:.3f}"'.encode() in page_content("page.html")


def test_load_results_has_the_metrics_of_the_whole_run(write: Write) -> None:
    files = run_in_shards(write, "count")
    assert agentv("merge", *files, "--out", "merged.jsonl").returncode == 0
    assert load_results(files).metrics["count"].value == 4
    assert load_results("merged.jsonl").metrics["count"].value == 4
    first = load_results("1.jsonl")
    assert first.metrics["count"].value == len(first.results)


def test_merge_says_if_the_eval_file_is_gone(write: Write, caplog: pytest.LogCaptureFixture) -> None:
    files = run_in_shards(write, "count")
    Path("m.yaml").unlink()
    ran = agentv("merge", *files, "--out", "merged.jsonl")
    assert ran.returncode == 0
    assert "METRICS" not in ran.stdout
    message = "metrics of m.yaml are not computed: no such eval file in this project"
    assert f"note: {message}\n" in ran.stderr
    assert load_results(files).metrics == {}
    assert message in caplog.messages


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0.000"),
        (-0.0, "0.000"),
        (-0.5, "−0.500"),
        (0.00042, "0.00042"),
        (-1e-9, "−1e-09"),
        (12345.6, "12,346"),
        (1e19, "1e+19"),
    ],
)
def test_values_keep_their_size_and_sign(value: float, text: str) -> None:
    assert format_value(value) == text
    assert format_difference(value) == (f"+{text}" if value > 0 else text)


# ---- the computation ----


def mean_score(results: list[dict[str, Any]]) -> Any:
    return sum(result["score"] for result in results) / len(results)


def cases_of(scores: list[float], trials: int = 1) -> dict[Any, list[dict[str, Any]]]:
    return {number: [{"score": score}] * trials for number, score in enumerate(scores)}


def test_the_trials_of_a_case_are_drawn_together() -> None:
    metric = Metric("mean", mean_score)
    scores = [0.0, 1.0] * 20
    assert compute(metric, cases_of(scores, trials=5)) == compute(metric, cases_of(scores))


def test_intervals_are_the_same_in_every_run() -> None:
    metric = Metric("mean", mean_score)
    value = compute(metric, cases_of([0.0, 1.0] * 20))["mean"]
    assert value.value == 0.5
    assert value.ci_lower == pytest.approx(0.35, abs=0.03)
    assert value.ci_upper == pytest.approx(0.65, abs=0.03)
    assert compute(metric, cases_of([0.0, 1.0] * 20))["mean"] == value


def test_there_is_no_interval_for_very_many_cases(caplog: pytest.LogCaptureFixture) -> None:
    metric = Metric("n", len)
    found = compute(metric, cases_of([1.0] * (MAX_CASES + 1)))
    assert found == {"n": MetricValue(value=MAX_CASES + 1)}
    assert caplog.messages == ["metric 'n': no interval for 20,001 cases: it is computed for at most 20,000"]


def test_a_function_that_fails_for_a_resample_has_a_value_without_an_interval(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def share(results: list[dict[str, Any]]) -> Any:
        return 1 / sum(result["score"] for result in results)

    assert compute(Metric("share", share), cases_of([1.0, 0.0])) == {"share": MetricValue(value=1.0)}
    (message,) = caplog.messages
    assert message.endswith(
        "ZeroDivisionError: float division by zero in a resample of the cases, so there is no interval"
    )


def test_a_value_that_only_one_run_has_is_omitted() -> None:
    def by_score(results: list[dict[str, Any]]) -> dict[str, int]:
        return {str(result["score"]): 1 for result in results}

    found = compute_difference(Metric("n", by_score), cases_of([1.0, 0.0]), cases_of([1.0, 0.5]))
    assert list(found) == ["n.1.0"]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (None, "the function returned None"),
        (float("nan"), "the function returned nan"),
        (float("-inf"), "the function returned -inf"),
        (10**400, "the function returned a number that is too large"),
        ("0.5", "the function returned a str"),
        ([1], "the function returned a list"),
        ({"k": "v"}, "the value of 'k' is a str"),
        ({"ok": 1, "k": float("nan")}, "the value of 'k' is nan"),
        ({"k": {"deep": 1}}, "the value of 'k' is a mapping with values that are not numbers"),
        ({("a", 1): 1}, "the function returned a mapping with values that are not numbers, or with keys that are not"),
    ],
    ids=repr,
)
def test_only_finite_numbers_are_accepted(value: Any, message: str) -> None:
    with pytest.raises(MetricFailed) as failed:
        metric_values(Metric("x", lambda _results: value), [])
    assert failed.value.message.startswith(f"metric 'x': {message}")
    assert failed.value.hint == "return a finite number, or a mapping of finite numbers"


def test_an_async_function_is_rejected_without_a_python_warning() -> None:
    async def rate(_results: list[dict[str, Any]]) -> float:
        return 1.0

    with pytest.raises(MetricFailed, match="metric 'x': the function is async"):
        metric_values(Metric("x", rate), [])


def test_booleans_are_numbers() -> None:
    assert metric_values(Metric("x", lambda _results: True), []) == {"x": 1.0}


def test_numpy_numbers_are_numbers() -> None:
    class Scalar:
        """Converts itself to a number of Python as numpy's scalars do."""

        def tolist(self) -> float:
            return 0.5

    assert metric_values(Metric("x", lambda _results: Scalar()), []) == {"x": 0.5}
    assert metric_values(Metric("x", lambda _results: {"k": Scalar()}), []) == {"x.k": 0.5}
