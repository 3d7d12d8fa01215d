"""The figures of a run, or of a comparison -> the sentences that its page begins with."""

from collections.abc import Iterator, Sequence
from datetime import datetime

from agentv.compare.records import Comparison
from agentv.report.comparison import answer_costs, describe_changes, grading_text
from agentv.report.page.figures import Figures

SHOWN_TARGETS = 5


def run_headline(figures: Figures) -> str:
    """Return how good, and how sure: the one sentence that a reader must not miss."""
    mean = f"mean {figures['mean']:.2f}"
    if figures["cases"] == 1 and figures["trials"] == 1:
        return f"{'Passed' if figures['pass_rate'] == 1 else 'Did not pass'}, score {figures['mean']:.2f}."
    between = f" (95%: {figures['pass_low'] * 100:.0f} to {figures['pass_high'] * 100:.0f}%)"
    return f"{_percent(figures['pass_rate'])} passed{between}, {mean}."


def run_facts(figures: Figures) -> str:
    """Return what ran, in a line: cases, targets, money, time."""
    trials = f" × {figures['trials']} trials" if figures["trials"] > 1 else ""
    facts = [f"{_count(figures['cases'], 'case')}{trials}"]
    names = figures.get("models") or figures["targets"]
    facts += [", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")] if names else []
    facts += [money(figures["cost"])] if figures["cost"] is not None else []
    facts += [f"{money(figures['judge_cost'])} for judges"] if figures.get("judge_cost") is not None else []
    facts += [duration(figures["seconds"])] if figures.get("seconds") else []
    return ", ".join(facts)


def run_troubles(figures: Figures) -> str:
    """Return what a reader must know before believing the figures; empty if there is nothing."""
    counted = {
        "target error": figures["target_errors"],
        "timeout": figures["timeouts"],
        "judge failure": figures["judge_failures"],
    }
    said = [_count(count, what) for what, count in counted.items() if count]
    said += [f"{_count(figures['cut_off'], 'answer')} cut off"] if figures["cut_off"] else []
    said += [f"{_count(figures['skipped'], 'case')} skipped"] if figures.get("skipped") else []
    said += [f"{_count(figures['not_run'], 'case')} not run"] if figures.get("not_run") else []
    if figures.get("judge_health", {}).get("verdict") == "untrusted":
        said.append("the judge is untrusted")
    if figures["dry_run"]:
        said.append("a dry run: nobody was asked" if figures["dry_run"] == figures["results"] else "partly a dry run")
    return ", ".join(said)


def comparison_headline(comparison: Comparison, fixed: int, broken: int) -> str:
    """Return whether it is better, by how much and how sure that is, and how many cases changed sides."""
    found = comparison.statistics
    said = f"{found.verdict.capitalize()}"
    if found.delta is not None:
        interval = ""
        if found.delta.ci_lower is not None and found.delta.ci_upper is not None:
            interval = f" (95%: {signed(found.delta.ci_lower)} to {signed(found.delta.ci_upper)})"
        said += f": {signed(found.delta.mean)}{interval}"
    flips = [f"{_count(fixed, 'case')} fixed"] if fixed else []
    flips += [f"{broken if fixed else _count(broken, 'case')} broken"] if broken else []
    return f"{said}, {', '.join(flips) or 'no case changed sides'}."


def comparison_notes(comparison: Comparison) -> Iterator[str]:
    """Yield what else differs between the runs, and what to know before believing the figures."""
    if comparison.grading is not None:
        yield f"The answers are the same, and were scored again: {grading_text(comparison.grading)}."
    for name in comparison.changed.targets[:SHOWN_TARGETS]:
        yield f"Target {name} is another version."
    if changed := describe_changes(comparison.changed):
        yield f"Changed besides the target: {changed}."
    if comparison.changed.unknown:
        yield f"What else changed is not known for {_count(comparison.changed.unknown, 'case')}: no digests."
    elif not changed:
        yield "Nothing changed besides the target: same cases, same evaluators, same judge."
    for file, side in zip(comparison.files, "AB", strict=True):
        if file.dry_run:
            yield f"{_count(file.dry_run, 'result')} of {side} come from a dry run: a mock answered, not the target."
    unmatched = comparison.unmatched
    if unmatched.file1 or unmatched.file2:
        sides = [f"{count} only in {side}" for side, count in (("A", unmatched.file1), ("B", unmatched.file2)) if count]
        yield f"{_count(comparison.summary.matched, 'case')} in both files, {' and '.join(sides)}."
    bounds = comparison.statistics.bounds
    if bounds is not None and bounds.unscored:
        between = f"{signed(bounds.lower)} and {signed(bounds.upper)}"
        had = "it" if bounds.unscored == 1 else "they"
        what = f"{_count(bounds.unscored, 'pair')} without a score"
        yield f"{what}: had {had} gone either way, the difference would be between {between}."
    for note in comparison.statistics.notes:
        yield f"{note[:1].upper()}{note[1:]}."
    if costs := list(answer_costs(comparison)):
        said = [f"{what} {before} → {after}{f' ({change})' if change else ''}" for what, before, after, change in costs]
        yield f"Per answer: {', '.join(said)}."


def seconds_between(first: str, last: str) -> float | None:
    """Return the seconds between two times in ISO 8601, None if they are not."""
    try:
        return (datetime.fromisoformat(last) - datetime.fromisoformat(first)).total_seconds()
    except (ValueError, TypeError):
        return None


def signed(value: float) -> str:
    return f"{value:+.2f}".replace("-", "−")


def money(value: float) -> str:
    return f"${value:,.2f}" if value >= 0.1 or value == 0 else f"${value:.2g}"


def duration(seconds: float) -> str:
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def title_of(names: Sequence[str]) -> str:
    return f"{' and '.join(names)}: {'comparison' if len(names) > 1 else 'results'}"


def _percent(value: float) -> str:
    """Return a share as a whole percentage; only all is 100% and only none is 0%."""
    rounded = round(value * 100)
    if rounded == 100 and value < 1:
        return "Over 99%"
    if rounded == 0 and value > 0:
        return "Under 1%"
    return f"{rounded}%"


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"
