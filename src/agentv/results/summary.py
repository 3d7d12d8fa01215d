"""Accumulate results into the figures of a run. Memory use is one float per case."""

import math
from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import NamedTuple

from agentv.records import CaseKey
from agentv.results.failures import SHOWN as SHOWN_NAMES
from agentv.results.failures import Failures
from agentv.results.groups import EvaluatorFigures, Evaluators, Groups
from agentv.results.requirement import Requirement
from agentv.results.spending import Spending
from agentv.results.tally import ScoreTally
from agentv.results.usage import Usage
from agentv.results.views import AnyResult
from agentv.stats.inference import interval_of_mean
from agentv.stats.pass_rates import bootstrap_interval, pass_all, pass_at, wilson
from agentv.stats.quantiles import quantiles

EDGES = (0.2, 0.4, 0.6, 0.8)
BINS = ("[0,0.2)", "[0.2,0.4)", "[0.4,0.6)", "[0.6,0.8)", "[0.8,1.0]")
SHOWN_ERRORS = 50
CaseEstimate = Callable[[int, int, int], float]
"""Returns the contribution of a case to a pass rate, given k, its passed trials and its trials."""


class ErrorGroup(NamedTuple):
    """Cases that ended in the same error: the id of the first, and their number."""

    first: str
    cases: int = 1


