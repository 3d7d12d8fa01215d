"""A summary -> the lines that `agentv eval` prints, which fit a narrow terminal."""

import math
import shlex
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from agentv.errors import nearest
from agentv.formats.printable import printable
from agentv.report.layout import WIDTH, shorten, table, wrap, wrap_terms
from agentv.report.money import spent_text
from agentv.report.quantities import format_count, format_duration, format_money
from agentv.results.failures import FailedCase
from agentv.results.groups import FIELDS, MAX_GROUPS, Figures, Groups
from agentv.results.summary import BINS, Summary

BAR = 40
ERROR_CHARACTERS = 400
MAX_SHOWN_TRIALS = 5
SMALL = 1 / 3
NO_VARIATION = "no interval: no variation to estimate it from"
Clean = Callable[[str], str]


def summary_lines(summary: Summary, clean: Clean = str, results: Path | None = None) -> Iterable[str]:
    """Yield the lines of a summary; `clean` masks secrets in ids and errors, `results` is the file to look into."""
    if summary.errors:
        yield f"ERRORS ({summary.failed})"
        for error, group in sorted(summary.errors.items(), key=lambda item: -item[1].cases):
            text = _cut(" ".join(clean(error).split()))
            if group.cases == 1:
                yield f"  {clean(group.first)}: {text}"
            else:
                yield f"  {group.cases} × {text}: first case {clean(group.first)}"
        if (more := summary.failed - sum(group.cases for group in summary.errors.values())) > 0:
            yield f"  and {more} more, in the results"
        yield ""
    yield "SUMMARY"
    yield from _ledger_lines(summary)
    if summary.mean is None:
        yield "  no results"
        return
    for line in (*_score_lines(summary, summary.mean), *_pass_lines(summary), *_answer_lines(summary)):
        yield from wrap(line)
    yield from _evaluator_lines(summary, clean)
    yield from _group_lines(summary.groups, summary.trials, clean) if summary.groups is not None else ()
    yield ""
    yield "DISTRIBUTION"
    largest = max(summary.histogram)
    for name, count in zip(BINS, summary.histogram, strict=True):
        yield f"  {name:9} {'█' * math.ceil(count / largest * BAR)}{' ' if count else ''}{count}"
    yield from _failure_lines(summary, clean, results)
    for title, cases in (("TOP", summary.top), ("BOTTOM", summary.bottom)):
        yield ""
        yield title
        yield from (f"  {_number(score)}  {clean(eval_id)}" for eval_id, score in cases)


def _ledger_lines(summary: Summary) -> Iterator[str]:
    """Yield how many runs were planned and what became of them; what did not happen is left out."""
    cases, trials = _cases(summary.cases + summary.invalid), summary.trials
    what = f"runs planned ({cases}, {trials} trials each)" if trials > 1 else "planned"
    terms = [f"{count} {_singular(name, count)}" for name, count in summary.ledger.items() if count]
    yield from wrap_terms(f"  {summary.planned} {what} = ", terms or ["0"], "+")
    if count := summary.no_case:
        yield f"  {'1 answer is' if count == 1 else f'{count} answers are'} to no case of these eval files"


def _singular(what: str, count: int) -> str:
    """Return a name of the ledger, in the singular for one."""
    return what.removesuffix("s") if count == 1 else what


def _score_lines(summary: Summary, mean: float) -> Iterator[str]:
    interval, deviation = summary.interval, summary.deviation
    width = _between(interval) if interval else f" ({NO_VARIATION})" if deviation is not None else ""
    yield f"  mean {_number(mean)}{width}"
    if without := summary.unscored + summary.unscored_earlier:
        could = f"{_number(mean)} to {_number(summary.best_mean or mean)}"
        yield f"  {without} without a score; had they run, the mean could be {could}"
        if summary.scored_mean is not None:
            yield f"  the mean of those with a score is {_number(summary.scored_mean)}"
    least, most = summary.bottom[0][1], summary.top[0][1]
    yield f"  median {_number(summary.median or 0.0)}, min {_number(least)}, max {_number(most)}"
    if deviation is not None:
        yield f"  standard deviation {_number(deviation)}"


