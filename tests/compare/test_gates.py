"""The gates of `agentv compare`: the exit code and the line that explains it."""

from pathlib import Path
from typing import Any

import pytest

from tests.kits.comparisons import compared, line, save
from tests.kits.project import Write, a_case, agentv, flat

SAME = {f"c{number}": 0.5 + number % 3 / 10 for number in range(20)}
INTERVAL_GATES = ("ci", "noninferior")
STRICT_GATES = (*INTERVAL_GATES, "no-regressions")


def judged(*options: str, code: int) -> str:
    """Compare a.jsonl with b.jsonl, and return the last line on stderr."""
    ran = agentv("compare", "a.jsonl", "b.jsonl", *options)
    assert ran.returncode == code, ran.stderr
    return ran.stderr.splitlines()[-1]


def rows(write: Write, name: str, entries: list[dict[str, Any]]) -> None:
    write(name, "".join(line(**entry) for entry in entries))


# ---- the exit code is explained ----


def test_a_lower_mean_without_evidence_is_explained(write: Write) -> None:
    save(write, "a.jsonl", SAME)
    save(write, "b.jsonl", {**SAME, "c0": 0.4})
    expected = "exit 1: the mean of B is lower (-0.005); use --gate noninferior to require evidence"
    assert judged(code=1) == expected
    assert judged("--format", "table", code=1) == expected
    judged("--gate", "noninferior", code=0)
    assert agentv("compare", "a.jsonl", "b.jsonl", "--quiet").stderr == ""


def test_a_very_small_difference_is_not_shown_as_zero(write: Write) -> None:
    save(write, "a.jsonl", SAME)
    save(write, "b.jsonl", {**SAME, "c0": 0.499})
    assert "the mean of B is lower (-5e-05);" in judged(code=1)


def test_a_lower_mean_with_evidence_needs_no_explanation(write: Write) -> None:
    save(write, "a.jsonl", SAME)
    save(write, "b.jsonl", {name: score - 0.2 for name, score in SAME.items()})
    assert not judged(code=1).startswith("exit")
    assert not judged("--gate", "ci", code=1).startswith("exit")


def test_worse_within_the_margin_is_explained(write: Write) -> None:
    save(write, "a.jsonl", SAME)
    save(write, "b.jsonl", {name: score - 0.01 for name, score in SAME.items()})
    assert judged("--gate", "noninferior", code=0) == "exit 0: B is worse, but by less than the margin of 0.02"


def test_worse_without_a_regression_is_explained(write: Write) -> None:
    save(write, "a.jsonl", dict.fromkeys(SAME, 1.0))
    save(write, "b.jsonl", dict.fromkeys(SAME, 0.9))
    expected = "exit 0: B is worse, but every case that passed in A still passes"
    assert judged("--gate", "no-regressions", code=0) == expected


@pytest.mark.parametrize("gate", ["mean", *STRICT_GATES])
def test_runs_without_a_scored_pair_can_be_compared(write: Write, gate: str) -> None:
    broken = [{"eval_id": name, "score": 0.0, "error": "it broke"} for name in SAME]
    rows(write, "a.jsonl", broken)
    rows(write, "b.jsonl", broken)
    code = 0
    if gate in INTERVAL_GATES:
        code = 3
    judged("--gate", gate, code=code)


def test_a_lower_mean_because_of_an_errored_case_is_explained(write: Write) -> None:
    entries = [{"eval_id": name, "score": 1.0} for name in SAME]
    rows(write, "a.jsonl", entries)
    rows(write, "b.jsonl", [{**entries[0], "score": 0.0, "error": "it broke"}, *entries[1:]])
    assert "the mean of B is lower (-0.050, errored cases included);" in judged(code=1)


