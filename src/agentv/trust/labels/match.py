"""Match labels with the answers of a run, and collect the verdicts of its judge.

The results are read as a stream. Held in memory are the labels, and two numbers per cluster of results that belong
together: trials of a case, or turns of a conversation.
"""

import operator
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import compress
from pathlib import Path

import msgspec

from agentv.errors import AgentvError, ConfigError
from agentv.files.compact_sets import HashIndex
from agentv.log import warn
from agentv.records import Problem
from agentv.results.run_files import RunFiles, name_of, read_views
from agentv.results.runs import LABELS
from agentv.results.views import TextRow
from agentv.stats.agreement import Clusters
from agentv.trust.labels.file import Label, LabelKey, NoLabels, read_labels

Cluster = tuple[str, str] | None
"""Identifies a group of dependent results; None for an independent result."""


class JudgedAnswerView(TextRow, frozen=True, gc=False):
    """A result with its answer and the scores of its evaluators."""

    @property
    def cluster(self) -> Cluster:
        """The conversation or, with several trials, the case that the result belongs to."""
        if self.conversation_id is not None:
            return "conversation", self.conversation_id
        if self.trial is not None:
            return self.dataset, self.eval_id
        return None

    @property
    def judge(self) -> tuple[str, str]:
        """The digests of the judges and of their prompts."""
        if self.digests is None:
            return "", ""
        return self.digests.judges, self.digests.prompts

    def judgement(self, evaluator: str | None) -> bool | None:
        """Return whether the answer passed, in total or by one evaluator, or None if it was not judged."""
        if evaluator is None:
            if self.is_unscored:
                return None
            return self.verdict == "pass"
        for part in self.evaluator_results or ():
            if part.name == evaluator:
                if part.failed or part.score is None:
                    return None
                return part.verdict == "pass"
        return None


class LabelBook:
    """Labels by case and trial: the last label of each reviewer for each key, unless it was retracted."""

    def __init__(self, labels: Iterable[Label]):
        self.lines = 0
        """The number of labels in the file, including replaced ones, but without retractions."""
        latest: dict[tuple[LabelKey, str | None], Label] = {}
        for label in labels:
            key = (label.key, label.reviewer)
            latest.pop(key, None)  # assigning alone would keep the position of the earlier label
            if label.label != "retracted":
                self.lines += 1
                latest[key] = label
        self.labels: tuple[Label, ...] = tuple(latest.values())
        # without the dataset, which a label may lack, and the target: labels follow answers across targets
        self._places: dict[tuple[str, int], list[int]] = {}
        for number, label in enumerate(self.labels):
            trial = (label.eval_id, label.trial)
            numbers = self._places.setdefault(trial, [])
            numbers.append(number)

    def __len__(self) -> int:
        return len(self.labels)

    def at(self, view: JudgedAnswerView) -> list[int]:
        """Return the numbers of the labels for this trial of this case, regardless of the answer."""
        found = []
        trial = (view.eval_id, view.trial or 1)
        for number in self._places.get(trial, ()):
            label = self.labels[number]
            if label.dataset in ("", view.dataset):
                found.append(number)
        return found

    def of(self, numbers: Iterable[int], digest: str) -> list[int]:
        """Return the numbers of those labels that are for the answer with this digest."""
        found = []
        for number in numbers:
            label = self.labels[number]
            if label.answer_digest == digest:
                found.append(number)
        return found

    def is_of_any(self, ids: Iterable[str]) -> bool:
        """Return whether any label is for a case with one of these ids."""
        labelled = {label.eval_id for label in self.labels}
        return not labelled.isdisjoint(ids)

    def has_none(self, views: Sequence[JudgedAnswerView]) -> bool:
        """Return whether no label is for any of these results."""
        for view in views:
            trial = (view.eval_id, view.trial or 1)
            if trial in self._places:
                return False
        return True


def find_labels(path: Path = LABELS) -> LabelBook | None:
    """Return the labels of an optional file, or None without labels; warn about an invalid file."""
    if not path.is_file():
        return None
    try:
        return LabelBook(read_labels(path))
    except NoLabels:
        return None
    except AgentvError as error:
        problem = Problem.of(error)
        warn(msgspec.structs.replace(problem, severity="warning"))
        return None


@dataclass(frozen=True, slots=True)
class LabelledAnswer:
    """An answer with its labels, the verdict of the judge and its cluster."""

    labels: tuple[Label, ...]
    passed: bool | None
    cluster: Cluster
    timestamp: str
    judge: tuple[str, str]


