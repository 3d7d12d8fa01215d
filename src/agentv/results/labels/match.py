"""Labels and a results file -> the answers that have labels, and what the judge said of all of them.

The results are read as a stream. What is held is the labels, and, of results that belong together (trials of a case,
turns of a conversation), two numbers for each such group.
"""

from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import compress
from pathlib import Path

import msgspec

from agentv.errors import AgentvError, ConfigError
from agentv.notices import warn
from agentv.records import Problem
from agentv.results.labels.file import LABELS, Label, LabelKey, NoLabels, answer_digest, read_labels
from agentv.results.merging.merge import read_views
from agentv.results.run_files import RunFiles, name_of
from agentv.results.views import EvaluatorView, TrialView
from agentv.scoring import verdict_of
from agentv.stats.agreement import Clusters
from agentv.system.compact_sets import HashIndex

Cluster = tuple[str, str] | None
"""What a result belongs to, if it does not stand alone."""


class AnswerView(TrialView, frozen=True, gc=False):
    """A result with its answer, and what each evaluator made of it."""

    candidate_answer: str | None = None
    evaluator_results: tuple[EvaluatorView, ...] | None = None

    @property
    def cluster(self) -> Cluster:
        """Trials of a case belong together, and so do the turns of a conversation."""
        if self.conversation_id is not None:
            return "conversation", self.conversation_id
        return (self.dataset, self.eval_id) if self.trial is not None else None

    @property
    def judge(self) -> tuple[str, str]:
        """The digests of who judged, and by which prompts."""
        return (self.digests.judges, self.digests.prompts) if self.digests else ("", "")

    def judgement(self, evaluator: str | None) -> bool | None:
        """Return whether the case, or one evaluator, passed the answer; None if nobody judged it."""
        if evaluator is None:
            return None if self.is_unscored else (self.verdict or verdict_of(self.score)) == "pass"
        for part in self.evaluator_results or ():
            if part.name == evaluator:
                return None if part.failed else (part.verdict or verdict_of(part.score)) == "pass"
        return None


class LabelBook:
    """Labels by the answer that they are about; of each reviewer the last one for the same thing, unless taken back."""

    def __init__(self, labels: Iterable[Label]):
        self.lines = 0
        latest: dict[tuple[LabelKey, str | None], Label] = {}
        for label in labels:
            key = label.key, label.reviewer
            latest.pop(key, None)  # so that the last one also stands last
            if label.label != "retracted":
                self.lines += 1
                latest[key] = label
        self.labels: tuple[Label, ...] = tuple(latest.values())
        self._places: dict[tuple[str, int], list[int]] = {}
        for number, label in enumerate(self.labels):
            self._places.setdefault((label.eval_id, label.trial), []).append(number)

    def __len__(self) -> int:
        return len(self.labels)

    def at(self, view: AnswerView) -> list[int]:
        """Return the numbers of the labels of this trial of this case, whatever the answer was."""
        found = self._places.get((view.eval_id, view.trial or 1), ())
        return [number for number in found if self.labels[number].dataset in ("", view.dataset)]

    def of(self, numbers: Iterable[int], digest: str) -> list[int]:
        """Return those of the labels with these numbers that are of the answer with this digest."""
        return [number for number in numbers if self.labels[number].answer_digest == digest]

    def is_of_any(self, ids: Iterable[str]) -> bool:
        """Return whether a label is of a case with one of these ids."""
        return not {label.eval_id for label in self.labels}.isdisjoint(ids)

    def has_none(self, views: Sequence[AnswerView]) -> bool:
        """Return whether no label is of any of these cases."""
        return not any((view.eval_id, view.trial or 1) in self._places for view in views)


def find_labels(path: Path = LABELS) -> LabelBook | None:
    """Return the labels of a file that need not be there; None if it has none. One that is wrong is a warning."""
    if not path.is_file():
        return None
    try:
        return LabelBook(read_labels(path))
    except NoLabels:
        return None
    except AgentvError as error:
        warn(msgspec.structs.replace(Problem.of(error), severity="warning"))
        return None


@dataclass(frozen=True, slots=True)
class LabelledAnswer:
    """An answer with its labels, what the judge said of it, and what it belongs to."""

    labels: tuple[Label, ...]
    passed: bool | None
    cluster: Cluster
    timestamp: str
    judge: tuple[str, str]


