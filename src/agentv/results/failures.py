"""Keep the worst scored results that did not pass. Only these are held in memory, with truncated texts."""

from collections.abc import Callable
from typing import NamedTuple

from agentv.files.printable import printable
from agentv.records import CaseKey
from agentv.results.views import AnyResult
from agentv.text import truncate

SHOWN = 5
MAX_MISSES = 2
MAX_CHARACTERS = 100


class FailedCase(NamedTuple):
    """A case that did not pass, represented by its worst run. Texts are truncated, on one line and masked."""

    # the fields that cases are ranked by come first: cases are compared as tuples
    score: float
    eval_id: str
    dataset: str
    trial: int
    """0 for cases without trials."""
    failed_required: str
    """The names of the required evaluators that the answer misses; empty if there are none."""
    misses: tuple[str, ...]
    """Each with the name of its evaluator."""
    answer: str


class Failures:
    """Keeps the worst cases that did not pass; ties are broken by id."""

    def __init__(self, clean: Callable[[str], str]):
        self.count = 0
        """The number of runs of cases that did not pass."""
        self._clean = clean
        self._worst: dict[CaseKey, FailedCase] = {}
        self._bar = (2.0, "")
        """The score and id of the best case that is kept; above every score until enough cases are kept."""

    def add(self, case_key: CaseKey, result: AnyResult) -> None:
        """Count a result that was scored and did not pass."""
        self.count += 1
        score = result.score
        dataset, eval_id = case_key
        if score > self._bar[0] or (score, eval_id) > self._bar:
            return
        trial = result.trial or 0
        rank = (score, eval_id, dataset, trial)
        before = self._worst.get(case_key)
        if before is not None and before[:4] <= rank:  # the case has a worse run
            return
        misses = _named_misses(result)
        shown_misses = [self._one_line(miss) for miss in misses[:MAX_MISSES]]
        self._worst[case_key] = FailedCase(
            score=score,
            eval_id=eval_id,
            dataset=dataset,
            trial=trial,
            failed_required=self._one_line(", ".join(result.failed_required)),
            misses=tuple(shown_misses),
            answer=self._one_line(result.candidate_answer or ""),
        )
        if len(self._worst) > SHOWN:
            last = self.worst[-1]
            last_key = CaseKey(last.dataset, last.eval_id)
            del self._worst[last_key]
        if len(self._worst) == SHOWN:
            last = self.worst[-1]
            self._bar = (last.score, last.eval_id)

    @property
    def worst(self) -> list[FailedCase]:
        """The worst cases, in the same order for every run: ties are broken by id."""
        return sorted(self._worst.values())

    def _one_line(self, text: str) -> str:
        """Return the start of a text on one line, masked and safe to print."""
        words = self._clean(text).split()
        shown = printable(" ".join(words))
        return truncate(shown, MAX_CHARACTERS)


def _named_misses(result: AnyResult) -> list[str]:
    """Return the misses of a result, each after the name of its evaluator."""
    named: list[str] = []
    of_evaluators: set[str] = set()
    for part in result.evaluator_results or ():
        for miss in part.misses or ():
            named.append(f"{part.name}: {miss}")
            of_evaluators.add(miss)
    for miss in result.misses or ():
        # such as why a case was not judged, or any miss in a file of another tool
        if miss not in of_evaluators:
            named.append(miss)
    return named
