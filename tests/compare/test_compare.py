"""`agentv compare`: the seed's contract, its exactness, bad input, formats and gates."""

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from agentv import AgentvError, compare_results
from tests.kits.comparisons import compared, line, refused, save
from tests.kits.processes import start_process
from tests.kits.project import Write, agentv


def many(count: int, score: float, step: float = 0.0) -> dict[str, float]:
    return {f"case-{number}": score + step * (number % 3) for number in range(count)}


def test_basic_comparison(write: Write) -> None:
    """Scenario: Basic comparison."""
    save(write, "one.jsonl", {"case-1": 0.8, "case-2": 0.5, "case-3": 0.9, "gone": 1, "gone-2": 1})
    save(write, "two.jsonl", {"case-3": 0.2, "new": 0.3, "case-1": 0.9, "case-2": 0.55})
    found = compared("one.jsonl", "two.jsonl", code=1)
    assert list(found)[:3] == ["matched", "unmatched", "summary"]
    assert found["matched"] == [
        {"eval_id": "case-1", "score1": 0.8, "score2": 0.9, "delta": 0.1, "outcome": "win"},
        {"eval_id": "case-2", "score1": 0.5, "score2": 0.55, "delta": 0.05, "outcome": "tie"},
        {"eval_id": "case-3", "score1": 0.9, "score2": 0.2, "delta": -0.7, "outcome": "loss"},
    ]
    assert found["unmatched"] == {"file1": 2, "file2": 1}
    wanted = {"total": 6, "matched": 3, "wins": 1, "losses": 1, "ties": 1}
    assert found["summary"] | wanted == found["summary"]
    assert found["summary"]["meanDelta"] == pytest.approx(-0.55 / 3)


def test_configurable_threshold(write: Write) -> None:
    """Scenario: Configurable threshold."""
    save(write, "one.jsonl", {"up": 0.5, "down": 0.5, "same": 0.5})
    save(write, "two.jsonl", {"up": 0.55, "down": 0.45, "same": 0.5})
    for threshold, outcomes in (
        ("0.1", ["tie", "tie", "tie"]),
        ("0.05", ["win", "loss", "tie"]),
        ("0", ["win", "loss", "tie"]),
    ):
        found = compared("one.jsonl", "two.jsonl", "--threshold", threshold)
        assert [pair["outcome"] for pair in found["matched"]] == outcomes


def test_exit_code_indicates_comparison_result(write: Write) -> None:
    """Scenario: Exit code indicates comparison result."""
    save(write, "low.jsonl", many(3, 0.4))
    save(write, "high.jsonl", many(3, 0.6))
    save(write, "other.jsonl", {"case-0": 0.6, "case-1": 0.8, "case-2": 0.4})
    assert agentv("compare", "low.jsonl", "high.jsonl").returncode == 0
    assert agentv("compare", "high.jsonl", "low.jsonl").returncode == 1
    assert agentv("compare", "high.jsonl", "other.jsonl").returncode == 0


def test_deltas_come_from_the_decimal_text(write: Write) -> None:
    pairs = {
        "a": (0.8, 0.9),
        "b": (0.1, 0.3),
        "c": (0.7, 0.6),
        "d": (0.123456789012, 0.2),
        "e": (0.6666666666666666, 1),
    }
    save(write, "one.jsonl", {eval_id: before for eval_id, (before, _) in pairs.items()})
    save(write, "two.jsonl", {eval_id: after for eval_id, (_, after) in pairs.items()})
    found = compared("one.jsonl", "two.jsonl")
    assert [pair["delta"] for pair in found["matched"]] == [0.1, 0.2, -0.1, 0.076543210988, 0.3333333333333334]


def test_deltas_that_cancel_out_are_no_difference(write: Write) -> None:
    save(write, "one.jsonl", {"a": 0.3, "b": 0.5, "c": 0.7})
    save(write, "two.jsonl", {"a": 0.2, "b": 0.3, "c": 1.0})
    for files in (["one.jsonl", "two.jsonl"], ["two.jsonl", "one.jsonl"]):
        assert compared(*files, code=0)["summary"]["meanDelta"] == 0


