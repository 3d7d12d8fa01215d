"""Write the sentences at the top of a page about a run or a comparison."""

from collections.abc import Iterator, Sequence
from datetime import datetime

from agentv.compare.records import Bounds, Comparison, Counts
from agentv.report.comparison import cost_changes, describe_changes, describe_formats, grading_text
from agentv.report.page.figures import RunFigures
from agentv.report.page.sums import FlipCounts
from agentv.text import plural

SHOWN_TARGETS = 5
SHOWN_NAMES = 3
"""The maximum number of models or targets in the facts about a run."""


def run_headline(figures: RunFigures) -> str:
    """Return the pass rate with its confidence interval and the mean, or the verdict if there is a single result."""
    if figures.mean is None or figures.pass_rate is None:
        return "No case has a score."
    mean = f"{figures.mean:.2f}"
    if figures.cases == 1 and figures.trials == 1:
        if figures.pass_rate == 1:
            return f"Passed, score {mean}."
        return f"Did not pass, score {mean}."
    interval = ""
    if figures.pass_low < figures.pass_high:  # equal if all cases are alike in all trials, which proves nothing
        low = figures.pass_low * 100
        high = figures.pass_high * 100
        interval = f" (95%: {low:.0f} to {high:.0f}%)"
    return f"{_percent(figures.pass_rate)} passed{interval}, mean {mean}."


def run_facts(figures: RunFigures) -> str:
    """Return the cases, targets, cost and duration of a run in one line."""
    cases = plural(figures.cases, "case", separator=",")
    if figures.trials > 1:
        cases += f" × {figures.trials} trials"
    facts = [cases]
    if figures.skipped:
        facts.append(f"{figures.skipped:,} skipped")
    names = figures.models or figures.targets
    if names:
        shown = ", ".join(names[:SHOWN_NAMES])
        if len(names) > SHOWN_NAMES:
            shown += f" and {len(names) - SHOWN_NAMES} more"
        facts.append(shown)
    if figures.cost is not None:
        facts.append(money(figures.cost))
    if figures.judge_cost is not None:
        facts.append(f"{money(figures.judge_cost)} for judges")
    if figures.seconds:
        facts.append(duration(figures.seconds))
    return ", ".join(facts)


def run_troubles(figures: RunFigures) -> str:
    """Return the errors and omissions that affect the figures of a run, or an empty string."""
    troubles = []
    if figures.target_errors:
        troubles.append(plural(figures.target_errors, "target error", separator=","))
    if figures.timeouts:
        troubles.append(plural(figures.timeouts, "timeout", separator=","))
    if figures.judge_failures:
        troubles.append(plural(figures.judge_failures, "judge failure", separator=","))
    if figures.machine_failures:
        troubles.append(plural(figures.machine_failures, "machine failure", separator=","))
    if figures.cut_off:
        troubles.append(f"{plural(figures.cut_off, 'answer', separator=',')} cut off")
    if figures.invalid:
        troubles.append(plural(figures.invalid, "invalid case", separator=","))
    if figures.not_run:
        troubles.append(f"{plural(figures.not_run, 'case', separator=',')} not run")
    if figures.unplanned_results:
        results = plural(figures.unplanned_results, "result", separator=",")
        troubles.append(f"{results} of cases that are not in the eval files")
    judge_health = figures.judge_health
    if judge_health is not None and judge_health.verdict == "untrusted":
        troubles.append("the judge is untrusted")
    if figures.dry_run and figures.dry_run == figures.results:
        troubles.append("dry run: the target was not called")
    elif figures.dry_run:
        troubles.append("partly a dry run")
    return ", ".join(troubles)


def comparison_headline(comparison: Comparison, flips: FlipCounts) -> str:
    """Return the verdict, the difference with its confidence interval, and the number of cases that flipped."""
    headline = comparison.statistics.verdict.capitalize()
    delta = comparison.statistics.delta
    if delta is not None:
        headline += f": {signed(delta.mean)}"
        if delta.ci_lower is not None and delta.ci_upper is not None:
            headline += f" (95%: {signed(delta.ci_lower)} to {signed(delta.ci_upper)})"
    headline += f", {_flips_text(flips)}"
    if flips.errored:
        headline += f", {flips.errored} errored"
    return f"{headline}."


def _flips_text(flips: FlipCounts) -> str:
    fixed = flips.fixed
    broken = flips.broken
    if fixed and broken:
        return f"{plural(fixed, 'case', separator=',')} fixed, {broken} broken"
    if fixed:
        return f"{plural(fixed, 'case', separator=',')} fixed"
    if broken:
        return f"{plural(broken, 'case', separator=',')} broken"
    return "no case flipped"


def comparison_notes(comparison: Comparison) -> Iterator[str]:
    """Yield what else differs between the runs, and what limits the figures."""
    if comparison.grading is not None:
        yield f"Both runs have the same answers, only the scoring differs: {grading_text(comparison.grading)}."
    yield from _change_notes(comparison)
    for file, side in zip(comparison.files, "AB", strict=True):
        if file.dry_run:
            results = plural(file.dry_run, "result", separator=",")
            yield f"{results} of {side} come from a dry run: a mock answered instead of the target."
    unmatched = comparison.unmatched
    if unmatched.file1 or unmatched.file2:
        cases = plural(comparison.summary.matched, "case", separator=",")
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
        yield f"Target {name!r} has changed between the runs."
    changes = describe_changes(changed)
    if changes:
        yield f"Other changes: {changes}."
    if changed.unknown:
        cases = plural(changed.unknown, "case", separator=",")
        yield f"Other changes are unknown for {cases}: the results have no digests."
    elif changed.formats:
        yield f"{describe_formats(changed)}."
    elif not changes and not changed.target:
        yield "No changes: same target, same cases, same evaluators, same judge."
    elif not changes:
        yield "Only the target differs: same cases, same evaluators, same judge."


def _unmatched_text(unmatched: Counts) -> str:
    sides = []
    if unmatched.file1:
        sides.append(f"{unmatched.file1} only in A")
    if unmatched.file2:
        sides.append(f"{unmatched.file2} only in B")
    return " and ".join(sides)


def _bounds_note(bounds: Bounds) -> str:
    """Return the bounds of the difference if the unscored pairs had the best and the worst scores."""
    pronoun = "they were"
    if bounds.unscored == 1:
        pronoun = "it was"
    pairs = plural(bounds.unscored, "pair", separator=",")
    between = f"{signed(bounds.lower)} and {signed(bounds.upper)}"
    return f"{pairs} without a score: if {pronoun} scored, the difference could be between {between}."


def seconds_between(first: str, last: str) -> float | None:
    """Return the seconds between two times in ISO 8601, or None if they are not valid."""
    try:
        difference = datetime.fromisoformat(last) - datetime.fromisoformat(first)
    except (ValueError, TypeError):
        return None
    return difference.total_seconds()


def signed(value: float) -> str:
    """Return a number with its sign. The minus sign is U+2212, not a hyphen."""
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
