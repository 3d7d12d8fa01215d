"""Accumulate results into the figures of a run. Memory use is one float per case."""

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
"""Returns the contribution of a case to a pass rate, given k, its passed trials and its trials."""


class HasScore(HasAnswer, Protocol):
    """The fields of a result that a summary needs: an `EvalResult`, or a view from a results file."""

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
    """A result that identifies its case."""

    @property
    def eval_id(self) -> str: ...
    @property
    def dataset(self) -> str: ...


class ErrorGroup(NamedTuple):
    """Cases that ended in the same error: the id of the first, and their number."""

    first: str
    cases: int = 1


class Summary:
    """Counts results and computes the figures of a run. The unit is the case, regardless of its number of trials.

    `clean` masks secrets in the texts that are held, and in names, so that new results and results from a file are
    counted under the same case. `by` is the field or metadata key that cases are grouped by.
    """

    def __init__(
        self,
        cases: int,
        invalid: int = 0,
        trials: int = 1,
        clean: Callable[[str], str] = str,
        by: str | None = None,
    ):
        self.cases = cases
        self.invalid = invalid
        self.trials = trials
        self.target_errors = 0
        self.timeouts = 0
        self.judge_failures = 0
        self.already_done = 0
        self.unscored_earlier = 0
        self.no_answer = 0
        """When stored answers are re-graded: the number of missing answers."""
        self.no_case = 0
        """When stored answers are re-graded: the number of answers that belong to no case."""
        self.why_not_run = ""
        """The reason why cases were not run, if it is known."""
        self.errors: dict[str, ErrorGroup] = {}
        """Cases by error message, for the first `SHOWN_ERRORS` messages."""
        self.failures = Failures(clean)
        self.usage = Usage()
        self.groups: Groups | None = None
        if by is not None:
            self.groups = Groups(by, trials)
        self.spending = Spending()
        self.empty_answers = 0
        self.cut_off_answers = 0
        self.noted_results = 0
        self._scored = 0.0
        self._tally = Tally(trials)
        self._clean = clean
        self._evaluators = Evaluators()

    def add(self, result: HasNames) -> None:
        """Count a result of this run."""
        is_unscored = result.failure is not None
        if result.error is not None:
            self._add_error(result, result.error)
        elif is_unscored:
            self.judge_failures += 1
        self.spending.add(result)
        names = (result.dataset, result.eval_id)
        if self.trials > 1:
            names = (self._clean(result.dataset), self._clean(result.eval_id))
        self._count(names, result, unscored=is_unscored)

    def _add_error(self, result: HasNames, error: str) -> None:
        if result.failure == "timeout":
            self.timeouts += 1
        else:
            self.target_errors += 1
        group = self.errors.get(error)
        if group is not None:
            self.errors[error] = group._replace(cases=group.cases + 1)
        elif len(self.errors) < SHOWN_ERRORS:
            self.errors[error] = ErrorGroup(result.eval_id)

    def add_all(self, results: Sequence[HasNames]) -> None:
        """Count several results of this run.

        Results without errors, trials and groups are counted column by column, which takes half the time of `add`.
        """
        if not self._can_add_columns(results):
            for result in results:
                self.add(result)
            return
        scores = [result.score for result in results]
        failed = [result for result in results if result.verdict != "pass"]
        passes = len(results) - len(failed)
        self._scored += sum(scores)
        self._tally.add_all([result.eval_id for result in results], scores, passes)
        for result in failed:
            self.failures.add((result.dataset, result.eval_id), result)
        for result in results:
            self.spending.add(result)
            self._evaluators.add(result.evaluator_results)
        self.usage.add_all([result.execution_metrics for result in results])
        answers = [result.candidate_answer for result in results]
        self.empty_answers += len([answer for answer in answers if not answer or answer.isspace()])
        noted = [result for result in results if result.note is not None]
        self.noted_results += len([result for result in noted if result.stop_reason != "length"])
        self.cut_off_answers += [result.stop_reason for result in results].count("length")

    def _can_add_columns(self, results: Sequence[HasNames]) -> bool:
        if self.trials != 1 or self.groups is not None:
            return False
        return not any(result.error is not None or result.failure is not None for result in results)

    def add_earlier(self, names: tuple[str, str], result: HasScore) -> None:
        """Count a result of the run that this one resumes; `names` are the dataset and the id."""
        is_unscored = result.failure is not None
        self.already_done += 1
        self.unscored_earlier += is_unscored
        self._count(names, result, unscored=is_unscored)

    def _count(self, names: tuple[str, str], result: HasScore, *, unscored: bool) -> None:
        passed = result.verdict == "pass"
        if unscored:
            # an unscored run could have scored 1
            room = 1 - result.score
        else:
            room = 0.0
            self._scored += result.score
        self._tally.add(names, result.score, room, passed=passed)
        if not unscored and not passed:
            self.failures.add(names, result)
        if self.groups is not None:
            self.groups.add(names, result, passed=passed)
        if result.note is not None and result.stop_reason != "length":
            self.noted_results += 1
        if result.error is None:
            self._count_answer(result)
        elif result.execution_metrics is not None:
            # failed calls may have cost something as well
            self.usage.add(result.execution_metrics)

    def _count_answer(self, result: HasScore) -> None:
        self.usage.add(result.execution_metrics)
        self._evaluators.add(result.evaluator_results)
        if not result.candidate_answer or result.candidate_answer.isspace():
            self.empty_answers += 1
        if result.stop_reason == "length":
            self.cut_off_answers += 1

    @property
    def evaluators(self) -> dict[str, EvaluatorFigures]:
        """The figures of each evaluator."""
        return self._evaluators.figures

    @property
    def planned(self) -> int:
        """The number of planned runs of cases."""
        return (self.cases + self.invalid) * self.trials

    @property
    def done(self) -> int:
        """The number of runs of cases that have a result."""
        return self._tally.runs

    @property
    def answered(self) -> int:
        """The number of cases that have a result for at least one trial."""
        return len(self._tally.means)

    @property
    def unscored(self) -> int:
        """The number of results whose answer was not scored; they count as 0."""
        return self.target_errors + self.timeouts + self.judge_failures

    @property
    def scored_mean(self) -> float | None:
        """The mean score of the runs that were scored."""
        scored = self.done - self.unscored - self.unscored_earlier
        if not scored:
            return None
        return self._scored / scored

    @property
    def failed(self) -> int:
        """The number of runs that ended in an error."""
        return self.target_errors + self.timeouts

    @property
    def mean(self) -> float | None:
        means = self._tally.means
        if not means:
            return None
        return math.fsum(means) / len(means)

    @property
    def best_mean(self) -> float | None:
        """The upper bound of the mean: as if every unscored run had scored 1."""
        means = self._tally.means
        if not means:
            return None
        return (math.fsum(means) + self._tally.room) / len(means)

    @property
    def deviation(self) -> float | None:
        """The sample standard deviation of the means of the cases, or None for fewer than two cases."""
        means = self._tally.means
        if len(means) < 2:
            return None
        return math.sqrt(_variance(means))

    @property
    def interval(self) -> tuple[float, float] | None:
        """The 95% confidence interval of the mean, or None without variation to estimate it from."""
        mean = self.mean
        deviation = self.deviation
        if deviation is None or mean is None:
            return None
        return interval_of_mean(mean, deviation, len(self._tally.means))

    @property
    def median(self) -> float | None:
        means = self._tally.means
        if not means:
            return None
        return quantiles(means, [0.5])[0]

    @property
    def histogram(self) -> tuple[int, ...]:
        """The number of cases in each of `BINS`."""
        counts = [0] * len(BINS)
        for score in self._tally.means:
            counts[bisect_right(EDGES, score)] += 1
        return tuple(counts)

    @property
    def top(self) -> list[tuple[str, float]]:
        """The three best cases, in the same order for every run: ties are broken by id."""
        return self._tally.top

    @property
    def bottom(self) -> list[tuple[str, float]]:
        """The three worst cases."""
        return self._tally.bottom

    @property
    def complete(self) -> int:
        """The number of cases with a result for every trial; only these count for pass@k and pass^k."""
        return len(self._tally.complete)

    @property
    def passes(self) -> dict[int, int]:
        """The number of complete cases by how many of their trials passed."""
        return dict(sorted(self._tally.passes.items()))

    def pass_at(self, k: int) -> float:
        """Return pass@k, the probability that at least one of k trials passes, or NaN for fewer than k trials."""
        return self._mean_of(pass_at, k)

    def pass_all(self, k: int) -> float:
        """Return pass^k, the probability that all of k trials pass, or NaN for fewer than k trials."""
        return self._mean_of(pass_all, k)

    def _mean_of(self, estimate: Estimate, k: int) -> float:
        if not self.complete:
            return math.nan
        total = math.fsum(cases * estimate(k, passes, self.trials) for passes, cases in self.passes.items())
        return total / self.complete

    def pass_at_interval(self, k: int) -> tuple[float, float]:
        """Return the 95% confidence interval of pass@k."""
        return self._interval_of(pass_at, k)

    def pass_all_interval(self, k: int) -> tuple[float, float]:
        """Return the 95% confidence interval of pass^k."""
        return self._interval_of(pass_all, k)

    def _interval_of(self, estimate: Estimate, k: int) -> tuple[float, float]:
        passes = self.passes
        if not self.complete or not 1 <= k <= self.trials:
            return math.nan, math.nan
        if self.trials == 1:
            return wilson(passes.get(1, 0), self.complete)
        estimates = [estimate(k, count, self.trials) for count in passes]
        return bootstrap_interval([*passes.values()], estimates)

    @property
    def noise(self) -> tuple[float, float] | None:
        """The variance between cases and within a case, or None for fewer than two cases or trials."""
        if self.trials < 2 or self.complete < 2:
            return None
        within = self._tally.within
        # the variance of the means contains the variance within the cases, divided by the trials
        between = _variance(self._tally.complete) - within / self.trials
        return max(0.0, between), within

    @property
    def not_run(self) -> int:
        """The number of planned runs without a result that are not accounted for otherwise."""
        return self.planned - self.done - self.invalid * self.trials - self.no_answer

    @property
    def ledger(self) -> dict[str, int]:
        """The number of planned runs by outcome; the counts add up to `planned`."""
        counted = {
            "scored": self.done - self.unscored - self.already_done,
            "target errors": self.target_errors,
            "judge failures": self.judge_failures,
            "timeouts": self.timeouts,
            "skipped as invalid": self.invalid * self.trials,
            "already done": self.already_done,
            "no answer": self.no_answer,
        }
        if self.not_run:
            name = "not run"
            if self.why_not_run:
                name = f"not run ({self.why_not_run})"
            counted[name] = self.not_run
        return counted


def _variance(values: Sequence[float]) -> float:
    """Return the sample variance of two or more values."""
    mean = math.fsum(values) / len(values)
    return math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1)