def test_a_repeated_id_counts_with_its_mean_score(write: Write) -> None:
    save(write, "one.jsonl", [("a", 0.1), ("b", 0.5), ("a", 0.2), ("a", 0.3)])
    save(write, "two.jsonl", [("b", 0.7), ("a", 0.1), ("a", 0.2), ("new", 1), ("new", 0)])
    found = compared("one.jsonl", "two.jsonl")
    assert [(pair["eval_id"], pair["score1"], pair["score2"], pair["delta"]) for pair in found["matched"]] == [
        ("a", 0.2, 0.15, -0.05),
        ("b", 0.5, 0.7, 0.2),
    ]
    assert found["summary"]["repeats"] == {"file1": 2, "file2": 2}
    assert (found["summary"]["total"], found["unmatched"]) == (3, {"file1": 0, "file2": 1})


def test_lines_with_and_without_more_fields_compare_alike(write: Write) -> None:
    scores = [(f"case-{number % 4000}", number % 11 / 10) for number in range(5000)]
    shuffled = [(eval_id, 1 - score) for eval_id, score in reversed(scores)]
    bare = [save(write, "a.jsonl", scores), save(write, "b.jsonl", shuffled)]
    full = [save(write, "c.jsonl", scores, attempt=1), save(write, "d.jsonl", shuffled, verdict=None)]
    mixed = [write(f"{path.name}.mixed", path.read_text() + line("last", 1, attempt=2)) for path in bare]
    expected = compare_results(*bare)
    for files in (full, mixed):
        found = compare_results(*files)
        assert list(found.matched)[: len(expected.matched)] == list(expected.matched)
        assert found.summary.repeats == expected.summary.repeats
        assert found.statistics.verdict == expected.statistics.verdict
    assert expected.summary.repeats.file1 == expected.summary.repeats.file2 == 1000
    assert [source.retried for source in compare_results(*mixed).files] == [1, 1]
    assert compare_results(*full).statistics == expected.statistics


def test_yaml_results_are_read_too(write: Write) -> None:
    write("agent.py", "def answer(question):\n    return question\n")
    write(".agentv/targets.yaml", "targets:\n  - {name: default, provider: python, function: agent.py:answer}\n")
    write(
        "evals.yaml",
        "evalcases:\n"
        "  - {id: a, outcome: x, input: yes it is, execution: {evaluators: [{type: contains, value: yes it}]}}\n"
        "  - {id: b, outcome: x, input: 'no\\nit is not', execution: {evaluators: [{type: contains, value: yes it}]}}\n",
    )
    for out in ("one.yaml", "two.jsonl"):
        assert agentv("eval", "evals.yaml", "--out", out).returncode == 0
    found = compared("one.yaml", "two.jsonl")
    assert [(pair["eval_id"], pair["score1"], pair["score2"]) for pair in found["matched"]] == [
        ("a", 1, 1),
        ("b", 0, 0),
    ]
    assert found["changed"]["cases"] == found["changed"]["unknown"] == 0


def test_results_of_a_pipe_are_read(write: Write) -> None:
    save(write, "one.jsonl", {"a": 0.5})
    os.mkfifo("pipe")
    with start_process([sys.executable, "-c", "open('pipe', 'w').write(open('one.jsonl').read())"]) as writer:
        try:
            assert compared("one.jsonl", "pipe")["summary"]["matched"] == 1
        finally:
            writer.kill()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "b.jsonl: the file contains no results"),
        ("\n \n", "b.jsonl: the file contains no results"),
        (line("a", 1) + '{"eval_id": "b", "sco', "b.jsonl:2: the last line is truncated"),
        (line("a", 1) + "\n" + json.dumps({"score": 1}) + "\n", "b.jsonl:3:1: missing eval_id"),
        (line("a", "0.9"), "b.jsonl:1:18: score: "),
        ('{"eval_id": "a", "score": NaN}\n', "b.jsonl:1:1: Invalid JSON: NaN is not a JSON value"),
        ('{"eval_id": "a", "score": 1e999}\n', "b.jsonl:1:"),
        (line("a", 1.5), "b.jsonl:1:18: score: "),
        (line("a", -0.1), "b.jsonl:1:18: score: "),
        (line("a", None), "b.jsonl:1:18: score: "),
        (line("a", True), "b.jsonl:1:18: score: "),
        (line("", 1), "b.jsonl:1:2: eval_id: "),
        ('{"eval_id": "a"}\n', "b.jsonl:1:1: missing score"),
        ("[1]\n", "b.jsonl:1:1: "),
        ("not json\n", "b.jsonl:1:1: Invalid JSON"),
    ],
)
def test_invalid_lines_are_reported_with_their_numbers(write: Write, content: str, words: str) -> None:
    save(write, "a.jsonl", {"a": 1})
    write("b.jsonl", content)
    assert words in refused("a.jsonl", "b.jsonl")
    with pytest.raises(AgentvError) as caught:
        compare_results("a.jsonl", "b.jsonl")
    assert str(caught.value).startswith(words.partition(": Line")[0])


