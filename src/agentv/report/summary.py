"""Format the summary that `agentv eval` prints. All lines fit a narrow terminal."""

import math
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from agentv.files.printable import printable
from agentv.report.layout import WIDTH, table, wrap, wrap_terms
from agentv.report.money import spent_text
from agentv.results.failures import FailedCase
from agentv.results.groups import MAX_GROUPS, Groups
from agentv.results.summary import BINS, ErrorGroup, Summary
from agentv.results.usage import Usage
from agentv.text import format_count, format_duration, format_money, join_names, plural, truncate, truncate_to_width

BAR = 40
"""The length of the longest bar of the histogram."""
ERROR_CHARACTERS = 400
MAX_SHOWN_TRIALS = 5
"""With more trials, pass@k is shown only for some k."""
MAX_MASKED_NAMES = 5
SMALL = 1 / 3
"""Below this share of the variance, more trials would reduce it only slightly."""
NO_VARIATION = "no interval: all scores are equal"
INTERVAL = "95% interval"
Clean = Callable[[str], str]


def summary_lines(summary: Summary, clean: Clean = str, results: Path | None = None) -> Iterable[str]:
    """Yield the lines of a summary.

    `clean` masks secrets in ids and errors. `results` is the results file, if the user can look into it.
    """
    if summary.errors:
        errors = summary.failed + summary.machine_failures
        yield f"ERRORS ({errors})"
        yield from _reason_lines(summary.errors, errors, clean)
        yield ""
    if summary.unjudged:
        yield f"NOT JUDGED ({summary.judge_failures})"
        yield from _reason_lines(summary.unjudged, summary.judge_failures, clean)
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
    yield from _scale_lines(summary, clean)
    if summary.groups is not None:
        yield from _group_lines(summary.groups, summary.trials, clean)
    if summary.scored_mean is None:
        # every score is 0 because there was nothing to score: the reasons are listed above
        return
    yield ""
    yield "DISTRIBUTION"
    yield from _histogram_lines(summary)
    yield from _failure_lines(summary, clean, results)
    yield from _ranking_lines(summary, clean)


def _ranking_lines(summary: Summary, clean: Clean) -> Iterator[str]:
    """Yield the best and the worst cases. If there are too few for two lists, yield all of them in one list."""
    ranking = summary.ranking
    sections = [("TOP", summary.top), ("BOTTOM", summary.bottom)]
    if ranking is not None:
        all_cases = "the only case"
        if len(ranking) > 1:
            all_cases = f"all {len(ranking)} cases"
        sections = [(f"TOP AND BOTTOM ({all_cases})", ranking)]
    for title, cases in sections:
        yield ""
        yield title
        for eval_id, score in cases:
            yield f"  {_number(score)}  {clean(eval_id)}"


def _reason_lines(reasons: Mapping[str, ErrorGroup], cases: int, clean: Clean) -> Iterator[str]:
    """Yield the reasons why cases have no score, the most frequent first."""
    groups = list(reasons.items())
    groups.sort(key=lambda item: -item[1].cases)
    for reason, group in groups:
        one_line = " ".join(clean(reason).split())
        text = truncate(one_line, ERROR_CHARACTERS)
        if group.cases == 1:
            yield from wrap(f"  {clean(group.first)}: {text}")
        else:
            yield from wrap(f"  {group.cases} cases: {text} (first case: {clean(group.first)})")
    shown = sum(group.cases for _, group in groups)
    more = cases - shown
    if more > 0:
        yield f"  and {more} more, see the results file"


def _ledger_lines(summary: Summary) -> Iterator[str]:
    """Yield the number of planned runs and of runs with each outcome. Outcomes that did not occur are omitted."""
    trials = summary.trials
    planned = "planned"
    if trials > 1:
        cases = plural(summary.cases + summary.invalid, "case")
        planned = f"runs planned ({cases}, {trials} trials each)"
    terms = []
    for outcome, count in summary.ledger.items():
        if count:
            terms.append(plural(count, outcome.removesuffix("s"), outcome))
    yield from wrap_terms(f"  {summary.planned} {planned} = ", terms or ["0"], "+")
    if summary.skipped:
        yield f"  {plural(summary.skipped, 'case')} skipped (--verbose shows why)"
    if summary.no_case:
        answers = plural(summary.no_case, "answer does", "answers do")
        yield f"  {answers} not match any case in these eval files"


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
    errors = summary.failed + summary.failed_earlier
    unjudged = summary.judge_failures + summary.judge_failures_earlier
    if errors or unjudged:
        best = _number(summary.best_mean or mean)
        yield from wrap(f"  {_unscored_text(errors, unjudged)} (the mean could be up to {best})")
        if summary.scored_mean is not None:
            yield f"  the mean of the scored results is {_number(summary.scored_mean)}"
    lowest = summary.lowest[0][1]
    highest = summary.top[0][1]
    yield f"  median {_number(summary.median or 0.0)}, min {_number(lowest)}, max {_number(highest)}"
    if deviation is not None:
        yield f"  standard deviation {_number(deviation)}"


def _unscored_text(errors: int, unjudged: int) -> str:
    """Say how results that could not be scored count in the mean."""
    texts = []
    if errors == 1:
        texts.append("1 result without a score counts as 0")
    elif errors:
        texts.append(f"{errors} results without a score count as 0")
    if unjudged:
        results = plural(unjudged, "result")
        texts.append(f"in {results} not judged, evaluators that could not judge count as 0")
    return "; ".join(texts)


