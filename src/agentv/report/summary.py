"""Format the summary that `agentv eval` prints. All lines fit a narrow terminal."""

import math
import shlex
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from agentv.errors import nearest
from agentv.formats.printable import printable
from agentv.report.layout import WIDTH, shorten, table, wrap, wrap_terms
from agentv.report.money import spent_text
from agentv.report.quantities import counted, format_count, format_duration, format_money
from agentv.results.failures import FailedCase
from agentv.results.groups import FIELDS, MAX_GROUPS, Figures, Groups
from agentv.results.summary import BINS, Summary
from agentv.results.usage import Usage

BAR = 40
"""The length of the longest bar of the histogram."""
ERROR_CHARACTERS = 400
MAX_SHOWN_TRIALS = 5
"""With more trials, pass@k is shown only for some k."""
SMALL = 1 / 3
"""Below this share of the variance, more trials would reduce it only slightly."""
NO_VARIATION = "no interval: no variation to estimate it from"
Clean = Callable[[str], str]


def summary_lines(summary: Summary, clean: Clean = str, results: Path | None = None) -> Iterable[str]:
    """Yield the lines of a summary.

    `clean` masks secrets in ids and errors. `results` is the results file, if the user can look into it.
    """
    if summary.errors:
        yield from _error_lines(summary, clean)
        yield ""
    yield "SUMMARY"
    yield from _ledger_lines(summary)
    if summary.mean is None:
        yield "  no results"
        return
    for lines in (
        _score_lines(summary, summary.mean),
        _pass_lines(summary),
        _answer_lines(summary),
    ):
        for line in lines:
            yield from wrap(line)
    yield from _evaluator_lines(summary, clean)
    if summary.groups is not None:
        yield from _group_lines(summary.groups, summary.trials, clean)
    yield ""
    yield "DISTRIBUTION"
    yield from _histogram_lines(summary)
    yield from _failure_lines(summary, clean, results)
    for title, cases in (("TOP", summary.top), ("BOTTOM", summary.bottom)):
        yield ""
        yield title
        for eval_id, score in cases:
            yield f"  {_number(score)}  {clean(eval_id)}"


def _error_lines(summary: Summary, clean: Clean) -> Iterator[str]:
    """Yield the errors of targets, the most frequent first."""
    yield f"ERRORS ({summary.failed})"
    groups = list(summary.errors.items())
    groups.sort(key=lambda item: -item[1].cases)
    for error, group in groups:
        one_line = " ".join(clean(error).split())
        text = _truncate(one_line)
        if group.cases == 1:
            yield f"  {clean(group.first)}: {text}"
        else:
            yield f"  {group.cases} × {text}: first case {clean(group.first)}"
    shown = sum(group.cases for _, group in groups)
    more = summary.failed - shown
    if more > 0:
        yield f"  and {more} more, in the results"


def _ledger_lines(summary: Summary) -> Iterator[str]:
    """Yield the number of planned runs and of runs with each outcome. Outcomes that did not occur are omitted."""
    trials = summary.trials
    planned = "planned"
    if trials > 1:
        cases = counted(summary.cases + summary.invalid, "case")
        planned = f"runs planned ({cases}, {trials} trials each)"
    terms = []
    for outcome, count in summary.ledger.items():
        if count == 1:
            terms.append(f"1 {outcome.removesuffix('s')}")
        elif count:
            terms.append(f"{count} {outcome}")
    yield from wrap_terms(f"  {summary.planned} {planned} = ", terms or ["0"], "+")
    if summary.no_case == 1:
        yield "  1 answer is to no case of these eval files"
    elif summary.no_case:
        yield f"  {summary.no_case} answers are to no case of these eval files"


def _score_lines(summary: Summary, mean: float) -> Iterator[str]:
    """Yield the mean with its confidence interval, the median, the range and the standard deviation."""
    deviation = summary.deviation
    interval = summary.interval
    interval_text = ""
    if interval:
        interval_text = _interval_text(interval)
    elif deviation is not None:
        interval_text = f" ({NO_VARIATION})"
    yield f"  mean {_number(mean)}{interval_text}"
    unscored = summary.unscored + summary.unscored_earlier
    if unscored:
        best = _number(summary.best_mean or mean)
        yield f"  {unscored} without a score; had they run, the mean could be {_number(mean)} to {best}"
        if summary.scored_mean is not None:
            yield f"  the mean of those with a score is {_number(summary.scored_mean)}"
    lowest = summary.bottom[0][1]
    highest = summary.top[0][1]
    yield f"  median {_number(summary.median or 0.0)}, min {_number(lowest)}, max {_number(highest)}"
    if deviation is not None:
        yield f"  standard deviation {_number(deviation)}"


