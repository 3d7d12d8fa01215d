"""Results as they come -> the figures of a run. What is held is one number a case."""

import math
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from agentv.results.failures import Failures, HasAnswer
from agentv.results.groups import EvaluatorFigures, Evaluators, Groups
from agentv.results.spending import HasMoney, Spending
from agentv.results.tally import Tally
from agentv.results.usage import Metrics, Usage
from agentv.stats.inference import interval_of_mean
from agentv.stats.pass_rates import bootstrap_interval, pass_all, pass_at, wilson
from agentv.stats.quantiles import quantiles

EDGES = (0.2, 0.4, 0.6, 0.8)
BINS = ("[0,0.2)", "[0.2,0.4)", "[0.4,0.6)", "[0.6,0.8)", "[0.8,1.0]")
SHOWN_ERRORS = 50
Estimate = Callable[[int, int, int], float]
"""What a case adds to a pass rate, by k, by how many of its trials passed, and by how many there were."""


class HasScore(HasAnswer, Protocol):
    """What a summary needs of a result: an `EvalResult`, or a view of one in a file."""

    @property
    def verdict(self) -> str | None: ...
    @property
    def error(self) -> str | None: ...
    @property
    def failure(self) -> str | None: ...
    @property
    def stop_reason(self) -> str | None: ...
    @property
    def note(self) -> str | None: ...
    @property
    def evaluator_results(self) -> Sequence[Any]: ...
    @property
    def execution_metrics(self) -> Metrics | None: ...
    @property
    def metadata(self) -> Mapping[str, Any] | None: ...


class HasNames(HasScore, HasMoney, Protocol):
    """A result that says itself which case it is of."""

    @property
    def eval_id(self) -> str: ...
    @property
    def dataset(self) -> str: ...


class ErrorGroup(NamedTuple):
    """Cases that ended in the same error: the first of them, and how many they are."""

    first: str
    cases: int = 1