class Summary:
    """Counts results and computes the figures of a run. The unit is the case, regardless of its number of trials.

    `clean` masks secrets in the texts that are held, and in names, so that new results and results from a file are
    counted under the same case. `by` are the fields or metadata keys that cases are grouped by.
    """

    def __init__(
        self,
        cases: int,
        invalid: int = 0,
        trials: int = 1,
        clean: Callable[[str], str] = str,
        by: Sequence[str] = (),
    ):
        self.cases = cases
        self.invalid = invalid
        self.trials = trials
        self.target_errors = 0
        self.timeouts = 0
        self.judge_failures = 0
        self.machine_failures = 0
        """The number of machine failures. They are excluded from all other figures."""
        self.already_done = 0
        self.failed_earlier = 0
        """The number of results of an earlier run that are errors."""
        self.judge_failures_earlier = 0
        """The number of answers of an earlier run that were not judged."""
        self.no_answer = 0
        """When stored answers are re-graded: the number of missing answers."""
        self.no_case = 0
        """When stored answers are re-graded: the number of answers that belong to no case."""
        self.unplanned_results = 0
        """The number of results in a resumed file whose cases are not in the eval files. Other figures exclude them."""
        self.skipped = 0
        """The number of cases that are marked with `skip`. They are not planned."""
        self.requirements: Sequence[Requirement] = ()
        """The cases that must pass."""
        self.why_not_run = ""
        """The reason why cases were not run, if it is known."""
        self.errors: dict[str, ErrorGroup] = {}
        """Cases by error message, for the first `SHOWN_ERRORS` messages."""
        self.unjudged: dict[str, ErrorGroup] = {}
        """Cases that were not judged, by the reason, for the first `SHOWN_ERRORS` reasons."""
        self.failures = Failures(clean)
        self._not_passed: dict[CaseKey, None] = {}
        """The first few cases with a run that did not pass."""
        self.usage = Usage()
        self.groups: Groups | None = None
        if by:
            self.groups = Groups(by, trials)
        self.spending = Spending()
        self.empty_answers = 0
        self.cut_off_answers = 0
        self.noted_results = 0
        self.masked_results = 0
        self.masked_names: set[str] = set()
        """The variables or settings whose values are masked in results."""
        self._scored = 0.0
        self._tally = ScoreTally(trials)
        self._clean = clean
        self._evaluators = Evaluators()

    def add(self, result: AnyResult) -> None:
        """Count a result of this run."""
        if result.failure == "machine":
            self._add_machine_failure(result)
            return
        is_unscored = result.error is not None or result.failure is not None
        if result.error is not None:
            self._add_error(result, result.error)
        elif is_unscored:
            self.judge_failures += 1
            _add_to(self.unjudged, self._clean(_why_unjudged(result)), result.eval_id)
        self.spending.add(result)
        dataset = result.dataset
        eval_id = result.eval_id
        if self.trials > 1:
            dataset = self._clean(dataset)
            eval_id = self._clean(eval_id)
        case_key = CaseKey(dataset, eval_id)
        self._count(case_key, result, unscored=is_unscored)

    def _add_machine_failure(self, result: AnyResult) -> None:
        self.machine_failures += 1
        for requirement in self.requirements:
            requirement.add(result)
        self.spending.add(result)
        _add_to(self.errors, self._clean(result.error or ""), result.eval_id)

    def _add_error(self, result: AnyResult, error: str) -> None:
        if result.failure == "timeout":
            self.timeouts += 1
        else:
            self.target_errors += 1
        # Masked now: the state of an attempt is only known as long as its result is being written.
        _add_to(self.errors, self._clean(error), result.eval_id)

    def add_all(self, results: Sequence[AnyResult]) -> None:
        """Count several results of this run.

        Results without errors, trials and groups are counted column by column, which takes half the time of `add`.
        """
        if not self._can_add_columns(results):
            for result in results:
                self.add(result)
            return
        eval_ids = [result.eval_id for result in results]
        scores = [result.score for result in results]
        failed = [result for result in results if result.verdict != "pass"]
        passes = len(results) - len(failed)
        self._scored += sum(scores)
        self._tally.add_all(eval_ids, scores, passes)
        for result in failed:
            case_key = CaseKey(result.dataset, result.eval_id)
            self.failures.add(case_key, result)
            self._keep_not_passed(case_key)
        for result in results:
            self.spending.add(result)
            self._evaluators.add(result.evaluator_results or ())
        metrics = [result.execution_metrics for result in results]
        self.usage.add_all(metrics)
        self._count_irregular(results)

    def _count_irregular(self, results: Sequence[AnyResult]) -> None:
        """Count the answers that are empty or cut off, and the results that have another note or masked text."""
        for result in results:
            answer = result.candidate_answer
            if not answer or answer.isspace():
                self.empty_answers += 1
            if result.stop_reason == "length":
                self.cut_off_answers += 1
            elif result.note is not None:
                self.noted_results += 1
            self._count_masked(result)

    def _can_add_columns(self, results: Sequence[AnyResult]) -> bool:
        if self.trials != 1 or self.groups is not None:
            return False
        has_score = (result.error is None and result.failure is None for result in results)
        return all(has_score)

    def add_earlier(self, result: AnyResult) -> None:
        """Count a result of the run that this one resumes."""
        if result.failure == "machine":
            self._add_machine_failure(result)
            return
        # secrets in the names of results from a file are masked already
        case_key = CaseKey(result.dataset, result.eval_id)
        is_unscored = result.error is not None or result.failure is not None
        self.already_done += 1
        if result.error is not None:
            self.failed_earlier += 1
        elif result.failure is not None:  # of a judge
            self.judge_failures_earlier += 1
        self._count(case_key, result, unscored=is_unscored)

    def _count(self, case_key: CaseKey, result: AnyResult, *, unscored: bool) -> None:
        passed = result.verdict == "pass"
        if unscored:
            room = _missed_score(result)
        else:
            room = 0.0
            self._scored += result.score
        self._tally.add(case_key, result.score, room, passed=passed)
        if not passed:
            self._keep_not_passed(case_key)
            if not unscored:
                self.failures.add(case_key, result)
        if self.groups is not None:
            self.groups.add(case_key, result, passed=passed)
        for requirement in self.requirements:
            requirement.add(result)
        if result.note is not None and result.stop_reason != "length":
            self.noted_results += 1
        self._count_masked(result)
        if result.error is None:
            self._count_answer(result)
        elif result.execution_metrics is not None:
            # failed calls may have cost something as well
            self.usage.add(result.execution_metrics)

    def _keep_not_passed(self, case_key: CaseKey) -> None:
        if len(self._not_passed) < SHOWN_NAMES:
            self._not_passed[case_key] = None

    def _count_masked(self, result: AnyResult) -> None:
        if result.masked:
            self.masked_results += 1
            self.masked_names.update(result.masked)

    def _count_answer(self, result: AnyResult) -> None:
        self.usage.add(result.execution_metrics)
        self._evaluators.add(result.evaluator_results or ())
        answer = result.candidate_answer
        if not answer or answer.isspace():
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
        """The number of results that ended in an error or were not judged."""
        return self.target_errors + self.timeouts + self.judge_failures

    @property
    def unscored_earlier(self) -> int:
        """The number of results of an earlier run whose answer was not scored."""
        return self.failed_earlier + self.judge_failures_earlier

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
        """The upper bound of the mean: as if all errors, and all evaluators that could not judge, had scored 1."""
        means = self._tally.means
        if not means:
            return None
        best_total = math.fsum(means) + self._tally.room
        return best_total / len(means)

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
        return interval_of_mean(mean, deviation, self.answered)

    @property
    def median(self) -> float | None:
        means = self._tally.means
        if not means:
            return None
        (median,) = quantiles(means, (0.5,))
        return median

    @property
    def histogram(self) -> tuple[int, ...]:
        """The number of cases in each of `BINS`."""
        return histogram_of(self._tally.means)

    @property
    def top(self) -> list[tuple[str, float]]:
        """The three best cases, in the same order for every run: ties are broken by id."""
        return self._tally.top

    @property
    def bottom(self) -> list[tuple[str, float]]:
        """The three worst cases. With at least six cases, none of them is in `top`."""
        return self._tally.bottom

    @property
    def lowest(self) -> list[tuple[str, float]]:
        """The three worst cases."""
        return self._tally.lowest

    @property
    def ranking(self) -> list[tuple[str, float]] | None:
        """All cases, best first, or None if there are more than six."""
        return self._tally.ranking

    @property
    def pass_rate(self) -> float:
        """The mean over cases of the share of their trials that passed; 0 without results."""
        return self._tally.pass_rate

    @property
    def not_passed(self) -> str:
        """The ids of the first cases with a run that did not pass, and the number of the others."""
        names = ", ".join(case_key.eval_id for case_key in self._not_passed)
        others = self._tally.not_passed - len(self._not_passed)
        if others:
            return f"{names} and {others} more"
        return names

    @property
    def complete(self) -> int:
        """The number of cases with a result for every trial; only these count for pass@k and pass^k."""
        return len(self._tally.complete)

    @property
    def passes(self) -> dict[int, int]:
        """The number of complete cases by how many of their trials passed."""
        ordered = sorted(self._tally.passes.items())
        return dict(ordered)

    def pass_at(self, k: int) -> float:
        """Return pass@k, the probability that at least one of k trials passes, or NaN for fewer than k trials."""
        return self._mean_of(pass_at, k)

    def pass_all(self, k: int) -> float:
        """Return pass^k, the probability that all of k trials pass, or NaN for fewer than k trials."""
        return self._mean_of(pass_all, k)

    def _mean_of(self, estimate: CaseEstimate, k: int) -> float:
        if not self.complete:
            return math.nan
        parts: list[float] = []
        for passes, cases in self.passes.items():
            case_estimate = estimate(k, passes, self.trials)
            parts.append(cases * case_estimate)
        return math.fsum(parts) / self.complete

    def pass_at_interval(self, k: int) -> tuple[float, float]:
        """Return the 95% confidence interval of pass@k."""
        return self._interval_of(pass_at, k)

    def pass_all_interval(self, k: int) -> tuple[float, float]:
        """Return the 95% confidence interval of pass^k."""
        return self._interval_of(pass_all, k)

    def _interval_of(self, estimate: CaseEstimate, k: int) -> tuple[float, float]:
        passes = self.passes
        if not self.complete or not 1 <= k <= self.trials:
            return math.nan, math.nan
        if self.trials == 1:
            passed = passes.get(1, 0)
            return wilson(passed, self.complete)
        case_counts = list(passes.values())
        estimates = [estimate(k, count, self.trials) for count in passes]
        return bootstrap_interval(case_counts, estimates)

    @property
    def noise(self) -> tuple[float, float] | None:
        """The variance between cases and within a case, or None for fewer than two cases or trials."""
        if self.trials < 2 or self.complete < 2:
            return None
        within = self._tally.within
        variance_of_means = _variance(self._tally.complete)
        # the variance of the means contains the variance within the cases, divided by the trials
        between = variance_of_means - within / self.trials
        return max(0.0, between), within

    @property
    def not_run(self) -> int:
        """The number of planned runs without a result that are not accounted for otherwise."""
        return self.planned - self.done - self.machine_failures - self._invalid_runs - self.no_answer

    @property
    def _invalid_runs(self) -> int:
        return self.invalid * self.trials

    @property
    def ledger(self) -> dict[str, int]:
        """The number of planned runs by outcome; the counts add up to `planned`."""
        counted = {
            "scored": self.done - self.unscored - self.already_done,
            "target errors": self.target_errors,
            "judge failures": self.judge_failures,
            "timeouts": self.timeouts,
            "machine failures": self.machine_failures,
            "invalid": self._invalid_runs,
            "already done": self.already_done,
            "no answer": self.no_answer,
        }
        if self.not_run:
            name = "not run"
            if self.why_not_run:
                name = f"not run ({self.why_not_run})"
            counted[name] = self.not_run
        return counted