class Verdicts:
    """How many answers a judge passed, of how many; by group for those that belong together."""

    def __init__(self) -> None:
        self._alone = [0, 0]
        self._groups, self._sizes, self._passes = HashIndex(), array("q"), array("q")

    def add(self, cluster: Cluster, passed: bool) -> None:
        """Count a verdict."""
        if cluster is None:
            self._alone[passed] += 1
            return
        number = self._groups.get(cluster)
        if number < 0:
            number = len(self._sizes)
            self._groups.add(cluster, number)
            self._sizes.append(0)
            self._passes.append(0)
        self._sizes[number] += 1
        self._passes[number] += passed

    def of(self, cluster: Cluster) -> tuple[int, int]:
        """Return how many answers of a cluster there are, and how many of them passed."""
        number = self._groups.get(cluster)
        return (self._sizes[number], self._passes[number]) if number >= 0 else (0, 0)

    def clusters(self) -> Clusters:
        """Return them by size and number of passes."""
        found: Counter[tuple[int, float]] = Counter()
        found.update(zip(self._sizes, map(float, self._passes), strict=True))
        found.update({(1, float(passed)): count for passed, count in enumerate(self._alone) if count})
        return found


@dataclass(slots=True)
class LabelMatches:
    """What the labels are to the results of a file."""

    book: LabelBook
    results: int = 0
    has_answers: bool = False
    unjudged: int = 0
    """Results that ended in an error, or whose judge failed."""
    evaluators: set[str] = field(default_factory=set)
    answers: list[LabelledAnswer] = field(default_factory=list)
    others: Verdicts = field(default_factory=Verdicts)
    """What the judge said of the answers that have no label."""
    judges: set[tuple[str, str]] = field(default_factory=set)
    is_seen: bytearray = field(default_factory=bytearray)
    is_used: bytearray = field(default_factory=bytearray)
    """Of each label, whether its case is there, and whether its answer is."""

    @property
    def used(self) -> Iterator[Label]:
        """The labels of answers that are in the file."""
        return compress(self.book.labels, self.is_used)

    @property
    def stale(self) -> Iterator[Label]:
        """The labels of other answers to cases that are in the file."""
        flags = (seen and not used for seen, used in zip(self.is_seen, self.is_used, strict=True))
        return compress(self.book.labels, flags)

    @property
    def unmatched(self) -> Iterator[Label]:
        """The labels of cases, or trials of them, that are not in the file."""
        return compress(self.book.labels, (not seen for seen in self.is_seen))


def match_labels(
    run: RunFiles, book: LabelBook, evaluator: str | None = None, *, only_labelled: bool = False
) -> LabelMatches:
    """Return which labels are of answers of a run, and the verdicts of an evaluator, or of the cases.

    With `only_labelled`, parts of a file that have no labelled case are passed over, which is quicker. A torn last
    result is a warning; in one of several files it is an error, as `Merge` raises it. Raise `ResultsError` with all
    else that is wrong with the files, `ConfigError` if there is no answer in them.
    """
    found = LabelMatches(book, is_seen=bytearray(len(book)), is_used=bytearray(len(book)))
    for view in read_views(run, AnswerView, skip=book.has_none if only_labelled else None):
        found.results += 1
        _add(found, view, evaluator)
    if not only_labelled and not found.has_answers:
        what = "no result has an answer" if found.results else "there are no results in this file"
        hint = "labels are of answers; 'agentv eval' writes them, as 'candidate_answer'"
        raise ConfigError(what, file=name_of(run), hint=hint)
    return found


def _add(found: LabelMatches, view: AnswerView, evaluator: str | None) -> None:
    found.evaluators.update(part.name for part in view.evaluator_results or ())
    answer = view.candidate_answer if view.error is None else None
    found.has_answers |= answer is not None
    passed = view.judgement(evaluator)
    numbers = found.book.at(view)
    for number in numbers:
        found.is_seen[number] = 1
    if numbers and answer is not None:
        numbers = found.book.of(numbers, answer_digest(answer))
        for number in numbers:
            found.is_used[number] = 1
        if numbers:
            labels = last_of_each([found.book.labels[number] for number in numbers])
            found.answers.append(LabelledAnswer(labels, passed, view.cluster, view.timestamp, view.judge))
            found.judges.add(view.judge)
            return
    if passed is None:
        found.unjudged += 1
    else:
        found.judges.add(view.judge)
        found.others.add(view.cluster, passed)


def last_of_each(labels: Iterable[Label]) -> tuple[Label, ...]:
    """Return the last label of each reviewer: one may have named the dataset in one label, and not in another."""
    return tuple({(label.reviewer, label.evaluator): label for label in labels}.values())