class Verdicts:
    """Counts the answers that a judge passed and failed, in total and by cluster."""

    def __init__(self) -> None:
        self._alone = [0, 0]
        """The number of failed and of passed answers without a cluster."""
        self._numbers = HashIndex()
        """The number of each cluster, which is its index in the arrays."""
        self._sizes = array("q")
        self._passes = array("q")

    def add(self, cluster: Cluster, passed: bool) -> None:
        """Count a verdict."""
        if cluster is None:
            self._alone[int(passed)] += 1
            return
        number = self._numbers.get(cluster)
        if number < 0:
            number = len(self._sizes)
            self._numbers.add(cluster, number)
            self._sizes.append(0)
            self._passes.append(0)
        self._sizes[number] += 1
        self._passes[number] += int(passed)

    def of(self, cluster: Cluster) -> tuple[int, int]:
        """Return the number of answers of a cluster, and the number of those that passed."""
        number = self._numbers.get(cluster)
        if number < 0:
            return 0, 0
        return self._sizes[number], self._passes[number]

    def clusters(self) -> Clusters:
        """Return the number of clusters by size and number of passes; single answers are clusters of size 1."""
        found: Counter[tuple[int, float]] = Counter()
        found.update(zip(self._sizes, map(float, self._passes), strict=True))
        for passed, count in enumerate(self._alone):
            if count:
                found[1, float(passed)] += count
        return found


@dataclass(slots=True)
class LabelMatches:
    """The labels that match results of a run, and those that do not."""

    book: LabelBook
    results: int = 0
    has_answers: bool = False
    unjudged: int = 0
    """The number of unlabelled results that ended in an error, or whose judge failed."""
    evaluators: set[str] = field(default_factory=set)
    answers: list[LabelledAnswer] = field(default_factory=list)
    others: Verdicts = field(default_factory=Verdicts)
    """The verdicts on the answers without a label."""
    judges: set[tuple[str, str]] = field(default_factory=set)
    is_seen: bytearray = field(default_factory=bytearray)
    """For each label, 1 if the results contain its case and trial."""
    is_used: bytearray = field(default_factory=bytearray)
    """For each label, 1 if the results contain its answer."""

    @property
    def used(self) -> Iterator[Label]:
        """The labels for answers that the results contain."""
        return compress(self.book.labels, self.is_used)

    @property
    def stale(self) -> Iterator[Label]:
        """The labels for other answers to cases that the results contain."""
        is_stale = map(operator.gt, self.is_seen, self.is_used)
        return compress(self.book.labels, is_stale)

    @property
    def unmatched(self) -> Iterator[Label]:
        """The labels for cases and trials that the results do not contain."""
        is_unmatched = map(operator.not_, self.is_seen)
        return compress(self.book.labels, is_unmatched)


def match_labels(
    run: RunFiles,
    book: LabelBook,
    evaluator: str | None = None,
    *,
    only_labelled: bool = False,
) -> LabelMatches:
    """Match labels with the answers of a run, and collect the verdicts of an evaluator, or those on the cases.

    With `only_labelled`, blocks of a file without labelled cases are skipped, which is faster. A truncated last result
    causes a warning or, in one of several files, an error. Raise `ResultsError` with all other problems of the files,
    and `ConfigError` if they contain no answers.
    """
    found = LabelMatches(
        book,
        is_seen=bytearray(len(book)),
        is_used=bytearray(len(book)),
    )
    skip = None
    if only_labelled:
        skip = book.has_none
    for view in read_views(run, JudgedAnswerView, skip=skip):
        found.results += 1
        _add(found, view, evaluator)
    if not only_labelled and not found.has_answers:
        message = "the file contains no results"
        if found.results:
            message = "no result has an answer"
        raise ConfigError(
            message,
            file=name_of(run),
            hint="labels refer to answers, which 'agentv eval' writes as 'candidate_answer'",
        )
    return found


def _add(
    found: LabelMatches,
    view: JudgedAnswerView,
    evaluator: str | None,
) -> None:
    """Count one result."""
    for part in view.evaluator_results or ():
        found.evaluators.add(part.name)
    passed = view.judgement(evaluator)
    labels = _labels_of(found, view)
    if labels:
        answer = LabelledAnswer(
            labels=last_of_each(labels),
            passed=passed,
            cluster=view.cluster,
            timestamp=view.timestamp,
            judge=view.judge,
        )
        found.answers.append(answer)
        found.judges.add(view.judge)
    elif passed is None:
        found.unjudged += 1
    else:
        found.judges.add(view.judge)
        found.others.add(view.cluster, passed)


def _labels_of(found: LabelMatches, view: JudgedAnswerView) -> list[Label]:
    """Return the labels for the answer of a result; mark which labels are seen and used."""
    numbers = found.book.at(view)
    for number in numbers:
        found.is_seen[number] = 1
    if view.error is not None or view.candidate_answer is None:
        return []
    found.has_answers = True
    if not numbers:
        return []  # the digest of an answer is computed only where there are labels to compare it with
    labels: list[Label] = []
    for number in found.book.of(numbers, view.label_digest):
        found.is_used[number] = 1
        labels.append(found.book.labels[number])
    return labels


def last_of_each(labels: Iterable[Label]) -> tuple[Label, ...]:
    """Return the last label of each reviewer for each evaluator.

    A reviewer can have several labels with different keys for one answer: with its dataset, and without.
    """
    last = {(label.reviewer, label.evaluator): label for label in labels}
    return tuple(last.values())