def _add_to(groups: dict[str, ErrorGroup], text: str, eval_id: str) -> None:
    """Count a case under a text, unless there are too many texts already."""
    group = groups.get(text)
    if group is not None:
        groups[text] = ErrorGroup(group.first, group.cases + 1)
    elif len(groups) < SHOWN_ERRORS:
        groups[text] = ErrorGroup(eval_id)


def _why_unjudged(result: AnyResult) -> str:
    """Return the first reason why an answer was not judged."""
    for part in result.evaluator_results or ():
        if part.failed and part.counts and part.misses:
            return f"{part.name}: {part.misses[0]}"
    misses = result.misses or ()
    if misses:
        return misses[-1]
    return "no reason given"


def _missed_score(result: AnyResult) -> float:
    """Return by how much an unscored run could have scored more: 1 for an error, or the weight that was not judged."""
    counted = [part for part in result.evaluator_results or () if part.counts]
    heaviest = max((part.weight for part in counted), default=0.0)
    if not heaviest:
        return 1 - result.score
    total = 0.0
    unjudged = 0.0
    for part in counted:
        weight = part.weight / heaviest  # so that huge weights do not overflow
        total += weight
        if part.failed:
            unjudged += weight
    return unjudged / total


def histogram_of(means: Sequence[float]) -> tuple[int, ...]:
    """Return the number of cases in each of `BINS`."""
    counts = [0] * len(BINS)
    for mean in means:
        number = bisect_right(EDGES, mean)
        counts[number] += 1
    return tuple(counts)


def _variance(values: Sequence[float]) -> float:
    """Return the sample variance of two or more values."""
    count = len(values)
    mean = math.fsum(values) / count
    squares = math.fsum((value - mean) ** 2 for value in values)
    return squares / (count - 1)
