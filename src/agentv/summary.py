"""Results as they come -> a summary in words and figures. What is held is one number a case."""

import math
from array import array
from bisect import insort
from collections import Counter
from collections.abc import Callable, Iterable

from agentv.distributions import t_quantile
from agentv.records import EvalResult

BINS = ("[0,0.2)", "[0.2,0.4)", "[0.4,0.6)", "[0.6,0.8)", "[0.8,1.0]")
SHOWN_ERRORS = 50
BAR = 40
ERROR_CHARACTERS = 400


class Summary:
    """Counts results and tells what they come to."""

    def __init__(self, planned: int, invalid: int = 0):
        self.planned, self.invalid = planned + invalid, invalid
        self.target_errors = self.timeouts = self.judge_failures = self.already_done = 0
        self.errors: list[tuple[str, str]] = []
        self.room = 0.0
        """How much higher the sum of the scores could be, had every case been scored."""
        self._scores = array("d")
        self._top: list[tuple[float, str]] = []
        self._bottom: list[tuple[float, str]] = []

    def add(self, result: EvalResult) -> None:
        """Count a result of this run."""
        if result.error is not None:
            if result.failure == "timeout":
                self.timeouts += 1
            else:
                self.target_errors += 1
            if len(self.errors) < SHOWN_ERRORS:
                self.errors.append((result.eval_id, result.error))
        elif result.judge_failed:
            self.judge_failures += 1
        if result.error is not None or result.judge_failed:
            self.room += 1 - result.score
        self._count(result.score, result.eval_id)

    def add_earlier(self, score: float, eval_id: str) -> None:
        """Count a result of the run that this one resumes."""
        self.already_done += 1
        self._count(score, eval_id)

    def _count(self, score: float, eval_id: str) -> None:
        self._scores.append(score)
        for best, key in ((self._top, -score), (self._bottom, score)):
            if len(best) < 3 or (key, eval_id) < best[-1]:
                insort(best, (key, eval_id))
                del best[3:]

    @property
    def done(self) -> int:
        return len(self._scores)

    @property
    def unscored(self) -> int:
        """How many results are no judgement of an answer; they count as 0."""
        return self.target_errors + self.timeouts + self.judge_failures

    @property
    def failed(self) -> int:
        """How many cases ended in an error."""
        return self.target_errors + self.timeouts

    @property
    def mean(self) -> float | None:
        return math.fsum(self._scores) / self.done if self.done else None

    @property
    def deviation(self) -> float | None:
        """The sample's standard deviation, from two results on."""
        if self.done < 2:
            return None
        mean = math.fsum(self._scores) / self.done
        return math.sqrt(math.fsum((score - mean) ** 2 for score in self._scores) / (self.done - 1))

    @property
    def interval(self) -> tuple[float, float] | None:
        """The 95% confidence interval of the mean."""
        if self.deviation is None or self.mean is None:
            return None
        half = t_quantile(0.975, self.done - 1) * self.deviation / math.sqrt(self.done)
        return max(0.0, self.mean - half), min(1.0, self.mean + half)

    @property
    def median(self) -> float | None:
        if not self.done:
            return None
        low, high = (self._ranked(rank) for rank in ((self.done - 1) // 2, self.done // 2))
        return (low + high) / 2

    def _ranked(self, rank: int) -> float:
        """The score at this rank. Only the distinct scores of one narrow bucket are sorted, to save memory."""
        buckets = Counter(int(score * 1023) for score in self._scores)
        for number in sorted(buckets):
            if rank < buckets[number]:
                break
            rank -= buckets[number]
        inside = Counter(score for score in self._scores if int(score * 1023) == number)
        for score in sorted(inside):
            if rank < inside[score]:
                break
            rank -= inside[score]
        return score

    @property
    def histogram(self) -> tuple[int, ...]:
        """How many scores fall into each of `BINS`."""
        counts = [0] * len(BINS)
        for score in self._scores:
            counts[sum(score >= edge for edge in (0.2, 0.4, 0.6, 0.8))] += 1
        return tuple(counts)

    @property
    def top(self) -> list[tuple[str, float]]:
        """The three best cases, the same ones every time: ties go by id."""
        return [(eval_id, -key) for key, eval_id in self._top]

    @property
    def bottom(self) -> list[tuple[str, float]]:
        """The three worst cases."""
        return [(eval_id, key) for key, eval_id in self._bottom]

    @property
    def ledger(self) -> dict[str, int]:
        """Where every planned case went; the counts add up to `planned`."""
        scored = self.done - self.unscored - self.already_done
        counted = {
            "scored": scored,
            "target errors": self.target_errors,
            "judge failures": self.judge_failures,
            "timeouts": self.timeouts,
            "skipped as invalid": self.invalid,
            "already done": self.already_done,
        }
        if rest := self.planned - sum(counted.values()):
            counted["not run"] = rest
        return counted


def summary_lines(summary: Summary, clean: Callable[[str], str] = str) -> Iterable[str]:
    """The summary as a person reads it; `clean` takes secrets out of ids and errors."""
    if summary.errors:
        yield f"ERRORS ({summary.failed})"
        yield from (f"  {clean(eval_id)}: {_cut(' '.join(clean(error).split()))}" for eval_id, error in summary.errors)
        if (more := summary.failed - len(summary.errors)) > 0:
            yield f"  and {more} more, in the results"
        yield ""
    yield "SUMMARY"
    ledger = " + ".join(f"{count} {what}" for what, count in summary.ledger.items())
    yield f"  {summary.planned} planned = {ledger}"
    mean, interval, deviation = summary.mean, summary.interval, summary.deviation
    if mean is None:
        yield "  no results"
        return
    between = f" (95% interval {_number(interval[0])} to {_number(interval[1])})" if interval else ""
    yield f"  mean {_number(mean)}{between}"
    if summary.unscored:
        best = mean + summary.room / summary.done
        could = f"{_number(mean)} to {_number(best)}"
        yield f"  {summary.unscored} without a score; had they run, the mean could be {could}"
    least, most = summary.bottom[0][1], summary.top[0][1]
    spread = f", standard deviation {_number(deviation)}" if deviation is not None else ""
    yield f"  median {_number(summary.median or 0.0)}, min {_number(least)}, max {_number(most)}{spread}"
    yield ""
    yield "DISTRIBUTION"
    largest = max(summary.histogram)
    for name, count in zip(BINS, summary.histogram, strict=True):
        yield f"  {name:9} {'█' * math.ceil(count / largest * BAR)}{' ' if count else ''}{count}"
    for title, cases in (("TOP", summary.top), ("BOTTOM", summary.bottom)):
        yield ""
        yield title
        yield from (f"  {_number(score)}  {clean(eval_id)}" for eval_id, score in cases)


def _cut(text: str) -> str:
    return text if len(text) <= ERROR_CHARACTERS else f"{text[:ERROR_CHARACTERS]}…"


def _number(value: float) -> str:
    return f"{value:.3f}"