def _pass_lines(summary: Summary) -> Iterator[str]:
    """Yield the number of passed cases. With trials, yield pass@k and pass^k instead."""
    trials = summary.trials
    complete = summary.complete
    if trials == 1:
        yield f"  pass {summary.passes.get(1, 0)}/{complete}{_interval_text(summary.pass_at_interval(1))}"
        return
    incomplete = summary.cases - complete
    if incomplete:
        yield f"  left out of pass@k and pass^k: {counted(incomplete, 'case')} with fewer than {trials} trials"
    if not complete:
        return
    for k in _shown_k(trials):
        yield f"  pass@{k} {_number(summary.pass_at(k))}{_bootstrap_text(summary.pass_at_interval(k))}"
        if k > 1:  # pass^1 equals pass@1
            yield f"  pass^{k} {_number(summary.pass_all(k))}{_bootstrap_text(summary.pass_all_interval(k))}"
    noise = summary.noise
    if noise is not None:
        between, within = noise
        yield f"  noise: {_noise(between, within, trials)}"


def _shown_k(trials: int) -> list[int]:
    """Return the values of k to show pass@k for: all if there are few, otherwise 1, 2, 5, 10, 20, … and the last."""
    if trials <= MAX_SHOWN_TRIALS:
        return list(range(1, trials + 1))
    shown = []
    power = 1
    while power < trials:
        for k in (power, 2 * power, 5 * power):
            if k < trials:
                shown.append(k)
        power *= 10
    return [*shown, trials]


def _noise(between: float, within: float, trials: int) -> str:
    """Return how the variance divides between and within cases, and how to reduce it."""
    remaining = within / trials
    if not between + remaining:
        return "none, all runs of all cases scored the same"
    advice = "more trials help, as do cases"
    if remaining / (between + remaining) < SMALL:
        advice = "more trials buy little: add cases"
    return f"variance {between:.4f} between cases, {within:.4f} within ({remaining:.4f} over {trials} trials); {advice}"


def _answer_lines(summary: Summary) -> Iterator[str]:
    """Yield the tokens, cost and duration of the answers, and the number of unusual answers."""
    usage = summary.usage
    yield from _token_lines(usage)
    cost = usage.cost_usd
    if cost.answers:
        yield f"  cost {format_money(cost.sum)}{_known_of(cost.answers, usage.answers)}"
    spending = summary.spending
    if spending.usd is not None:
        # With one target and no judge, it usually is the cost of the answers, which is shown already.
        has_parts = len(spending.parts) > 1
        is_cost = cost.answers and math.isclose(spending.usd, cost.sum)
        if has_parts or not is_cost:
            yield from wrap(f"  {spent_text(spending)}")
    quantiles = usage.duration_quantiles
    if quantiles is not None:
        p50, p95 = quantiles
        durations = f"p50 {format_duration(p50)}, p95 {format_duration(p95)}"
        yield f"  duration {durations}{_known_of(len(usage.durations), usage.answers)}"
    if summary.empty_answers == 1:
        yield "  1 answer is empty"
    elif summary.empty_answers:
        yield f"  {summary.empty_answers} answers are empty"
    if summary.cut_off_answers == 1:
        yield "  1 answer was cut off at the token limit"
    elif summary.cut_off_answers:
        yield f"  {summary.cut_off_answers} answers were cut off at the token limit"
    if summary.noted_results == 1:
        yield "  1 result has a note: 'agentv show' tells it"
    elif summary.noted_results:
        yield f"  {summary.noted_results} results have a note: 'agentv show' tells them"


def _token_lines(usage: Usage) -> Iterator[str]:
    known = []
    for kind, total in (("input", usage.input_tokens), ("output", usage.output_tokens)):
        if total.answers:
            known.append(f"{format_count(total.sum)} {kind}")
    if not known:
        return
    text = ", ".join(known)
    reasoning = usage.reasoning_tokens.sum
    if reasoning:
        text += f", {format_count(reasoning)} of them reasoning"
    answers = max(usage.input_tokens.answers, usage.output_tokens.answers)
    yield f"  tokens {text}{_known_of(answers, usage.answers)}"