def test_invalid_lines_in_both_files_are_reported_together(write: Write) -> None:
    good = "".join(line(f"case-{number}", 0.5) for number in range(20_000))
    write("a.jsonl", good + line("x", 2) + line("y", "0.5"))
    write("b.jsonl", good + "\n\n" + line("z", 0.5)[:-8])
    said = refused("a.jsonl", "b.jsonl")
    assert "a.jsonl:20001:18: score" in said
    assert "a.jsonl:20002:18: score" in said
    assert "b.jsonl:20003: the last line is truncated" in said


def test_invalid_yaml_results_are_reported_with_their_lines(write: Write) -> None:
    save(write, "a.jsonl", {"a": 1})
    write("b.yaml", "---\neval_id: a\nscore: 1\n...\n---\neval_id: b\nscore: high\n...\n---\neval_id: [\n")
    said = refused("a.jsonl", "b.yaml")
    assert "b.yaml:7:1: score: " in said
    assert "b.yaml:11:1: Invalid YAML: " in said.partition("b.yaml:7:1")[2]


def test_files_that_cannot_be_read(write: Write) -> None:
    save(write, "a.jsonl", {"a": 1})
    Path("folder").mkdir()
    save(write, "folder/eval_1.jsonl", {"a": 1})
    said = refused("a.jsonl", "missing.jsonl", "folder")
    assert "missing.jsonl: no such file" in said
    assert "folder: this is a folder, not a results file" in said
    assert "such as folder/eval_1.jsonl" in said
    secret = save(write, "secret.jsonl", {"a": 1})
    if os.geteuid() != 0:
        secret.chmod(0)
        assert "no permission" in refused("a.jsonl", "secret.jsonl")


def test_files_without_a_common_id(write: Write) -> None:
    save(write, "a.jsonl", {"apple": 1})
    save(write, "b.jsonl", {"pear": 1})
    said = refused("a.jsonl", "b.jsonl")
    assert "no eval_id occurs in both a.jsonl and b.jsonl" in said
    assert "'apple' and 'pear'" in said


def test_comparing_a_file_with_itself_is_a_warning(write: Write) -> None:
    save(write, "a.jsonl", {"a": 1})
    Path("link.jsonl").symlink_to("a.jsonl")
    for name in ("a.jsonl", "link.jsonl"):
        ran = agentv("compare", "a.jsonl", name)
        assert ran.returncode == 0
        assert "are the same file: the comparison is meaningless" in ran.stderr


@pytest.mark.parametrize("value", ["-1", "NaN", "abc", "inf", ""])
@pytest.mark.parametrize("option", ["--threshold", "--margin"])
def test_invalid_thresholds(write: Write, option: str, value: str) -> None:
    save(write, "a.jsonl", {"a": 1})
    said = refused("a.jsonl", "a.jsonl", option, value)
    assert f"invalid value for '{option}'" in said


def test_one_file_alone_is_not_enough(write: Write) -> None:
    save(write, "a.jsonl", {"a": 1})
    assert "expected two results files" in refused("a.jsonl")