class Summary:
    """Counts results and computes their figures. The unit of all figures is the case, however often it is run.

    `clean` masks secrets in names, so that results from a file and new ones of the same case are counted together,
    and in the texts that are held. `by` is what cases are grouped by: a field, or a key of the metadata.
    """

    def __init__(
        self,
        cases: int,
        invalid: int = 0,
        trials: int = 1,
        clean: Callable[[str], str] = str,
        by: str | None = None,
    ):
        self.cases, self.invalid, self.trials = cases, invalid, trials
        self.target_errors = self.timeouts = self.judge_failures = self.already_done = 0
        self.unscored_earlier = 0
        self.no_answer = self.no_case = 0
        """Of answers that are graded again: how many are missing, and how many nobody asked for."""
        self.why_not_run = ""
        """What kept cases from being run, if it is known."""
        self._scored = 0.0
        self.errors: dict[str, ErrorGroup] = {}
        """Equal errors, by what they say; only the first are told apart."""
        self._tally = Tally(trials)
        self._clean = clean
        self.failures, self.usage, self._evaluators = Failures(clean), Usage(), Evaluators()
        self.groups = Groups(by, trials) if by is not None else None
        self.spending = Spending()
        self.empty_answers = self.cut_off_answers = self.noted_results = 0

    def add(self, result: HasNames) -> None:
        """Count a result of this run."""
        failure = result.failure
        if result.error is not None:
            if failure == "timeout":
                self.timeouts += 1
            else:
                self.target_errors += 1
            if (group := self.errors.get(result.error)) is not None:
                self.errors[result.error] = group._replace(cases=group.cases + 1)
            elif len(self.errors) < SHOWN_ERRORS:
                self.errors[result.error] = ErrorGroup(result.eval_id)
        elif failure is not None:
            self.judge_failures += 1
        self.spending.add(result)
        names = result.dataset, result.eval_id
        if self.trials > 1:
            names = self._clean(result.dataset), self._clean(result.eval_id)
        self._count(names, result, unscored=failure is not None)

    def add_all(self, results: Sequence[HasNames]) -> None:
        """Count results of this run, by columns where none is an error and no case has trials: in half the time."""
        is_plain = self.trials == 1 and self.groups is None
        if not is_plain or any(result.error is not None or result.failure is not None for result in results):
            for result in results:
                self.add(result)
            return
        scores, failed = [result.score for result in results], [each for each in results if each.verdict != "pass"]
        self._scored += sum(scores)
        self._tally.add_all([result.eval_id for result in results], scores, len(results) - len(failed))
        for result in failed:
            self.failures.add((result.dataset, result.eval_id), result)
        for result in results:
            self.spending.add(result)
            self._evaluators.add(result.evaluator_results)
        answers, reasons = [each.candidate_answer for each in results], [each.stop_reason for each in results]
        self.usage.add_all([each.execution_metrics for each in results])
        self.empty_answers += len([answer for answer in answers if not answer or answer.isspace()])
        self.cut_off_answers += reasons.count("length")
        self.noted_results += len([each for each in results if each.note is not None and each.stop_reason != "length"])

    def add_earlier(self, names: tuple[str, str], result: HasScore) -> None:
        """Count a result of the run that this one resumes; `names` are the dataset and the id."""
        self.already_done += 1
        self.unscored_earlier += result.failure is not None
        self._count(names, result, unscored=result.failure is not None)

    def _count(self, names: tuple[str, str], result: HasScore, *, unscored: bool) -> None:
        self._scored += 0.0 if unscored else result.score
        room = 1 - result.score if unscored else 0.0
        passed = result.verdict == "pass"
        self._tally.add(names, result.score, room, passed=passed)
        if not unscored and not passed:
            self.failures.add(names, result)
        if self.groups is not None:
            self.groups.add(names, result, passed=passed)
        self.noted_results += result.note is not None and result.stop_reason != "length"
        if result.error is None:
            self._count_answer(result)
        elif result.execution_metrics is not None:
            self.usage.add(result.execution_metrics)  # what has failed may have cost something

    def _count_answer(self, result: HasScore) -> None:
        self.usage.add(result.execution_metrics)
        self._evaluators.add(result.evaluator_results)
        self.empty_answers += not result.candidate_answer or result.candidate_answer.isspace()
        self.cut_off_answers += result.stop_reason == "length"

    @property
    def evaluators(self) -> dict[str, EvaluatorFigures]:
        """The figures of each evaluator."""
        return self._evaluators.figures

    @property
    def planned(self) -> int:
        """How many runs of cases are planned."""
        return (self.cases + self.invalid) * self.trials

    @property
    def done(self) -> int:
        """How many runs of cases have a result."""
        return self._tally.runs

    @property
    def answered(self) -> int:
        """How many cases have a result, for one of their trials at least."""
        return len(self._tally.means)

    @property
    def unscored(self) -> int:
        """How many results are no judgement of an answer; they count as 0."""
        return self.target_errors + self.timeouts + self.judge_failures

    @property
    def scored_mean(self) -> float | None:
        """The mean of the runs that were scored."""
        scored = self.done - self.unscored - self.unscored_earlier
        return self._scored / scored if scored else None

    @property
    def failed(self) -> int:
        """How many runs ended in an error."""
        return self.target_errors + self.timeouts

    @property
    def mean(self) -> float | None:
        means = self._tally.means
        return math.fsum(means) / len(means) if means else None

    @property
    def best_mean(self) -> float | None:
        """What the mean could be at best, had all that ran been scored."""
        means = self._tally.means
        return (math.fsum(means) + self._tally.room) / len(means) if means else None

    @property
    def deviation(self) -> float | None:
        """The standard deviation of the sample of cases, from two on."""
        means = self._tally.means
        return math.sqrt(_variance(means)) if len(means) > 1 else None

    @property
    def interval(self) -> tuple[float, float] | None:
        """The 95% confidence interval of the mean; None if there is no variation to estimate it from."""
        mean, deviation = self.mean, self.deviation
        if deviation is None or mean is None:
            return None
        return interval_of_mean(mean, deviation, len(self._tally.means))

    @property
    def median(self) -> float | None:
        means = self._tally.means
        return quantiles(means, [0.5])[0] if means else None

    @property
    def histogram(self) -> tuple[int, ...]:
        """How many cases fall into each of `BINS`."""
        counts = [0] * len(BINS)
        for score in self._tally.means:
            counts[bisect_right(EDGES, score)] += 1
        return tuple(counts)

    @property
    def top(self) -> list[tuple[str, float]]:
        """The three best cases, the same ones every time: ties go by id."""
        return self._tally.top

    @property
    def bottom(self) -> list[tuple[str, float]]:
        """The three worst cases."""
        return self._tally.bottom

    @property
    def complete(self) -> int:
        """How many cases have a result for each of their trials; the others have no part in pass@k and pass^k."""
        return len(self._tally.complete)

    @property
    def passes(self) -> dict[int, int]:
        """How many complete cases passed in so many of their trials."""
        return dict(sorted(self._tally.passes.items()))

    def pass_at(self, k: int) -> float:
        """pass@k: how probable it is that one of k trials passes, over the cases; NaN if there were fewer than k."""
        return self._mean_of(pass_at, k)

    def pass_all(self, k: int) -> float:
        """pass^k: how probable it is that k trials all pass, over the cases; NaN if there were fewer than k."""
        return self._mean_of(pass_all, k)

    def _mean_of(self, estimate: Estimate, k: int) -> float:
        total = math.fsum(cases * estimate(k, passes, self.trials) for passes, cases in self.passes.items())
        return total / self.complete if self.complete else math.nan

    def pass_at_interval(self, k: int) -> tuple[float, float]:
        """The 95% interval of pass@k."""
        return self._interval_of(pass_at, k)

    def pass_all_interval(self, k: int) -> tuple[float, float]:
        """The 95% interval of pass^k."""
        return self._interval_of(pass_all, k)

    def _interval_of(self, estimate: Estimate, k: int) -> tuple[float, float]:
        passes = self.passes
        if not self.complete or not 1 <= k <= self.trials:
            return math.nan, math.nan
        if self.trials == 1:
            return wilson(passes.get(1, 0), self.complete)
        return bootstrap_interval([*passes.values()], [estimate(k, count, self.trials) for count in passes])

    @property
    def noise(self) -> tuple[float, float] | None:
        """The variance between cases, and that of the trials within a case; known from two of each on."""
        if self.trials < 2 or self.complete < 2:
            return None
        within = self._tally.within
        return max(0.0, _variance(self._tally.complete) - within / self.trials), within

    @property
    def not_run(self) -> int:
        """How many planned runs have no result, and no reason for it."""
        return self.planned - self.done - self.invalid * self.trials - self.no_answer

    @property
    def ledger(self) -> dict[str, int]:
        """How many planned runs ended in which way; the counts add up to `planned`."""
        scored = self.done - self.unscored - self.already_done
        counted = {
            "scored": scored,
            "target errors": self.target_errors,
            "judge failures": self.judge_failures,
            "timeouts": self.timeouts,
            "skipped as invalid": self.invalid * self.trials,
            "already done": self.already_done,
            "no answer": self.no_answer,
        }
        if rest := self.not_run:
            counted[f"not run ({self.why_not_run})" if self.why_not_run else "not run"] = rest
        return counted


def _variance(values: Sequence[float]) -> float:
    """Return the variance of a sample of two or more."""
    mean = math.fsum(values) / len(values)
    return math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1)
