"""Figures of a judge, and of labels -> the lines of a section `JUDGE`, and of `agentv labels status`."""

from collections.abc import Callable, Iterator

from agentv.formats.printable import printable
from agentv.report.layout import table, wrap
from agentv.report.quantities import format_money
from agentv.results.health.record import Canaries, CheckCost, EvaluatorHealth, Flips, JudgeHealth
from agentv.results.labels.judge import JudgeFigures, LabelCounts
from agentv.results.labels.status import LabelStatus
from agentv.stats.agreement import Figure

NOBODY = "(no name)"


def judge_lines(figures: JudgeFigures) -> Iterator[str]:
    """Yield how far a judge agrees with people, and what that makes of the pass rate."""
    yield "JUDGE" if figures.evaluator is None else f"JUDGE {printable(figures.evaluator)}"
    for text in _counts(figures.labels):
        yield from wrap(f"  {text}")
    yield from _rows(
        {
            "agreement": figures.agreement,
            "kappa": figures.kappa,
            "sensitivity": figures.sensitivity,
            "specificity": figures.specificity,
            "base rate": figures.base_rate,
        }
    )
    rates = figures.pass_rate
    yield "  pass rate"
    yield from _rows(
        {"by the judge": rates.judge, "by the labels": rates.labels, "corrected": rates.corrected}, indent="    "
    )
    if rates.corrected.value is not None:
        yield from wrap(f"    corrected by: {rates.corrected.method}", indent="      ")
    for note in figures.notes:
        yield from wrap(f"  note: {printable(note)}")


def health_lines(health: JudgeHealth, clean: Callable[[str], str] = str) -> Iterator[str]:
    """Yield what is known of the judges of a run, and whether they can be trusted."""
    yield "JUDGE"
    yield f"  verdict: {health.verdict}"
    for reason in health.reasons:
        yield from wrap(f"  {printable(clean(reason))}")
    for each in health.evaluators:
        yield from _evaluator_lines(each, clean)
    if (canaries := health.canaries) is not None:
        yield from _canary_lines(canaries, clean)
    if health.rejudged is not None:
        yield from wrap(f"  judged again: {_flips(health.rejudged)}", indent="    ")
    if (cost := health.cost) is not None:
        yield f"  the checks took {_paid(cost)}"
    for warning in health.warnings:
        yield from wrap(f"  warning: {printable(clean(warning))}", indent="    ")
    if health.labels is not None:
        yield from (line if number else "  labels" for number, line in enumerate(judge_lines(health.labels)))


def health_facts(health: JudgeHealth) -> Iterator[tuple[str, str]]:
    """Yield what is known of the judges of a run, each fact with its name, for a page."""
    for reason in health.reasons:
        yield "why", reason
    for warning in health.warnings:
        yield "warning", warning
    for each in health.evaluators:
        yield each.evaluator, f"{_count(each.answers, 'answer')}, {_odd(each)}"
        if each.repeats is not None:
            yield "repeats", _flips(each.repeats)
        if each.alpha is not None:
            yield "panel", f"Krippendorff's alpha of verdicts {figure_text(each.alpha)}"
    if health.canaries is not None:
        yield "canaries", _canaries(health.canaries)
        for text in _failed_canaries(health.canaries):
            yield "failed canaries", text
    if health.rejudged is not None:
        yield "judged again", _flips(health.rejudged)
    if (labels := health.labels) is not None:
        yield "labels", "; ".join(_counts(labels.labels))
        rates = {"pass rate by the labels": labels.pass_rate.labels, "corrected pass rate": labels.pass_rate.corrected}
        for name, figure in {"agreement": labels.agreement, "kappa": labels.kappa, **rates}.items():
            yield name, figure_text(figure)
    if health.cost is not None:
        yield "cost of checks", _paid(health.cost)


def _evaluator_lines(health: EvaluatorHealth, clean: Callable[[str], str]) -> Iterator[str]:
    told = f"{_count(health.answers, 'answer')}, {_odd(health)}"
    yield from wrap(f"  {printable(clean(health.evaluator))}: {told}", indent="    ")
    if health.repeats is not None:
        yield from wrap(f"    repeats: {_flips(health.repeats)}", indent="      ")
    figures = {
        "panel, Krippendorff's alpha of verdicts": health.alpha,
        "panel, Krippendorff's alpha of scores": health.alpha_scores,
        "answer length and score, rank correlation": health.length,
    }
    for name, figure in figures.items():
        if figure is None or (figure is health.length and figure.ci_lower is None):
            continue  # of a few answers nothing can be said
        if figure.value is not None or figure is health.alpha:
            yield from wrap(f"    {name}: {figure_text(figure)}", indent="      ")


def _canary_lines(canaries: Canaries, clean: Callable[[str], str]) -> Iterator[str]:
    yield from wrap(f"  canaries: {_canaries(canaries)}", indent="    ")
    for text in _failed_canaries(canaries):
        yield from wrap(f"    {printable(clean(text))}", indent="      ")