def test_thresholds_from_python(write: Write) -> None:
    save(write, "a.jsonl", {"a": 1})
    for value in (-1.0, float("nan"), float("inf")):
        with pytest.raises(AgentvError, match="threshold must be a number of at least 0"):
            compare_results("a.jsonl", "a.jsonl", threshold=value)


def test_comparing_from_python(write: Write) -> None:
    save(write, "a.jsonl", {"a": 0.8, "b": 0.1})
    save(write, "b.jsonl", {"b": 0.1, "a": 0.9, "c": 1})
    found = compare_results(Path("a.jsonl"), "b.jsonl", threshold=0.1)
    assert found.matched[0].delta == found["matched"][0]["delta"] == 0.1
    assert [pair.outcome for pair in found.matched] == ["win", "tie"]
    assert [pair.eval_id for pair in found.matched[:1]] == ["a"]
    assert found.summary.meanDelta == found.summary["meanDelta"] == 0.05
    assert found.unmatched.file2 == 1
    assert found.statistics.verdict == "cannot tell"
    with pytest.raises(KeyError):
        found["nothing"]


def test_the_verdict_goes_to_stderr_and_quiet_is_quiet(write: Write) -> None:
    save(write, "a.jsonl", many(30, 0.5, 0.1))
    save(write, "b.jsonl", many(30, 0.6, 0.15))
    ran = agentv("compare", "a.jsonl", "b.jsonl")
    assert ran.stderr.startswith("BETTER: Δ +0.150, 95% CI [+0.1")
    assert json.loads(ran.stdout)["statistics"]["verdict"] == "better"
    assert agentv("compare", "a.jsonl", "b.jsonl", "--quiet").stderr == ""


