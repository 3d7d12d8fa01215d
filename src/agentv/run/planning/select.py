"""Select the cases of a plan while its eval files are read, and explain why there are none."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from agentv.errors import closest
from agentv.filters.match import NO_MATCH, Filter
from agentv.log import debug
from agentv.records import EvalCase, Problem
from agentv.run.planning.plan import RequiredCases, Selection
from agentv.text import plural

ReadAll = Callable[[], Iterable[EvalCase]]
"""Reads the valid cases of all eval files again."""


@dataclass
class _Required:
    """Counts the cases that must pass."""

    filter: Filter
    selected: int = 0
    """Their number in all shards."""
    cases: int = 0
    """Their number among the cases that run here."""


class CaseSelector:
    """Selects the cases to run one by one, and counts them."""

    def __init__(self, selection: Selection, require: Sequence[Filter]):
        self._selection = selection
        self._left = _limit_of(selection)
        """How many more cases may be selected."""
        self._unknown_ids = dict.fromkeys(selection.ids.patterns)
        """The values of `--eval-id` that match no case so far."""
        self._required = [_Required(condition) for condition in require]
        self.skipped = 0
        """The number of selected cases that are marked with `skip`."""

    @property
    def is_open(self) -> bool:
        """Whether further cases may be selected."""
        return self._left != 0

    @property
    def is_complete(self) -> bool:
        """Whether no further case may be selected and every value of `--eval-id` matches a case."""
        return not self.is_open and not self._unknown_ids

    @property
    def required(self) -> tuple[RequiredCases, ...]:
        """The cases that must pass."""
        return tuple(RequiredCases(required.filter, required.cases) for required in self._required)

    def selects(self, case: EvalCase) -> bool:
        """Return whether a case runs. Cases beyond the limit are read, to find errors, but not selected."""
        selection = self._selection
        if self._unknown_ids:
            for pattern in selection.ids.matching(case.id):
                self._unknown_ids.pop(pattern, None)
        if selection.skips(case):
            self._count_skipped(case)
            return False
        if not selection.includes(case) or not self.is_open:
            return False
        if self._left is not None:
            self._left -= 1
        self._count_required(case)
        return True

    def _count_skipped(self, case: EvalCase) -> None:
        """Count a case that is marked with `skip`, if it would run otherwise."""
        if not self.is_open or not self._selection.asks_for(case):
            return
        self.skipped += 1
        debug(f"{case.file.path}:{case.line}: case {case.id!r} is skipped: {case.skip}")

    def _count_required(self, case: EvalCase) -> None:
        """Count a selected case for each filter of `--require` that matches it."""
        shard = self._selection.shard
        for required in self._required:
            if self._selection.meets(required.filter, case):
                required.selected += 1
                if shard is None or shard.includes(case.dataset, case.id):
                    required.cases += 1

    # ---- problems ----

    def unknown_ids(self, read_all: ReadAll) -> Iterator[Problem]:
        """Yield a problem for each value of `--eval-id` that matches no case, with the most similar id as its hint."""
        if not self._unknown_ids:
            return
        ids = [case.id for case in read_all()]
        for id_ in self._unknown_ids:
            hint = "--eval-id takes an id or a glob"
            close = closest(id_, ids)
            if close:
                hint = f"did you mean {close!r}?"
            yield Problem(message=f"no case with id {id_!r}", hint=hint)

    def nothing_selected(self, path: Path) -> Problem:
        """Return why no case runs; `path` is the first eval file."""
        if self.skipped:
            cases = plural(self.skipped, "selected case is", "selected cases are")
            return Problem(
                message=f"no case to run: {cases} skipped",
                hint="--verbose shows why; --eval-id with the exact id runs a skipped case",
            )
        if self._selection.filter is not None:
            return Problem(
                message=f"no case matches the filter '{self._selection.filter}'",
                hint=NO_MATCH,
            )
        if self._selection.only is None:
            return Problem(
                message="no valid case to run",
                file=path,
                hint="see the warnings above",
            )
        return Problem(
            message="--failed-in: none of the cases that failed in that run is in these eval files",
            hint="cases are matched by dataset and id",
        )

    def nothing_required(self) -> Iterator[Problem]:
        """Yield a problem for each filter of `--require` that selects no case."""
        for required in self._required:
            if not required.selected:
                yield Problem(
                    message=f"--require '{required.filter}': no selected case matches",
                    hint=NO_MATCH,
                )


def _limit_of(selection: Selection) -> int | None:
    """Return how many cases may be selected. Without a limit, cases of the same name could exceed the sample."""
    if selection.sample is None:
        return selection.limit
    if selection.limit is None:
        return selection.sample.size
    return min(selection.limit, selection.sample.size)


def draw_sample(selection: Selection, cases: Iterable[EvalCase]) -> Selection:
    """Return the selection with the sample of these cases, if it has one that is not drawn yet."""
    sample = selection.sample
    if sample is None or sample.bound is not None:
        return selection  # the driver of a cluster draws it for its workers
    everything = selection._replace(sample=None)
    drawn = sample.draw(case for case in cases if everything.includes(case))
    return selection._replace(sample=drawn)
