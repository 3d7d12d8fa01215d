"""Write the sentences at the top of a page about a run or a comparison."""

from collections.abc import Iterator, Sequence
from datetime import datetime

from agentv.compare.records import Bounds, Comparison, Counts
from agentv.report.comparison import cost_changes, describe_changes, grading_text
from agentv.report.page.figures import Figures
from agentv.report.quantities import counted

SHOWN_TARGETS = 5
SHOWN_NAMES = 3
"""The maximum number of models or targets in the facts about a run."""


def run_headline(figures: Figures) -> str:
    """Return the pass rate with its confidence interval and the mean, or the verdict if there is a single result."""
    mean = f"{figures['mean']:.2f}"
    if figures["cases"] == 1 and figures["trials"] == 1:
        if figures["pass_rate"] == 1:
            return f"Passed, score {mean}."
        return f"Did not pass, score {mean}."
    low = figures["pass_low"] * 100
    high = figures["pass_high"] * 100
    return f"{_percent(figures['pass_rate'])} passed (95%: {low:.0f} to {high:.0f}%), mean {mean}."


def run_facts(figures: Figures) -> str:
    """Return the cases, targets, cost and duration of a run in one line."""
    cases = counted(figures["cases"], "case", ",")
    if figures["trials"] > 1:
        cases += f" × {figures['trials']} trials"
    facts = [cases]
    names = figures.get("models") or figures["targets"]
    if names:
        shown = ", ".join(names[:SHOWN_NAMES])
        if len(names) > SHOWN_NAMES:
            shown += f" and {len(names) - SHOWN_NAMES} more"
        facts.append(shown)
    if figures["cost"] is not None:
        facts.append(money(figures["cost"]))
    if figures.get("judge_cost") is not None:
        facts.append(f"{money(figures['judge_cost'])} for judges")
    if figures.get("seconds"):
        facts.append(duration(figures["seconds"]))
    return ", ".join(facts)


def run_troubles(figures: Figures) -> str:
    """Return the errors and omissions that affect the figures of a run, or an empty string."""
    troubles = []
    if figures["target_errors"]:
        troubles.append(counted(figures["target_errors"], "target error", ","))
    if figures["timeouts"]:
        troubles.append(counted(figures["timeouts"], "timeout", ","))
    if figures["judge_failures"]:
        troubles.append(counted(figures["judge_failures"], "judge failure", ","))
    if figures["cut_off"]:
        troubles.append(f"{counted(figures['cut_off'], 'answer', ',')} cut off")
    if figures.get("skipped"):
        troubles.append(f"{counted(figures['skipped'], 'case', ',')} skipped")
    if figures.get("not_run"):
        troubles.append(f"{counted(figures['not_run'], 'case', ',')} not run")
    judge_health = figures.get("judge_health", {})
    if judge_health.get("verdict") == "untrusted":
        troubles.append("the judge is untrusted")
    if figures["dry_run"] and figures["dry_run"] == figures["results"]:
        troubles.append("a dry run: nobody was asked")
    elif figures["dry_run"]:
        troubles.append("partly a dry run")
    return ", ".join(troubles)


def comparison_headline(comparison: Comparison, fixed: int, broken: int) -> str:
    """Return the verdict, the difference with its confidence interval, and the number of cases that flipped."""
    headline = comparison.statistics.verdict.capitalize()
    delta = comparison.statistics.delta
    if delta is not None:
        headline += f": {signed(delta.mean)}"
        if delta.ci_lower is not None and delta.ci_upper is not None:
            headline += f" (95%: {signed(delta.ci_lower)} to {signed(delta.ci_upper)})"
    return f"{headline}, {_flips(fixed, broken)}."


def _flips(fixed: int, broken: int) -> str:
    if fixed and broken:
        return f"{counted(fixed, 'case', ',')} fixed, {broken} broken"
    if fixed:
        return f"{counted(fixed, 'case', ',')} fixed"
    if broken:
        return f"{counted(broken, 'case', ',')} broken"
    return "no case changed sides"


def comparison_notes(comparison: Comparison) -> Iterator[str]:
    """Yield what else differs between the runs, and what limits the figures."""
    if comparison.grading is not None:
        yield f"The answers are the same, and were scored again: {grading_text(comparison.grading)}."
    yield from _change_notes(comparison)
    for file, side in zip(comparison.files, "AB", strict=True):
        if file.dry_run:
            results = counted(file.dry_run, "result", ",")
            yield f"{results} of {side} come from a dry run: a mock answered, not the target."
    unmatched = comparison.unmatched
    if unmatched.file1 or unmatched.file2:
        cases = counted(comparison.summary.matched, "case", ",")
        yield f"{cases} in both files, {_unmatched_text(unmatched)}."
    bounds = comparison.statistics.bounds
    if bounds is not None and bounds.unscored:
        yield _bounds_note(bounds)
    for note in comparison.statistics.notes:
        yield f"{note[:1].upper()}{note[1:]}."
    costs = cost_changes(comparison, "→")
    if costs:
        yield f"Per answer: {costs}."


def _change_notes(comparison: Comparison) -> Iterator[str]:
    changed = comparison.changed
    for name in changed.targets[:SHOWN_TARGETS]:
        yield f"Target {name} is another version."
    changes = describe_changes(changed)
    if changes:
        yield f"Changed besides the target: {changes}."
    if changed.unknown:
        yield f"What else changed is not known for {counted(changed.unknown, 'case', ',')}: no digests."
    elif not changes:
        yield "Nothing changed besides the target: same cases, same evaluators, same judge."


def _unmatched_text(unmatched: Counts) -> str:
    sides = []
    if unmatched.file1:
        sides.append(f"{unmatched.file1} only in A")
    if unmatched.file2:
        sides.append(f"{unmatched.file2} only in B")
    return " and ".join(sides)


def _bounds_note(bounds: Bounds) -> str:
    """Return the bounds of the difference if the unscored pairs had the best and the worst scores."""
    pronoun = "they"
    if bounds.unscored == 1:
        pronoun = "it"
    pairs = counted(bounds.unscored, "pair", ",")
    between = f"{signed(bounds.lower)} and {signed(bounds.upper)}"
    return f"{pairs} without a score: had {pronoun} gone either way, the difference would be between {between}."


def seconds_between(first: str, last: str) -> float | None:
    """Return the seconds between two times in ISO 8601, or None if they are not valid."""
    try:
        difference = datetime.fromisoformat(last) - datetime.fromisoformat(first)
    except (ValueError, TypeError):
        return None
    return difference.total_seconds()


def signed(value: float) -> str:
    """Return a number with its sign. The minus is a minus sign, not a hyphen."""
    return f"{value:+.2f}".replace("-", "−")


def money(value: float) -> str:
    """Return an amount in US dollars. Small amounts have two significant digits."""
    if value >= 0.1 or value == 0:
        return f"${value:,.2f}"
    return f"${value:.2g}"


def duration(seconds: float) -> str:
    """Return a duration in a suitable unit."""
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


def title_of(names: Sequence[str]) -> str:
    """Return the title of a page about these results files."""
    kind = "results"
    if len(names) > 1:
        kind = "comparison"
    return f"{' and '.join(names)}: {kind}"


def _percent(value: float) -> str:
    """Return a share as a whole percentage. It is 100% only for all, and 0% only for none."""
    rounded = round(value * 100)
    if rounded == 100 and value < 1:
        return "Over 99%"
    if rounded == 0 and value > 0:
        return "Under 1%"
    return f"{rounded}%"
