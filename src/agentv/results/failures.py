"""Results as they come -> the worst ones that were scored and did not pass. Only these are held, with short texts."""

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from agentv.formats.printable import printable

SHOWN = 5
MAX_MISSES = 2
MAX_CHARACTERS = 100


class FailedCase(NamedTuple):
    """A case that did not pass: by its worst run, if there are several."""

    score: float
    eval_id: str
    dataset: str
    trial: int
    """0 where cases have no trials."""
    misses: tuple[str, ...]
    answer: str
    """The texts are cut, on one line, and without secrets."""


class HasAnswer(Protocol):
    """What is shown of a result that did not pass."""

    @property
    def score(self) -> float: ...
    @property
    def trial(self) -> int | None: ...
    @property
    def misses(self) -> Sequence[str]: ...
    @property
    def candidate_answer(self) -> str: ...


class Failures:
    """Keeps the worst of the cases that did not pass; ties go by id."""

    def __init__(self, clean: Callable[[str], str]):
        self.count = 0
        """How many runs of cases did not pass."""
        self._clean = clean
        self._worst: dict[tuple[str, str], FailedCase] = {}
        self._bar = (2.0, "")

    def add(self, names: tuple[str, str], result: HasAnswer) -> None:
        """Count a result that was scored and did not pass, of the case of this dataset and id."""
        self.count += 1
        dataset, eval_id = names
        if result.score > self._bar[0] or (result.score, eval_id) > self._bar:
            return
        place = result.score, eval_id, dataset, result.trial or 0
        before = self._worst.get(names)
        if before is not None and before[:4] <= place:
            return
        misses = tuple(self._one_line(miss) for miss in result.misses[:MAX_MISSES])
        self._worst[names] = FailedCase(*place, misses, self._one_line(result.candidate_answer))
        if len(self._worst) > SHOWN:
            last = self.worst[-1]
            del self._worst[last.dataset, last.eval_id]
        if len(self._worst) == SHOWN:
            self._bar = self.worst[-1][:2]

    @property
    def worst(self) -> list[FailedCase]:
        """The worst cases, the same ones in every run: ties go by id."""
        return sorted(self._worst.values())

    def _one_line(self, text: str) -> str:
        """Return the start of a text, without secrets, safe to print."""
        shown = printable(" ".join(self._clean(text).split()))
        return shown if len(shown) <= MAX_CHARACTERS else f"{shown[:MAX_CHARACTERS]}…"