@pytest.mark.parametrize("gate", ["mean", *INTERVAL_GATES])
def test_equal_scores_with_fewer_passes_are_explained(write: Write, gate: str) -> None:
    """As when a required check is missed, which hardly changes the score."""
    save(write, "a.jsonl", dict.fromkeys(SAME, 0.9), verdict="pass")
    save(write, "b.jsonl", dict.fromkeys(SAME, 0.9), verdict="fail")
    ran = agentv("compare", "a.jsonl", "b.jsonl", "--gate", gate)
    assert ran.returncode == 0
    printed = flat(ran.stderr)
    assert "note: no score differs, but verdicts do" in printed
    lower = "the pass rate is lower (exact McNemar): 20 cases no longer pass, 0 pass now; the verdict is about scores"
    assert f"note: {lower}" in printed
    assert "could still differ" not in printed
    expected = "exit 0: the gate compares scores, which are not worse; 20 cases no longer pass"
    assert f"{expected}; use --gate no-regressions to require that they pass" in printed
    judged("--gate", "no-regressions", code=1)


def test_an_undecided_interval_is_explained(write: Write) -> None:
    save(write, "a.jsonl", SAME)
    save(write, "b.jsonl", {**SAME, "c0": 0.0, "c1": 0.9})
    last = judged("--gate", "noninferior", code=3)
    assert last.startswith("exit 3: undecided: the confidence interval of the difference, [-0.0")
    assert last.endswith("extends below the margin of -0.02")
    assert judged("--gate", "ci", code=3).endswith("extends below 0")


def test_too_few_pairs_are_the_reason_of_an_undecided_gate(write: Write) -> None:
    save(write, "a.jsonl", {"a": 1.0, "b": 1.0})
    save(write, "b.jsonl", {"a": 1.0, "b": 1.0})
    last = judged("--gate", "noninferior", code=3)
    assert last == "exit 3: undecided: too few cases to decide: 2 pairs, at least 10 needed"


def test_of_several_files_the_one_that_decides_is_named(write: Write) -> None:
    save(write, "a.jsonl", SAME)
    save(write, "b.jsonl", SAME)
    save(write, "c.jsonl", {**SAME, "c0": 0.4})
    ran = agentv("compare", "a.jsonl", "b.jsonl", "c.jsonl")
    assert ran.returncode == 1
    assert ran.stderr.splitlines()[-1].startswith("exit 1: c.jsonl: the mean of B is lower (-0.005)")
    assert "exit 1: b.jsonl" not in ran.stderr


@pytest.mark.parametrize(("value", "code"), [("pass", 0), ("fail", 1), ("3", 3)])
def test_the_exit_code_of_an_undecided_gate_is_an_option(write: Write, value: str, code: int) -> None:
    save(write, "a.jsonl", {"a": 1.0})
    save(write, "b.jsonl", {"a": 1.0})
    last = judged("--gate", "ci", "--undecided", value, code=code)
    assert last.startswith(f"exit {code}: undecided: too few cases to decide: 1 pair")


def test_undecided_does_not_change_other_exit_codes(write: Write) -> None:
    save(write, "a.jsonl", SAME)
    save(write, "b.jsonl", {name: score - 0.2 for name, score in SAME.items()})
    judged("--gate", "noninferior", "--undecided", "pass", code=1)
    judged("--undecided", "pass", code=1)


def test_an_unknown_value_of_undecided_is_rejected(write: Write) -> None:
    save(write, "a.jsonl", SAME)
    ran = agentv("compare", "a.jsonl", "a.jsonl", "--undecided", "passed")
    assert ran.returncode == 2
    assert "'passed' is not one of 'pass', 'fail', '3'" in ran.stderr
    assert "did you mean 'pass'?" in ran.stderr


# ---- cases that one run lacks ----


@pytest.mark.parametrize("gate", STRICT_GATES)
def test_a_case_that_only_b_has_never_fails_a_gate(write: Write, gate: str) -> None:
    save(write, "a.jsonl", SAME)
    save(write, "b.jsonl", {**SAME, "new": 0.0})
    judged("--gate", gate, code=0)
    assert compared("a.jsonl", "b.jsonl", "--gate", gate)["unmatched"] == {"file1": 0, "file2": 1}