def test_a_closed_pipe_is_not_an_error(write: Write) -> None:
    save(write, "a.jsonl", many(20_000, 0.5))
    ran = subprocess.run(
        f"{sys.executable} -m agentv compare a.jsonl a.jsonl --quiet | head -1",
        shell=True,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.stdout == "{\n"
    assert "Traceback" not in ran.stderr
    assert "BrokenPipe" not in ran.stderr


def test_out_replaces_stdout(write: Write) -> None:
    save(write, "a.jsonl", many(12, 0.5))
    ran = agentv("compare", "a.jsonl", "a.jsonl", "--out", "deep/report.json")
    assert ran.stdout == ""
    assert json.loads(Path("deep/report.json").read_text())["summary"]["matched"] == 12
    assert stat.S_IMODE(Path("deep/report.json").stat().st_mode) == 0o644
    assert os.listdir("deep") == ["report.json"]
    assert "--out is one of the results files" in refused("a.jsonl", "a.jsonl", "--out", "a.jsonl")
    Path("taken").mkdir()
    assert "taken: this is a folder" in refused("a.jsonl", "a.jsonl", "--out", "taken")
    assert "a.jsonl/x: cannot be written" in refused("a.jsonl", "a.jsonl", "--out", "a.jsonl/x")
    assert agentv("compare", "a.jsonl", "a.jsonl", "--out", "-").stdout.startswith("{\n")
    assert sorted(os.listdir()) == ["a.jsonl", "deep", "taken"]


def test_control_characters_in_ids_are_escaped(write: Write) -> None:
    odd = 'a"b\\c\nd\x1b[31m|`x` ☃ \u2028'
    save(write, "a.jsonl", {odd: 1.0})
    save(write, "b.jsonl", {odd: 0.5})
    found = compared("a.jsonl", "b.jsonl", code=1)
    assert found["matched"][0]["eval_id"] == odd
    for form in ("table", "markdown"):
        ran = agentv("compare", "a.jsonl", "b.jsonl", "--format", form)
        assert "\x1b" not in ran.stdout
        assert "\\x1b[31m" in ran.stdout


def test_a_truncated_yaml_document_is_not_a_result(write: Write) -> None:
    save(write, "a.jsonl", {"a": 1, "b": 1})
    whole = "---\ntimestamp: '2026'\neval_id: a\nscore: 0.9\n...\n"
    write("b.yaml", whole + "---\ntimestamp: '2026'\neval_id: b\nscore: 0")
    assert "b.yaml:6: the last document is truncated" in refused("a.jsonl", "b.yaml")


def test_lines_with_too_deep_nesting_are_reported(write: Write) -> None:
    save(write, "a.jsonl", {"a": 1})
    write("b.jsonl", '{"eval_id": "a", "score": 1, "x": ' + "[" * 5000 + "]" * 5000 + "}\n")
    assert "b.jsonl:1:1: " in refused("a.jsonl", "b.jsonl")


def test_file_names_that_are_not_utf8(write: Write) -> None:
    save(write, "a.jsonl", {"a": 1})
    Path(os.fsdecode(b"\xff.jsonl")).write_text(line("a", 1))
    ran = subprocess.run(
        [sys.executable, "-m", "agentv", "compare", "a.jsonl", b"\xff.jsonl"], capture_output=True, check=False
    )
    assert json.loads(ran.stdout)["files"][1]["path"] == "\ufffd.jsonl"


@pytest.mark.parametrize(("closed", "code"), [(">&-", 0), ("2>&-", 0)])
def test_closed_streams_are_not_an_error(write: Write, closed: str, code: int) -> None:
    save(write, "a.jsonl", {"a": 1})
    save(write, "b.jsonl", {"a": 1})
    ran = subprocess.run(
        f"{sys.executable} -m agentv compare a.jsonl b.jsonl {closed}",
        shell=True,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == code
    assert "broke" not in ran.stderr
    assert not ran.stdout or json.loads(ran.stdout)


def test_out_follows_symlinks_and_writes_to_pipes(write: Write) -> None:
    save(write, "a.jsonl", {"a": 1})
    write("real.json", "old")
    Path("link.json").symlink_to("real.json")
    compare = [sys.executable, "-m", "agentv", "compare", "a.jsonl", "a.jsonl", "--quiet", "--out"]
    assert subprocess.run([*compare, "link.json"], check=False).returncode == 0
    assert Path("link.json").is_symlink()
    assert json.loads(Path("real.json").read_text())["summary"]["matched"] == 1
    os.mkfifo("pipe")
    with start_process([*compare, "pipe"]) as writer:
        assert json.loads(Path("pipe").read_text())["summary"]["matched"] == 1
        assert writer.wait(60) == 0
    assert stat.S_ISFIFO(Path("pipe").stat().st_mode)
    old = os.umask(0o077)
    try:
        assert subprocess.run([*compare, "private.json"], check=False).returncode == 0
    finally:
        os.umask(old)
    assert stat.S_IMODE(Path("private.json").stat().st_mode) == 0o600


def test_invalid_arguments_from_python_are_explained(write: Write) -> None:
    save(write, "a.jsonl", {"a": 1})
    with pytest.raises(AgentvError, match="threshold must be a number of at least 0, not 'abc'"):
        compare_results("a.jsonl", "a.jsonl", threshold="abc")  # type: ignore[arg-type]
    with pytest.raises(AgentvError, match="by must be a metadata key, or one of evaluator, dataset, target"):
        compare_results("a.jsonl", "a.jsonl", by="")


@pytest.mark.parametrize("by", ["evaluators", ["lang", "evaluators"], ["evaluator", "lang", "evaluators"]])
def test_python_refuses_a_key_that_no_result_has(write: Write, by: str | list[str]) -> None:
    cases = [{"eval_id": "a", "score": 1, "metadata": {"lang": "en"}}, {"eval_id": "b", "score": 1, "vars": {"n": 1}}]
    write("a.jsonl", "".join(json.dumps(case) + "\n" for case in cases))
    with pytest.raises(AgentvError) as refused:
        compare_results("a.jsonl", "a.jsonl", by=by)
    known = "conversation_id, dataset, evaluator, lang, target, vars.n"
    assert refused.value.message == f"by: no result has 'evaluators'; known keys: {known}"
    assert refused.value.hint == "did you mean 'evaluator'?"
    assert compare_results("a.jsonl", "a.jsonl", by="lang").notes == ()
