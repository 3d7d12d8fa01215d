"""A summary -> the lines that `agentv eval` prints."""

import math
from collections.abc import Callable, Iterable, Iterator

from agentv.results.summary import BINS, Summary

BAR = 40


ERROR_CHARACTERS = 400


MAX_SHOWN_TRIALS = 5


SMALL = 1 / 3


def summary_lines(summary: Summary, clean: Callable[[str], str] = str) -> Iterable[str]:
    """Yield the lines of a summary; `clean` masks secrets in ids and errors."""
    if summary.errors:
        yield f"ERRORS ({summary.failed})"
        yield from (f"  {clean(eval_id)}: {_cut(' '.join(clean(error).split()))}" for eval_id, error in summary.errors)
        if (more := summary.failed - len(summary.errors)) > 0:
            yield f"  and {more} more, in the results"
        yield ""
    yield "SUMMARY"
    ledger = " + ".join(f"{count} {what}" for what, count in summary.ledger.items())
    trials = summary.trials
    runs = (
        f"runs planned ({_cases(summary.cases + summary.invalid)}, {trials} trials each)" if trials > 1 else "planned"
    )
    yield f"  {summary.planned} {runs} = {ledger}"
    mean, interval, deviation = summary.mean, summary.interval, summary.deviation
    if mean is None:
        yield "  no results"
        return
    yield f"  mean {_number(mean)}{_between(interval) if interval else ''}"
    if without := summary.unscored + summary.unscored_earlier:
        could = f"{_number(mean)} to {_number(summary.best_mean or mean)}"
        yield f"  {without} without a score; had they run, the mean could be {could}"
        if summary.scored_mean is not None:
            yield f"  the mean of those with a score is {_number(summary.scored_mean)}"
    least, most = summary.bottom[0][1], summary.top[0][1]
    spread = f", standard deviation {_number(deviation)}" if deviation is not None else ""
    yield f"  median {_number(summary.median or 0.0)}, min {_number(least)}, max {_number(most)}{spread}"
    yield from _pass_lines(summary)
    yield ""
    yield "DISTRIBUTION"
    largest = max(summary.histogram)
    for name, count in zip(BINS, summary.histogram, strict=True):
        yield f"  {name:9} {'█' * math.ceil(count / largest * BAR)}{' ' if count else ''}{count}"
    for title, cases in (("TOP", summary.top), ("BOTTOM", summary.bottom)):
        yield ""
        yield title
        yield from (f"  {_number(score)}  {clean(eval_id)}" for eval_id, score in cases)


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
        line = f"  pass@{k} {_number(summary.pass_at(k))}{_bootstrap_text(summary.pass_at_interval(k))}"
        if k > 1:  # else they are the same
            line += f", pass^{k} {_number(summary.pass_all(k))}{_bootstrap_text(summary.pass_all_interval(k))}"
        yield line
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