@pytest.mark.parametrize("gate", STRICT_GATES)
def test_a_case_that_only_a_has_fails_a_gate(write: Write, gate: str) -> None:
    save(write, "a.jsonl", {**SAME, "gone": 0.5, "lost": 0.5})
    save(write, "b.jsonl", SAME)
    expected = "exit 1: B has no result for 2 cases of A: gone, lost; use --allow-missing to accept this"
    assert judged("--gate", gate, code=1) == expected
    assert judged("--gate", gate, "--undecided", "pass", code=1) == expected
    judged("--gate", gate, "--allow-missing", code=0)
    judged(code=0)


def test_a_long_list_of_missing_cases_is_shortened(write: Write) -> None:
    save(write, "a.jsonl", {**SAME, **{f"gone-{number}": 0.5 for number in range(8)}})
    save(write, "b.jsonl", SAME)
    assert "B has no result for 8 cases of A: gone-0, gone-1, gone-2, gone-3, gone-4 and 3 more;" in judged(
        "--gate", "ci", code=1
    )


def test_a_case_that_was_removed_from_the_eval_files_is_not_missing(write: Write) -> None:
    save(write, "a.jsonl", {**SAME, "gone": 0.5})
    save(write, "b.jsonl", SAME, file="evals/some.jsonl")
    write("evals/some.jsonl", [a_case(id=name) for name in SAME])
    judged("--gate", "noninferior", code=0)
    write("evals/some.jsonl", [a_case(id=name) for name in (*SAME, "gone")])
    assert "B has no result for 1 case of A: gone;" in judged("--gate", "noninferior", code=1)


