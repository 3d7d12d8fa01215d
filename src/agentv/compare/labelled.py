"""Two runs, and labels of their answers -> by how much their pass rates differ, as people say.

Answers are paired by the id of the case and the trial. A text deserves one label wherever it stands, so a case that has
the same answer in both runs does not differ, whatever people say of it. It needs no labels, and its labels count for
nothing: a label of one run's answer is then one of the other's too, so that such cases would have labels of both far
more often than those that differ, and the labelled ones would be no random sample of all.

What is held of a run is about a hundred bytes an answer, besides the labels.
"""

import operator
from array import array
from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import compress
from typing import Any, Literal

from agentv.compare.records import LabelDifference, LabelFigure
from agentv.notices import warn
from agentv.records import Problem
from agentv.results.groups import group_name
from agentv.results.labels.file import answer_digest
from agentv.results.labels.match import AnswerView, LabelBook, LabelledAnswer, last_of_each
from agentv.results.labels.pairs import has_random, is_earlier, majority
from agentv.results.merging.merge import read_views
from agentv.results.run_files import RunFiles, files_of
from agentv.stats.agreement import Figure
from agentv.stats.correction import PairedCases, labelled_difference, powered_difference
from agentv.system.compact_sets import HashIndex

_REPEATED = 2
"""Stands for the verdict where several results have one id and trial: of several targets, or datasets."""
Unfit = Literal["disputed", "chosen", "carried over"]
"""Why the labels of an answer are not used."""


class _GroupedView(AnswerView, frozen=True, gc=False):
    """An answer with the metadata by which it may belong to others."""

    metadata: dict[str, Any] | None = None


class RunAnswers:
    """The answers of a run that were judged, each with its verdict, and with what people say of it."""

    def __init__(self, book: LabelBook):
        self.book = book
        self.keys, self.digests, self.clusters, self.verdicts = array("q"), array("Q"), array("q"), bytearray()
        """Of each answer: hashes of its case, its text and what it belongs to (0: nothing); 1 if it passed."""
        self.labelled: dict[int, LabelledAnswer] = {}
        self.is_seen, self.is_used = bytearray(len(book)), bytearray(len(book))
        """Of each label, whether its case is there, and whether its answer is."""
        self._places = HashIndex()

    def find(self, key: int) -> int:
        """Return the place of the answer to a case, -1 if there is none."""
        return self._places.get(key)

    def add(self, view: AnswerView, cluster: Hashable) -> None:
        """Add a result; one without an answer, or without a verdict on it, is passed over."""
        numbers = self.book.at(view)
        for number in numbers:
            self.is_seen[number] = 1
        if view.candidate_answer is None or view.error is not None:
            return
        digest = answer_digest(view.candidate_answer)
        numbers = self.book.of(numbers, digest)
        for number in numbers:
            self.is_used[number] = 1
        passed, key = view.judgement(None), hash((view.eval_id, view.trial or 1))
        if passed is None:
            return
        if (place := self.find(key)) >= 0:
            self.verdicts[place] = _REPEATED
            return
        place = len(self.keys)
        self._places.add(key, place)
        self.keys.append(key)
        self.digests.append(int(digest, 16))
        self.clusters.append(0 if cluster is None else hash(cluster) or 1)
        self.verdicts.append(passed)
        labels = last_of_each(label for label in map(self.book.labels.__getitem__, numbers) if label.evaluator is None)
        if labels:
            self.labelled[place] = LabelledAnswer(labels, passed, view.cluster, view.timestamp, view.judge)


def label_differences(
    runs: Sequence[RunFiles], book: LabelBook, cluster: str | None
) -> Iterator[LabelDifference | None]:
    """Yield for each of the other runs how it differs from the first by labels; None if no label is of their cases.

    `cluster` names what cases belong together by, besides trials and conversations.
    """
    files = [path for run in runs for path in files_of(run)]
    if pipe := next((path for path in files if not path.is_file()), None):
        message = "labels are left out: it is no regular file, and can be read only once"
        warn(Problem(message=message, severity="warning", file=pipe))
        return
    first = _read_answers(runs[0], book, cluster)
    for run in runs[1:]:
        yield _compare(first, _read_answers(run, book, cluster))


def _read_answers(run: RunFiles, book: LabelBook, cluster: str | None) -> RunAnswers:
    found = RunAnswers(book)
    for view in read_views(run, AnswerView if cluster is None else _GroupedView, _ignore):
        group = None if cluster is None else group_name(view, cluster)
        found.add(view, view.cluster if group is None else group)
    return found


class _Groups:
    """Differences of cases, summed up over those that belong together; of those that stand alone, counted."""

    def __init__(self) -> None:
        self._alone: Counter[tuple[int, ...]] = Counter()
        self._index = HashIndex()
        self._sums = [array("q") for _ in PairedCases._fields]

    def add(self, cluster: Hashable, case: tuple[int, ...]) -> None:
        """Add a case, given by the fields of `PairedCases`; one whose cluster is None stands alone."""
        if cluster is None:
            self._alone[case] += 1
            return
        place = self._index.get(cluster)
        if place < 0:
            place = len(self._sums[0])
            self._index.add(cluster, place)
            for column in self._sums:
                column.append(0)
        for column, number in zip(self._sums, case, strict=True):
            column[place] += number

    def counts(self) -> Mapping[PairedCases, int]:
        found = Counter(map(PairedCases, *self._sums))
        found.update({PairedCases(*case): times for case, times in self._alone.items()})
        return found