def _pass_lines(summary: Summary) -> Iterator[str]:
    """Yield the number of passed cases. With trials, yield pass@k and pass^k instead."""
    trials = summary.trials
    complete = summary.complete
    if trials == 1:
        yield f"  pass {summary.passes.get(1, 0)}/{complete}{_interval_text(summary.pass_at_interval(1))}"
        return
    incomplete = summary.cases - complete
    if incomplete:
        yield f"  excluded from pass@k and pass^k: {plural(incomplete, 'case')} with fewer than {trials} trials"
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
        return "none, all runs of all cases have the same score"
    advice = "add trials or cases to reduce it"
    if remaining / (between + remaining) < SMALL:
        advice = "add cases to reduce it; more trials would help little"
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
    retries = spending.retries
    if retries.known:
        yield f"  {plural(retries.known, 'failed attempt')} cost {format_money(retries.usd)}"
    quantiles = usage.duration_quantiles
    if quantiles is not None:
        p50, p95 = quantiles
        durations = f"p50 {format_duration(p50)}, p95 {format_duration(p95)}"
        yield f"  duration {durations}{_known_of(len(usage.durations), usage.answers)}"
    if summary.empty_answers:
        yield f"  {plural(summary.empty_answers, 'answer is', 'answers are')} empty"
    if summary.cut_off_answers:
        yield f"  {plural(summary.cut_off_answers, 'answer was', 'answers were')} cut off at the token limit"
    if summary.noted_results:
        yield f"  {plural(summary.noted_results, 'result has', 'results have')} a note: see 'agentv show'"
    if summary.masked_results:
        yield from wrap(f"  {_masked_text(summary)}")


def _masked_text(summary: Summary) -> str:
    """Return how many results are masked, and the names of the secrets."""
    results = plural(
        summary.masked_results,
        "result has masked text: it contains",
        "results have masked text: they contain",
    )
    values = "the value"
    if len(summary.masked_names) > 1:
        values = "the values"
    names = join_names(sorted(summary.masked_names), MAX_MASKED_NAMES)
    return f"{results} {values} of {names}"


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
    """Return the number of answers with a known figure, or an empty string if it is known for all."""
    if known == answers:
        return ""
    return f" (reported for {known} of {answers} answers)"


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
    for name, (scores, failures, _) in list(found.items())[:MAX_GROUPS]:
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


def _scale_lines(summary: Summary, clean: Clean) -> Iterator[str]:
    """Yield one line for each evaluator that answers on another scale."""
    for name, figures in summary.evaluators.items():
        if figures.off_scale is None:
            continue
        count, extreme = figures.off_scale
        scores = plural(count, "score")
        yield f"  {printable(clean(name))}: {scores} outside the range 0 to 1, for example {extreme:.12g}"


def _group_lines(groups: Groups, trials: int, clean: Clean) -> Iterator[str]:
    """Yield a table with the figures of each group of cases."""
    keys = [printable(clean(key)) for key in groups.keys]
    found = groups.groups
    yield ""
    yield f"BY {', '.join(keys)}"
    for key in groups.missing_keys(found):
        yield from wrap(f"  no result has {printable(clean(key))!r} ({clean(groups.nearest_keys(key))})")
    if not found or len(groups.missing_keys(found)) == len(keys):
        return
    rows = [("name", "n", "mean", INTERVAL, "pass", INTERVAL)]
    for name, figures in list(found.items())[:MAX_GROUPS]:
        shown_name = []
        for key, value in zip(keys, name, strict=True):
            if value is None:
                shown_name.append(f"(no {key})")
            else:
                shown_name.append(printable(clean(value)))
        passes = _number(figures.pass_rate)
        if trials == 1:
            passes = f"{figures.passes:.0f}/{figures.cases}"
        row = (
            " / ".join(shown_name),
            str(figures.cases),
            _number(figures.mean),
            _group_interval(figures.interval, figures.cases),
            passes,
            _group_interval(figures.pass_interval, figures.cases),
        )
        rows.append(row)
    yield from table(rows)
    more = len(found) - MAX_GROUPS
    if more > 0:
        yield f"  and {more} more groups of the same size or smaller"


def _group_interval(interval: tuple[float, float] | None, cases: int) -> str:
    if interval is not None:
        low, high = interval
        return f"{_number(low)} to {_number(high)}"
    if cases == 1:
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
        yield from _show_all_lines(results)


def _show_all_lines(results: Path) -> Iterator[str]:
    """Yield the command that shows all failures. Two lines are joined by a backslash, so that they can be pasted."""
    file = shlex.quote(str(results))
    line = f"  show all: agentv show {file} --failed"
    if len(line) <= WIDTH:
        yield line
        return
    yield "  show all: agentv show --failed \\"
    yield f"    {file}"


def _failed_case_lines(case: FailedCase, clean: Clean) -> Iterator[str]:
    trial = ""
    if case.trial:
        trial = f", trial {case.trial}"
    yield f"  {_number(case.score)}  {printable(clean(case.eval_id))}{trial}"
    if case.failed_required:
        yield from wrap(f"         failed required checks: {case.failed_required}", indent=" " * 11)
    for miss in case.misses:
        yield from wrap(f"         - {miss}", indent=" " * 11)
    answer = case.answer or "(empty)"
    yield truncate_to_width(f"         answer: {answer}", WIDTH)


def _interval_text(interval: tuple[float, float]) -> str:
    low, high = interval
    return f" (95% interval {_number(low)} to {_number(high)})"


def _bootstrap_text(interval: tuple[float, float]) -> str:
    """Return a bootstrap interval. It has no width if all cases are alike."""
    low, high = interval
    if low < high:
        return _interval_text(interval)
    return " (no interval: all cases are alike)"


def _number(value: float) -> str:
    return f"{value:.3f}"