def test_eval_files_are_relative_to_the_root_of_the_project(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    write(".git/HEAD", "")
    save(write, "sub/a.jsonl", {**SAME, "gone": 0.5})
    save(write, "sub/b.jsonl", SAME, file="evals/some.jsonl")
    write("evals/some.jsonl", [a_case(id=name) for name in SAME])
    monkeypatch.chdir("sub")
    judged("--gate", "noninferior", code=0)


def test_a_case_that_became_invalid_is_missing(write: Write) -> None:
    """A case without an expected outcome is skipped with a warning: B should have had it."""
    save(write, "a.jsonl", {**SAME, "gone": 0.5})
    save(write, "b.jsonl", SAME, file="some.jsonl")
    incomplete = a_case(id="gone")
    del incomplete["expected_outcome"]
    write("some.jsonl", [*(a_case(id=name) for name in SAME), incomplete])
    assert "B has no result for 1 case of A: gone;" in judged("--gate", "noninferior", code=1)


def test_a_file_whose_cases_a_function_yields_counts_as_containing_the_case(write: Write) -> None:
    """The function is not called to look a case up, nor to find the metrics of the file."""
    save(write, "a.jsonl", {**SAME, "gone": 0.5})
    save(write, "b.jsonl", SAME, file="some.yaml")
    write("some.yaml", "cases_from: some.py:cases\nmetrics: [{name: n, function: some.py:count}]\n")
    write(
        "some.py",
        "def cases():\n    open('called', 'w').close()\n    yield {}\ndef count(results): return len(results)\n",
    )
    said = judged("--gate", "noninferior", code=1)
    assert "B has no result for 1 case of A: gone;" in said
    assert not Path("called").exists()


@pytest.mark.parametrize("content", [None, "evalcases: {", "evalcases: [{id: 3}]"])
def test_an_eval_file_that_cannot_be_read_counts_as_containing_the_case(write: Write, content: str | None) -> None:
    save(write, "a.jsonl", {**SAME, "gone": 0.5})
    save(write, "b.jsonl", SAME, file="some.yaml")
    if content is not None:
        write("some.yaml", content)
    assert "B has no result for 1 case of A: gone;" in judged("--gate", "noninferior", code=1)


def test_a_missing_case_is_looked_up_by_dataset_if_its_id_is_shared(write: Write) -> None:
    def both(names: list[str]) -> list[dict[str, Any]]:
        more = {"file": "geo.jsonl"}
        return [{"eval_id": name, "score": 0.5, "dataset": "geo", **more} for name in names]

    shared = [{"eval_id": "c0", "score": 0.5, "dataset": "math"}]
    names = list(SAME)
    rows(write, "a.jsonl", [*both(names), *shared])
    rows(write, "b.jsonl", both(names))
    write("geo.jsonl", [a_case(id=name) for name in names])
    judged("--gate", "noninferior", code=0)


# ---- errors ----


@pytest.mark.parametrize("trouble", [{"error": "it broke"}, {"failure": "judge"}])
@pytest.mark.parametrize("gate", STRICT_GATES)
def test_a_gate_is_undecided_if_a_case_that_passed_is_errored(write: Write, gate: str, trouble: dict[str, str]) -> None:
    before = [{"eval_id": f"c{number}", "score": 0.8 + number % 2 / 10} for number in range(200)]
    after = [{**entry, "score": 1.0} for entry in before]
    rows(write, "a.jsonl", before)
    rows(write, "b.jsonl", after)
    judged("--gate", gate, code=0)
    after[3] |= {"score": 0.0, **trouble}
    rows(write, "b.jsonl", after)
    why = "1 case that passed in A could not be scored in B: c3"
    assert judged("--gate", gate, code=3) == f"exit 3: undecided: {why}"
    found = compared("a.jsonl", "b.jsonl", "--gate", gate, code=3)
    assert found["summary"]["errored"] == 1
    assert found["statistics"]["passes"]["lost"] == 0


MACHINE = {"score": 0.0, "error": "the machine has reached a limit", "failure": "machine"}


def test_a_machine_failure_is_errored_and_part_of_no_mean(write: Write) -> None:
    before = [{"eval_id": name, "score": score} for name, score in SAME.items()]
    rows(write, "a.jsonl", before)
    rows(write, "b.jsonl", [{**before[0], **MACHINE}, *before[1:]])
    found = compared("a.jsonl", "b.jsonl")
    assert found["summary"]["meanDelta"] == 0
    assert found["summary"]["errored"] == 1
    assert found["statistics"]["pairs"] == len(SAME) - 1
    assert (found["files"][1]["errors"], found["files"][1]["judge_failures"]) == (1, 0)


def test_a_trial_that_is_a_machine_failure_is_part_of_no_mean(write: Write) -> None:
    before = [{"eval_id": name, "score": score, "trial": trial} for name, score in SAME.items() for trial in (1, 2)]
    rows(write, "a.jsonl", before)
    rows(write, "b.jsonl", [{**before[0], **MACHINE}, *before[1:]])
    assert compared("a.jsonl", "b.jsonl")["summary"]["meanDelta"] == 0


def test_runs_of_machine_failures_cannot_be_compared(write: Write) -> None:
    before = [{"eval_id": name, "score": score} for name, score in SAME.items()]
    rows(write, "a.jsonl", before)
    rows(write, "b.jsonl", [{**entry, **MACHINE} for entry in before])
    assert judged(code=3) == "exit 3: undecided: all cases are machine failures in A or B"


@pytest.mark.parametrize("side", ["a.jsonl", "b.jsonl"])
def test_an_errored_case_that_did_not_pass_does_not_matter(write: Write, side: str) -> None:
    entries = [{"eval_id": name, "score": score} for name, score in SAME.items()]
    for name in ("a.jsonl", "b.jsonl"):
        rows(write, name, entries)
    rows(write, side, [{**entries[0], "error": "it broke"}, *entries[1:]])
    judged("--gate", "no-regressions", code=0)
    assert compared("a.jsonl", "b.jsonl", "--gate", "no-regressions")["summary"]["errored"] == 1


def test_errored_cases_are_a_group_in_table_and_markdown(write: Write) -> None:
    save(write, "a.jsonl", dict.fromkeys(SAME, 1.0))
    broken = [{"eval_id": name, "score": 0.0, "error": "it broke"} for name in ("c0", "c1")]
    rest = [{"eval_id": name, "score": 1.0} for name in SAME if name not in ("c0", "c1", "c2")]
    rows(write, "b.jsonl", [*broken, {"eval_id": "c2", "score": 0.5}, *rest])
    table = agentv("compare", "a.jsonl", "b.jsonl", "--format", "table").stdout
    assert "\nerrored 2: c0, c1   (ended in an error or not judged in A or B; not counted as regressions)\n" in table
    assert "largest regressions: c2 −0.50\n" in table
    markdown = agentv("compare", "a.jsonl", "b.jsonl", "--format", "markdown").stdout
    assert "- **2 errored (ended in an error or not judged in A or B)**: `c0`, `c1`\n" in markdown
    assert "**1 broke (pass → fail)**: `c2`\n" in markdown
    assert "| `c0` |" not in markdown


# ---- no regressions ----


def test_no_regressions_fails_for_any_case_that_no_longer_passes(write: Write) -> None:
    save(write, "a.jsonl", {"a": 0.9, "b": 0.2, "c": 1.0})
    save(write, "b.jsonl", {"a": 0.79, "b": 1.0, "c": 1.0})
    assert judged("--gate", "no-regressions", code=1) == "exit 1: 1 case no longer passes: a"
    save(write, "b.jsonl", {"a": 0.8, "b": 0.0, "c": 0.85})
    judged("--gate", "no-regressions", code=0)


def test_no_regressions_compares_verdicts_not_scores(write: Write) -> None:
    save(write, "a.jsonl", {"a": 0.9}, verdict="pass")
    save(write, "b.jsonl", {"a": 0.95}, verdict="fail")
    assert judged("--gate", "no-regressions", code=1) == "exit 1: 1 case no longer passes: a"


def test_a_regression_takes_precedence_over_missing_and_errored_cases(write: Write) -> None:
    save(write, "a.jsonl", {"a": 1.0, "b": 1.0, "gone": 1.0})
    rows(write, "b.jsonl", [{"eval_id": "a", "score": 0.0}, {"eval_id": "b", "score": 0.0, "error": "it broke"}])
    assert judged("--gate", "no-regressions", code=1) == "exit 1: 1 case no longer passes: a"


# ---- trials ----


def trials(eval_id: str, *scores: float | None) -> list[dict[str, Any]]:
    """The trials of a case; None is an error."""
    entries = []
    for number, score in enumerate(scores, 1):
        entry: dict[str, Any] = {"eval_id": eval_id, "trial": number, "score": score or 0.0}
        if score is None:
            entry["error"] = "it broke"
        entries.append(entry)
    return entries


@pytest.mark.parametrize(
    ("before", "after", "code"),
    [
        ((1.0, 1.0, 1.0), (1.0, 1.0, 1.0), 0),
        ((1.0, 1.0, 1.0), (1.0, 1.0, 0.0), 1),
        ((1.0, 1.0, 0.0), (0.0, 0.0, 0.0), 0),
        ((1.0, 1.0, 1.0), (1.0, 1.0, None), 3),
        ((1.0, 1.0, 1.0), (1.0, 0.0, None), 1),
        ((1.0, 1.0, 1.0), (None, None, None), 3),
        ((1.0, None, 1.0), (0.0, 0.0, 0.0), 0),
        ((0.0, None, 1.0), (1.0, 1.0, 1.0), 0),
    ],
)
def test_a_case_passes_when_all_its_trials_pass(
    write: Write, before: tuple[float, ...], after: tuple[float, ...], code: int
) -> None:
    rows(write, "a.jsonl", trials("a", *before))
    rows(write, "b.jsonl", trials("a", *after))
    assert agentv("compare", "a.jsonl", "b.jsonl", "--gate", "no-regressions").returncode == code


def test_a_flaky_case_counts_as_not_passed_in_the_pass_rates(write: Write) -> None:
    rows(write, "a.jsonl", trials("a", 1.0, 1.0, 1.0))
    rows(write, "b.jsonl", trials("a", 1.0, 1.0, 0.0))
    passes = compared("a.jsonl", "b.jsonl", code=1)["statistics"]["passes"]
    assert (passes["passed1"], passes["passed2"], passes["lost"]) == (1, 0, 1)
