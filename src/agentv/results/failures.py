"""Keep the worst scored results that did not pass. Only these are held in memory, with truncated texts."""

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from agentv.formats.printable import printable

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
    misses: tuple[str, ...]
    answer: str


class HasAnswer(Protocol):
    """The fields of a result that are shown if it did not pass."""

    @property
    def score(self) -> float: ...
    @property
    def trial(self) -> int | None: ...
    @property
    def misses(self) -> Sequence[str]: ...
    @property
    def candidate_answer(self) -> str: ...


class Failures:
    """Keeps the worst cases that did not pass; ties are broken by id."""

    def __init__(self, clean: Callable[[str], str]):
        self.count = 0
        """The number of runs of cases that did not pass."""
        self._clean = clean
        self._worst: dict[tuple[str, str], FailedCase] = {}
        self._bar = (2.0, "")
        """The score and id of the best case that is kept; above every score until enough cases are kept."""

    def add(self, names: tuple[str, str], result: HasAnswer) -> None:
        """Count a result that was scored and did not pass; `names` are its dataset and id."""
        self.count += 1
        dataset, eval_id = names
        if result.score > self._bar[0] or (result.score, eval_id) > self._bar:
            return
        rank = (result.score, eval_id, dataset, result.trial or 0)
        before = self._worst.get(names)
        if before is not None and before[:4] <= rank:
            return
        self._worst[names] = FailedCase(
            score=result.score,
            eval_id=eval_id,
            dataset=dataset,
            trial=result.trial or 0,
            misses=tuple(self._one_line(miss) for miss in result.misses[:MAX_MISSES]),
            answer=self._one_line(result.candidate_answer),
        )
        if len(self._worst) > SHOWN:
            last = self.worst[-1]
            del self._worst[last.dataset, last.eval_id]
        if len(self._worst) == SHOWN:
            last = self.worst[-1]
            self._bar = (last.score, last.eval_id)

    @property
    def worst(self) -> list[FailedCase]:
        """The worst cases, in the same order for every run: ties are broken by id."""
        return sorted(self._worst.values())

    def _one_line(self, text: str) -> str:
        """Return the start of a text on one line, masked and safe to print."""
        shown = printable(" ".join(self._clean(text).split()))
        if len(shown) > MAX_CHARACTERS:
            return f"{shown[:MAX_CHARACTERS]}…"
        return shown