def _known_of(known: int, answers: int) -> str:
    """Return how many answers a figure is known for, or an empty string if it is known for all."""
    if known == answers:
        return ""
    return f" (known of {known} of {answers} answers)"


def _evaluator_lines(summary: Summary, clean: Clean) -> Iterator[str]:
    """Yield a table with the figures of each evaluator, if there are several."""
    found = summary.evaluators
    if len(found) < 2:
        return
    has_failures = any(figures.failures for figures in found.values())
    heading = ["name", "n", "mean", "pass"]
    if has_failures:
        heading.append("failed")
    rows = [heading]
    for name, (scores, failures) in list(found.items())[:MAX_GROUPS]:
        mean = ""
        if scores.cases:
            mean = _number(scores.mean)
        passes = f"{scores.passes:.0f}/{scores.cases}"
        row = [printable(clean(name)), str(scores.cases), mean, passes]
        if has_failures:
            row.append(str(failures))
        rows.append(row)
    yield ""
    yield "EVALUATORS"
    yield from table(rows)
    more = len(found) - MAX_GROUPS
    if more > 0:
        yield f"  and {more} more"


def _group_lines(groups: Groups, trials: int, clean: Clean) -> Iterator[str]:
    """Yield a table with the figures of each group of cases."""
    key = printable(clean(groups.key))
    found = groups.groups
    yield ""
    yield f"BY {key}"
    if all(name is None for name in found):
        known = {*FIELDS, *map(clean, groups.known_keys)}
        yield from wrap(f"  no result has {key!r} ({nearest(key, known)})")
        return
    rows = [("name", "n", "mean", "95% interval", "pass")]
    for name, figures in list(found.items())[:MAX_GROUPS]:
        shown_name = f"(no {key})"
        if name is not None:
            shown_name = printable(clean(name))
        passes = _number(figures.pass_rate)
        if trials == 1:
            passes = f"{figures.passes:.0f}/{figures.cases}"
        row = (
            shown_name,
            str(figures.cases),
            _number(figures.mean),
            _group_interval(figures),
            passes,
        )
        rows.append(row)
    yield from table(rows)
    more = len(found) - MAX_GROUPS
    if more > 0:
        yield f"  and {more} more groups, each as large or smaller"


def _group_interval(figures: Figures) -> str:
    interval = figures.interval
    if interval is not None:
        low, high = interval
        return f"{_number(low)} to {_number(high)}"
    if figures.cases == 1:
        return "one case"
    return "no variation"


def _histogram_lines(summary: Summary) -> Iterator[str]:
    histogram = summary.histogram
    largest = max(histogram)
    for name, count in zip(BINS, histogram, strict=True):
        bar = "█" * math.ceil(count / largest * BAR)
        if bar:
            bar += " "
        yield f"  {name:9} {bar}{count}"


def _failure_lines(summary: Summary, clean: Clean, results: Path | None) -> Iterator[str]:
    """Yield the worst cases that were scored and did not pass, and the command that shows all of them."""
    worst = summary.failures.worst
    count = summary.failures.count
    if not worst:
        return
    yield ""
    if count <= len(worst):
        yield f"FAILURES ({count})"
    elif summary.trials > 1:
        yield f"FAILURES (the worst of {count} runs)"
    else:
        yield f"FAILURES (the worst of {count} cases)"
    for case in worst:
        yield from _failed_case_lines(case, clean)
    if results is not None:
        yield f"  show all: agentv show {shlex.quote(str(results))} --failed"


def _failed_case_lines(case: FailedCase, clean: Clean) -> Iterator[str]:
    trial = ""
    if case.trial:
        trial = f", trial {case.trial}"
    yield f"  {_number(case.score)}  {printable(clean(case.eval_id))}{trial}"
    for miss in case.misses:
        yield from wrap(f"         - {miss}", indent=" " * 11)
    answer = case.answer or "(empty)"
    yield shorten(f"         answer: {answer}", WIDTH)


def _interval_text(interval: tuple[float, float]) -> str:
    low, high = interval
    return f" (95% interval {_number(low)} to {_number(high)})"


def _bootstrap_text(interval: tuple[float, float]) -> str:
    """Return a bootstrap interval. It has no width if all cases are alike."""
    low, high = interval
    if low < high:
        return _interval_text(interval)
    return " (alike in every case)"


def _truncate(text: str) -> str:
    if len(text) <= ERROR_CHARACTERS:
        return text
    return f"{text[:ERROR_CHARACTERS]}…"


def _number(value: float) -> str:
    return f"{value:.3f}"