@dataclass(slots=True)
class _Tally:
    """The cases that were judged in both runs: how their answers, verdicts and labels differ."""

    groups: _Groups = field(default_factory=_Groups)
    all: int = 0
    same: int = 0
    cases: int = 0
    used: int = 0
    answers: list[int] = field(default_factory=lambda: [0, 0])
    """Of each run, how many answers have labels, where the two answers to a case differ."""
    unfit: Counter[Unfit] = field(default_factory=Counter)
    """Cases with labels of both runs that cannot be used."""
    repeated: int = 0

    def add_same(self, cluster: Hashable) -> None:
        """Count a case that has the same answer in both runs."""
        self.all += 1
        self.same += 1
        self.groups.add(cluster, (1, 0, 0, 0, 0, 0))

    def add(self, cluster: Hashable, judged: int, sides: Sequence[LabelledAnswer | None], is_depleted: bool) -> None:
        """Count a case whose answers differ; `judged` is by how much the verdicts do."""
        self.all += 1
        for side, answer in enumerate(sides):
            self.answers[side] += answer is not None
        labelled = [answer for answer in sides if answer is not None]
        said = [_deserved(answer, is_depleted) for answer in labelled]
        fit = [each for each in said if isinstance(each, bool)]
        if len(fit) == 2:
            self.cases += 1
            self.used += sum(len(answer.labels) for answer in labelled)
            self.groups.add(cluster, (1, 1, 1, fit[1] - fit[0], judged, 0))
            return
        if len(said) == 2:
            self.unfit[next(each for each in said if not isinstance(each, bool))] += 1
        self.groups.add(cluster, (1, 1, 0, 0, 0, judged))

    @property
    def notes(self) -> Iterator[str]:
        texts: dict[Unfit, str] = {
            "disputed": "as many people pass an answer as fail it",
            "chosen": "an answer was not drawn at random",
            "carried over": "an answer was labelled before its run, while other labels of that time are stale",
        }
        for why, count in self.unfit.items():
            cases = (
                "1 case with labels of both runs is" if count == 1 else f"{count} cases with labels of both runs are"
            )
            yield f"{cases} not used: {texts[why]}"
        if self.repeated:
            cases = "1 case is" if self.repeated == 1 else f"{self.repeated} cases are"
            yield f"{cases} left out: several results of a run have the same id and trial"


def _compare(first: RunAnswers, second: RunAnswers) -> LabelDifference | None:
    """Return how the second run differs from the first; None if no label is of a case of theirs."""
    seen, used = map(operator.or_, first.is_seen, second.is_seen), map(operator.or_, first.is_used, second.is_used)
    labels = first.book.labels
    is_seen, is_used = bytes(seen), bytes(used)
    if not any(is_seen):
        return None
    stale = list(compress(labels, (seen > used for seen, used in zip(is_seen, is_used, strict=True))))
    found = _tally(first, second, has_random(label for label in stale if label.evaluator is None))
    note, groups = _why_no_figure(found), found.groups.counts()
    difference, corrected = (
        Figure(note=note) if note else method(groups) for method in (labelled_difference, powered_difference)
    )
    return LabelDifference(
        used=found.used,
        stale=len(stale),
        cases=found.cases,
        same_answers=found.same,
        of=found.all,
        difference=_figure(difference),
        corrected=_figure(corrected),
        notes=tuple(found.notes),
    )


def _tally(first: RunAnswers, second: RunAnswers, is_depleted: bool) -> _Tally:
    found = _Tally()
    for place, key in enumerate(first.keys):
        other = second.find(key)
        if other < 0:
            continue
        verdicts = first.verdicts[place], second.verdicts[other]
        if _REPEATED in verdicts:
            found.repeated += 1
            continue
        cluster = first.clusters[place] or second.clusters[other] or None
        if first.digests[place] == second.digests[other]:
            found.add_same(cluster)
        else:
            sides = first.labelled.get(place), second.labelled.get(other)
            found.add(cluster, verdicts[1] - verdicts[0], sides, is_depleted)
    return found


def _deserved(answer: LabelledAnswer, is_depleted: bool) -> bool | Unfit:
    """Return whether an answer passes by its labels, or why they cannot be used.

    `is_depleted` says that labels of the two runs' cases are stale; what is left of a random sample is none.
    """
    deserved = majority(answer.labels)
    if deserved is None:
        return "disputed"
    if not has_random(answer.labels):
        return "chosen"
    return "carried over" if is_depleted and is_earlier(answer.labels, answer.timestamp) else deserved


def _why_no_figure(found: _Tally) -> str:
    """Return why labels tell no difference of the two runs; empty if they do."""
    a, b = found.answers
    if found.cases:
        return ""
    if not found.all:
        return "no case was judged in both runs"
    if found.same == found.all:
        return "the answers of both runs are the same"
    if not a and not b:
        return "no label is of an answer that differs between the runs"
    if not a or not b:
        name, other, count = ("A", "B", a) if a else ("B", "A", b)
        answers = f"1 answer of {name} has" if count == 1 else f"{count} answers of {name} have"
        return f"{answers} labels and none of {other}: label answers of both runs to the same cases"
    return f"no case has labels of both runs that can be used (A {a}, B {b}): label both answers to the same cases"


def _figure(figure: Figure) -> LabelFigure:
    return LabelFigure(**asdict(figure))


def _ignore(_torn: Problem) -> None:
    """Say nothing: the run was read before, and all there is to say of it was said then."""