def _odd(health: EvaluatorHealth) -> str:
    """Return how many judgements were not as they should be."""
    counts = {
        "unparsable": health.unparsable,
        "repaired": health.repaired,
        "asked for again": health.asked_again,
        "contradicting": health.contradictions,
    }
    return ", ".join(f"{count} {what}" for what, count in counts.items() if count) or "all could be read"


def _canaries(canaries: Canaries) -> str:
    unjudged = f", {canaries.unjudged} without a judgement" if canaries.unjudged else ""
    return f"{canaries.right} of {canaries.planted} judged rightly{unjudged}"


def _failed_canaries(canaries: Canaries) -> Iterator[str]:
    """Yield each planted answer that was judged wrongly, those that are alike in one text."""
    groups: dict[tuple[str, str, str], list[str]] = {}
    for failed in canaries.failed:
        group = groups.setdefault((failed.canary, failed.verdict, failed.evaluator), [])
        group.append(f"{failed.eval_id} ({failed.score:.2f})")
    for (canary, verdict, evaluator), cases in groups.items():
        yield f"{canary} to {', '.join(cases)}: {verdict}, says {evaluator}"


def _paid(cost: CheckCost) -> str:
    money = f", {format_money(cost.cost_usd)}" if cost.cost_usd is not None else ""
    return f"{_count(cost.calls, 'judge call')}{money}"


def _flips(flips: Flips) -> str:
    """Return how many verdicts changed, and how far scores of one answer vary."""
    share = figure_text(flips.share)
    return f"{flips.flipped} of {flips.answers} verdicts flipped ({share}), deviation {flips.deviation:.3f}"


def _counts(labels: LabelCounts) -> Iterator[str]:
    """Yield how many labels there are, and what became of them; what did not happen is left out."""
    whose = "" if labels.source == "this run" else " of other runs"
    answers = _count(labels.answers, "answer")
    yield f"{_count(labels.used, 'label')} of {answers}{whose}, {labels.random} drawn at random"
    others = {
        "stale (of other answers)": labels.stale,
        "of other cases": labels.unmatched,
        "disputed": labels.disputed,
        "without a verdict": labels.unjudged,
    }
    if left := [f"{count} {what}" for what, count in others.items() if count]:
        yield f"not used: {', '.join(left)}"


def _rows(figures: dict[str, Figure], indent: str = "  ") -> Iterator[str]:
    """Yield a line for each figure: its value and interval, or why there is none."""
    longest = max(map(len, figures))
    for name, figure in figures.items():
        yield from wrap(f"{indent}{name:{longest}}  {figure_text(figure)}", indent=f"{indent}{'':{longest + 2}}")


def figure_text(figure: Figure) -> str:
    """Return a figure with its interval, or why there is none."""
    if figure.value is None:
        return figure.note
    if figure.ci_lower is None or figure.ci_upper is None:
        return f"{figure.value:.3f}, {figure.note}"
    return f"{figure.value:.3f}, 95% interval {figure.ci_lower:.3f} to {figure.ci_upper:.3f}"


def status_lines(status: LabelStatus) -> Iterator[str]:
    """Yield how many labels there are, by whom, and how far the reviewers agree."""
    yield "LABELS"
    answers = _count(status.answers, "answer")
    yield f"  {_count(status.used, 'label')} of {answers} of {status.results}, {status.random} drawn at random"
    others = {
        "stale (of other answers)": status.stale,
        "of other cases": status.unmatched,
        "replaced or taken back": status.superseded,
    }
    if left := [f"{count} {what}" for what, count in others.items() if count]:
        yield from wrap(f"  not used: {', '.join(left)}")
    rows = [("reviewer", "labels", "pass", "fail", "stale", "other cases")]
    for each in status.reviewers:
        fails = each.labels - each.passes
        counts = (each.labels, each.passes, fails, each.stale, each.unmatched)
        rows.append((_name(each.reviewer), *map(str, counts)))  # type: ignore[arg-type]
    yield ""
    yield "REVIEWERS"
    yield from table(rows)
    if status.pairs:
        yield ""
        yield "AGREEMENT BETWEEN REVIEWERS"
        for pair in status.pairs:
            names = " and ".join(map(_name, pair.reviewers))
            yield from wrap(f"  {names}, {_count(pair.answers, 'answer')}")
            yield from _rows({"agreement": pair.agreement, "kappa": pair.kappa}, indent="    ")
        yield from wrap(f"  Krippendorff's alpha of all: {figure_text(status.alpha)}")


def _name(reviewer: str | None) -> str:
    return printable(reviewer) if reviewer else NOBODY


def _count(count: int, what: str) -> str:
    return f"1 {what}" if count == 1 else f"{count} {what}s"