def _answer_lines(summary: Summary) -> Iterator[str]:
    """Yield what the answers took, and what is odd about them."""
    usage = summary.usage
    tokens = {"input": usage.input_tokens, "output": usage.output_tokens}
    known = [f"{format_count(total.sum)} {what}" for what, total in tokens.items() if total.answers]
    if known:
        answers = max(total.answers for total in tokens.values())
        thought = usage.reasoning_tokens.sum
        of_which = f", {format_count(thought)} of them reasoning" if thought else ""
        yield f"  tokens {', '.join(known)}{of_which}{_known_of(answers, usage.answers)}"
    if usage.cost_usd.answers:
        yield f"  cost {format_money(usage.cost_usd.sum)}{_known_of(usage.cost_usd.answers, usage.answers)}"
    spending, cost = summary.spending, usage.cost_usd
    is_more = len(spending.parts) > 1 or not cost.answers  # than what the answers cost, which stands above
    if spending.usd is not None and (is_more or not math.isclose(spending.usd, cost.sum)):
        yield from wrap(f"  {spent_text(spending)}")
    if (quantiles := usage.duration_quantiles) is not None:
        p50, p95 = map(format_duration, quantiles)
        yield f"  duration p50 {p50}, p95 {p95}{_known_of(len(usage.durations), usage.answers)}"
    if empty := summary.empty_answers:
        yield "  1 answer is empty" if empty == 1 else f"  {empty} answers are empty"
    if cut_off := summary.cut_off_answers:
        are = "answer was" if cut_off == 1 else "answers were"
        yield f"  {cut_off} {are} cut off at the token limit"
    if noted := summary.noted_results:
        have = "result has a note" if noted == 1 else "results have a note"
        yield f"  {noted} {have}: 'agentv show' tells {'it' if noted == 1 else 'them'}"


def _known_of(known: int, answers: int) -> str:
    return "" if known == answers else f" (known of {known} of {answers} answers)"


def _evaluator_lines(summary: Summary, clean: Clean) -> Iterator[str]:
    """Yield the figures of each evaluator, if there are several."""
    found = summary.evaluators
    if len(found) < 2:
        return
    has_failures = any(figures.failures for figures in found.values())
    rows = [("name", "n", "mean", "pass", *(["failed"] if has_failures else []))]
    for name, (scores, failures) in list(found.items())[:MAX_GROUPS]:
        mean = _number(scores.mean) if scores.cases else ""
        passes = f"{scores.passes:.0f}/{scores.cases}"
        more = [str(failures)] if has_failures else []
        rows.append((printable(clean(name)), str(scores.cases), mean, passes, *more))
    yield ""
    yield "EVALUATORS"
    yield from table(rows)
    if (more_evaluators := len(found) - MAX_GROUPS) > 0:
        yield f"  and {more_evaluators} more"


def _group_lines(groups: Groups, trials: int, clean: Clean) -> Iterator[str]:
    """Yield the figures of each group of cases."""
    key, found = printable(clean(groups.key)), groups.groups
    yield ""
    yield f"BY {key}"
    if all(name is None for name in found):
        known = sorted({*FIELDS, *map(clean, groups.known_keys)})
        yield from wrap(f"  no result has {key!r} ({nearest(key, known)})")
        return
    rows = [("name", "n", "mean", "95% interval", "pass")]
    for name, figures in list(found.items())[:MAX_GROUPS]:
        shown = f"(no {key})" if name is None else printable(clean(name))
        passes = f"{figures.passes:.0f}/{figures.cases}" if trials == 1 else _number(figures.pass_rate)
        rows.append((shown, str(figures.cases), _number(figures.mean), _interval(figures), passes))
    yield from table(rows)
    if (more := len(found) - MAX_GROUPS) > 0:
        yield f"  and {more} more groups, each as large or smaller"


