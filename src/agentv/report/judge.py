"""Format judge/human agreement, judge health and the status of labels."""

from collections.abc import Callable, Iterator, Mapping

from agentv.files.printable import printable
from agentv.report.layout import table, wrap
from agentv.stats.agreement import Figure
from agentv.text import format_money, plural
from agentv.trust.health.record import Canaries, CheckCost, EvaluatorHealth, Flips, JudgeHealth
from agentv.trust.labels.judge import JudgeFigures, LabelCounts
from agentv.trust.labels.status import LabelStatus

UNNAMED = "(no name)"
Clean = Callable[[str], str]


def judge_lines(figures: JudgeFigures) -> Iterator[str]:
    """Yield the agreement of a judge with human labels, and the corrected pass rate."""
    if figures.evaluator is None:
        yield "JUDGE"
    else:
        yield f"JUDGE {printable(figures.evaluator)}"
    yield from _agreement_lines(figures)


def _agreement_lines(figures: JudgeFigures) -> Iterator[str]:
    for text in _label_counts(figures.labels):
        yield from wrap(f"  {text}")
    yield from _figure_lines(
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
    yield from _figure_lines(
        {
            "by the judge": rates.judge,
            "by the labels": rates.labels,
            "corrected": rates.corrected,
        },
        indent="    ",
    )
    if rates.corrected.value is not None:
        yield from wrap(f"    corrected by: {rates.corrected.method}", indent="      ")
    for note in figures.notes:
        yield from wrap(f"  note: {printable(note)}")


def health_lines(health: JudgeHealth, clean: Clean = str) -> Iterator[str]:
    """Yield the health of the judges of a run and the verdict on them. `clean` masks secrets."""
    yield "JUDGE"
    yield f"  verdict: {health.verdict}"
    for reason in health.reasons:
        yield from wrap(f"  {printable(clean(reason))}")
    for evaluator in health.evaluators:
        yield from _evaluator_lines(evaluator, clean)
    if health.canaries is not None:
        yield from wrap(f"  canaries: {_canary_text(health.canaries)}", indent="    ")
        for text in _failed_canaries(health.canaries):
            yield from wrap(f"    {printable(clean(text))}", indent="      ")
    if health.rejudged is not None:
        yield from wrap(f"  re-judged: {_flips_text(health.rejudged)}", indent="    ")
    if health.cost is not None:
        yield f"  cost of the checks: {_cost_text(health.cost)}"
    for warning in health.warnings:
        yield from wrap(f"  warning: {printable(clean(warning))}", indent="    ")
    if health.labels is not None:
        yield "  labels"
        yield from _agreement_lines(health.labels)


def _evaluator_lines(health: EvaluatorHealth, clean: Clean) -> Iterator[str]:
    name = printable(clean(health.evaluator))
    yield from wrap(f"  {name}: {_judgements_text(health)}", indent="    ")
    if health.repeats is not None:
        yield from wrap(f"    repeats: {_flips_text(health.repeats)}", indent="      ")
    texts = {}
    if health.alpha is not None:
        texts["panel, Krippendorff's alpha of verdicts"] = figure_text(health.alpha)
    if health.alpha_scores is not None and health.alpha_scores.value is not None:
        texts["panel, Krippendorff's alpha of scores"] = figure_text(health.alpha_scores)
    length = health.length
    # Without an interval, there are too few answers for a meaningful correlation.
    if length is not None and length.ci_lower is not None and length.value is not None:
        texts["answer length and score, rank correlation"] = figure_text(length)
    for title, text in texts.items():
        yield from wrap(f"    {title}: {text}", indent="      ")


def health_facts(health: JudgeHealth) -> Iterator[tuple[str, str]]:
    """Yield the health of the judges of a run as pairs of a name and a text, for a page."""
    for reason in health.reasons:
        yield "why", reason
    for warning in health.warnings:
        yield "warning", warning
    for evaluator in health.evaluators:
        yield evaluator.evaluator, _judgements_text(evaluator)
        if evaluator.repeats is not None:
            yield "repeats", _flips_text(evaluator.repeats)
        if evaluator.alpha is not None:
            yield "panel", f"Krippendorff's alpha of verdicts {figure_text(evaluator.alpha)}"
    if health.canaries is not None:
        yield "canaries", _canary_text(health.canaries)
        for text in _failed_canaries(health.canaries):
            yield "failed canaries", text
    if health.rejudged is not None:
        yield "re-judged", _flips_text(health.rejudged)
    if health.labels is not None:
        yield from _label_facts(health.labels)
    if health.cost is not None:
        yield "cost of checks", _cost_text(health.cost)


def _label_facts(figures: JudgeFigures) -> Iterator[tuple[str, str]]:
    yield "labels", "; ".join(_label_counts(figures.labels))
    yield "agreement", figure_text(figures.agreement)
    yield "kappa", figure_text(figures.kappa)
    yield "pass rate by the labels", figure_text(figures.pass_rate.labels)
    yield "corrected pass rate", figure_text(figures.pass_rate.corrected)


def _judgements_text(health: EvaluatorHealth) -> str:
    """Return the number of judged answers, and of judgements with a problem."""
    answers = plural(health.answers, "answer")
    failed_calls = "failed calls"
    if health.call_failed == 1:
        failed_calls = "failed call"
    problems = _nonzero(
        {
            failed_calls: health.call_failed,
            "off the scale": health.off_scale,
            "unparsable": health.unparsable,
            "repaired": health.repaired,
            "retried": health.asked_again,
            "contradicting": health.contradictions,
        }
    )
    return f"{answers}, {problems or 'all parsed'}"


def _canary_text(canaries: Canaries) -> str:
    if not canaries.planted:
        return "none: no case has a reference answer and no judge has examples"
    text = f"{canaries.right} of {canaries.planted} judged correctly"
    if canaries.unjudged:
        text += f", {canaries.unjudged} without a judgement"
    return text


def _failed_canaries(canaries: Canaries) -> Iterator[str]:
    """Yield the planted answers that were misjudged, one text per canary, verdict and judge."""
    groups: dict[tuple[str, str, str], list[str]] = {}
    for failed in canaries.failed:
        judge = failed.evaluator
        if failed.judge is not None:
            judge = f"{failed.judge} of {failed.evaluator}"
        key = (failed.canary, failed.verdict, judge)
        cases = groups.setdefault(key, [])
        cases.append(f"{failed.eval_id} ({failed.score:.2f})")
    for (canary, verdict, judge), cases in groups.items():
        yield f"{canary} for {', '.join(cases)}: judged {verdict} by {judge}"


def _cost_text(cost: CheckCost) -> str:
    text = plural(cost.calls, "judge call")
    if cost.cost_usd is not None:
        text += f", {format_money(cost.cost_usd)}"
    return text


def _flips_text(flips: Flips) -> str:
    """Return how many verdicts changed, and the deviation of the scores of one answer."""
    share = figure_text(flips.share)
    return f"{flips.flipped} of {flips.answers} verdicts flipped ({share}), deviation {flips.deviation:.3f}"


def _label_counts(labels: LabelCounts) -> Iterator[str]:
    """Yield the number of labels that were used, and of those that were not, by reason."""
    answers = plural(labels.answers, "answer")
    if labels.source != "this run":
        answers += " of other runs"
    yield f"{plural(labels.used, 'label')} for {answers}, {labels.random} sampled at random"
    unused = _nonzero(
        {
            "stale (the answer has changed)": labels.stale,
            "for other cases": labels.unmatched,
            "disputed": labels.disputed,
            "without a verdict": labels.unjudged,
        }
    )
    if unused:
        yield f"not used: {unused}"


def _nonzero(counts: Mapping[str, int]) -> str:
    """Return the counts that are not zero as text, or an empty string."""
    return ", ".join(f"{count} {what}" for what, count in counts.items() if count)


def _figure_lines(figures: Mapping[str, Figure], indent: str = "  ") -> Iterator[str]:
    """Yield one line per figure: its name and its text, in two columns."""
    name_width = max(map(len, figures))
    text_indent = " " * (len(indent) + name_width + 2)
    for name, figure in figures.items():
        yield from wrap(f"{indent}{name:{name_width}}  {figure_text(figure)}", indent=text_indent)


def figure_text(figure: Figure) -> str:
    """Return a figure and its confidence interval as text, or why there is none."""
    if figure.value is None:
        return figure.note
    if figure.ci_lower is None or figure.ci_upper is None:
        return f"{figure.value:.3f}, {figure.note}"
    return f"{figure.value:.3f}, 95% interval {figure.ci_lower:.3f} to {figure.ci_upper:.3f}"


def status_lines(status: LabelStatus) -> Iterator[str]:
    """Yield the number of labels per reviewer, and the inter-rater agreement."""
    yield "LABELS"
    answers = plural(status.answers, "answer")
    yield f"  {plural(status.used, 'label')} for {answers} in {status.results}, {status.random} sampled at random"
    unused = _nonzero(
        {
            "stale (the answer has changed)": status.stale,
            "for other cases": status.unmatched,
            "replaced or retracted": status.superseded,
        }
    )
    if unused:
        yield from wrap(f"  not used: {unused}")
    yield ""
    yield "REVIEWERS"
    yield from _reviewer_table(status)
    if status.pairs:
        yield ""
        yield "INTER-RATER AGREEMENT"
        yield from _reviewer_agreement(status)


def _reviewer_table(status: LabelStatus) -> Iterator[str]:
    rows = [("reviewer", "labels", "pass", "fail", "stale", "other cases")]
    for reviewer in status.reviewers:
        fails = reviewer.labels - reviewer.passes
        row = (
            _reviewer_name(reviewer.reviewer),
            str(reviewer.labels),
            str(reviewer.passes),
            str(fails),
            str(reviewer.stale),
            str(reviewer.unmatched),
        )
        rows.append(row)
    yield from table(rows)


def _reviewer_agreement(status: LabelStatus) -> Iterator[str]:
    for pair in status.pairs:
        names = " and ".join(map(_reviewer_name, pair.reviewers))
        yield from wrap(f"  {names}, {plural(pair.answers, 'answer')}")
        yield from _figure_lines({"agreement": pair.agreement, "kappa": pair.kappa}, indent="    ")
    yield from wrap(f"  Krippendorff's alpha, all reviewers: {figure_text(status.alpha)}")


def _reviewer_name(reviewer: str | None) -> str:
    if not reviewer:
        return UNNAMED
    return printable(reviewer)