def _interval(figures: Figures) -> str:
    interval = figures.interval
    if interval is None:
        return "one case" if figures.cases == 1 else "no variation"
    return f"{_number(interval[0])} to {_number(interval[1])}"


def _failure_lines(summary: Summary, clean: Clean, results: Path | None) -> Iterator[str]:
    """Yield the worst cases that were scored and did not pass, and how to see all of them."""
    worst, count = summary.failures.worst, summary.failures.count
    if not worst:
        return
    what = "runs" if summary.trials > 1 else "cases"
    yield ""
    yield f"FAILURES ({count})" if count <= len(worst) else f"FAILURES (the worst of {count} {what})"
    for case in worst:
        yield from _failed_case_lines(case, clean)
    if results is not None:
        yield f"  show all: agentv show {shlex.quote(str(results))} --failed"


def _failed_case_lines(case: FailedCase, clean: Clean) -> Iterator[str]:
    trial = f", trial {case.trial}" if case.trial else ""
    yield f"  {_number(case.score)}  {printable(clean(case.eval_id))}{trial}"
    for miss in case.misses:
        yield from wrap(f"         - {miss}", indent=" " * 11)
    yield shorten(f"         answer: {case.answer or '(empty)'}", WIDTH)


def _pass_lines(summary: Summary) -> Iterator[str]:
    """Yield how many cases pass; with trials, how often one of k passes and how often all do."""
    trials, complete = summary.trials, summary.complete
    if trials == 1:
        yield f"  pass {summary.passes.get(1, 0)}/{complete}{_between(summary.pass_at_interval(1))}"
        return
    if incomplete := summary.cases - complete:
        yield f"  left out of pass@k and pass^k: {_cases(incomplete)} with fewer than {trials} trials"
    if not complete:
        return
    for k in _shown_k(trials):
        yield f"  pass@{k} {_number(summary.pass_at(k))}{_bootstrap_text(summary.pass_at_interval(k))}"
        if k > 1:  # else they are the same
            yield f"  pass^{k} {_number(summary.pass_all(k))}{_bootstrap_text(summary.pass_all_interval(k))}"
    if summary.noise is not None:
        yield f"  noise: {_noise(*summary.noise, trials)}"


def _shown_k(trials: int) -> list[int]:
    """Return the k of which pass@k is shown: all if they are few, else 1, 2, 5, 10, 20 and so on, and the last."""
    if trials <= MAX_SHOWN_TRIALS:
        return list(range(1, trials + 1))
    steps = (step * 10**power for power in range(len(str(trials))) for step in (1, 2, 5))
    return [*(k for k in steps if k < trials), trials]


def _noise(between: float, within: float, trials: int) -> str:
    """Return where the uncertainty of the mean comes from, and what reduces it."""
    left = within / trials
    if not between + left:
        return "none, all runs of all cases scored the same"
    advice = "more trials buy little: add cases" if left / (between + left) < SMALL else "more trials help, as do cases"
    return f"variance {between:.4f} between cases, {within:.4f} within ({left:.4f} over {trials} trials); {advice}"


def _between(interval: tuple[float, float]) -> str:
    return f" (95% interval {_number(interval[0])} to {_number(interval[1])})"


def _bootstrap_text(interval: tuple[float, float]) -> str:
    """Return the interval; resampling gives none if all the cases are alike."""
    return _between(interval) if interval[0] < interval[1] else " (alike in every case)"


def _cases(count: int) -> str:
    return "1 case" if count == 1 else f"{count} cases"


def _cut(text: str) -> str:
    return text if len(text) <= ERROR_CHARACTERS else f"{text[:ERROR_CHARACTERS]}…"


def _number(value: float) -> str:
    return f"{value:.3f}"
