"""Estimate the difference between the pass rates of two runs from human labels of their answers.

Answers are paired by the id of the case and the trial. If both runs gave the same answer, the case does not differ: it
needs no labels, and its labels are ignored. Such a label counts for both runs, so these cases have labels in both runs
far more often than others, and including them would bias the sample of labelled cases.

A run takes about a hundred bytes of memory per answer, in addition to the labels.
"""

import operator
from array import array
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, compress
from typing import Literal

import msgspec

from agentv.compare.compare import LabelDifferences
from agentv.compare.read import ComparedRuns
from agentv.compare.records import LabelDifference, LabelFigure
from agentv.files.compact_sets import HashIndex
from agentv.log import ignore, warn
from agentv.records import Problem
from agentv.results.groups import group_name
from agentv.results.run_files import RunFiles, files_of, read_views
from agentv.stats.agreement import Figure
from agentv.stats.correction import PairedCases, labelled_difference, powered_difference
from agentv.text import plural
from agentv.trust.labels.file import Label
from agentv.trust.labels.match import (
    JudgedAnswerView,
    LabelBook,
    LabelledAnswer,
    last_of_each,
)
from agentv.trust.labels.pairs import has_random, is_earlier, majority

_REPEATED = 2
"""Replaces the verdict if several results have the same id and trial, for several targets."""
Unfit = Literal["disputed", "chosen", "carried over"]
"""Why the labels of an answer are not used."""
UNFIT_NOTES: Mapping[Unfit, str] = {
    "disputed": "the labels of an answer are tied between pass and fail",
    "chosen": "an answer was not sampled at random",
    "carried over": "an answer was labelled before its run, and other labels of that time are stale",
}


class RunAnswers:
    """The judged answers of a run, with their verdicts and labels."""

    def __init__(self, book: LabelBook, shared_ids: frozenset[str]):
        self.book = book
        self._shared_ids = shared_ids
        self.keys = array("q")
        """Hash of the case and trial of each answer."""
        self.digests = array("Q")
        """Digest of each answer."""
        self.clusters = array("q")
        """Hash of the cluster of each answer, or 0."""
        self.verdicts = bytearray()
        """1 for each answer that passed, 0 if it failed, or `_REPEATED`."""
        self.labelled: dict[int, LabelledAnswer] = {}
        """The answers that have labels, by position."""
        self.is_seen = bytearray(len(book))
        """1 for each label whose case is in the run."""
        self.is_used = bytearray(len(book))
        """1 for each label whose answer is in the run."""
        self._places = HashIndex()

    def find(self, key: int) -> int:
        """Return the position of the answer to a case, or -1."""
        return self._places.get(key)

    def add(self, view: JudgedAnswerView, cluster: Hashable) -> None:
        """Add a result, unless it has no answer or no verdict."""
        numbers = self.book.at(view)
        for number in numbers:
            self.is_seen[number] = 1
        if view.candidate_answer is None or view.error is not None:
            return
        digest = view.label_digest
        numbers = self.book.of(numbers, digest)
        for number in numbers:
            self.is_used[number] = 1
        passed = view.judgement(None)
        if passed is None:
            return
        # runs are paired as in `agentv compare`: without the target, and by the dataset only if datasets share the id
        case: Hashable = view.eval_id
        if view.eval_id in self._shared_ids:
            case = view.case_key
        key = hash((case, view.trial or 1))
        repeated = self.find(key)
        if repeated >= 0:
            self.verdicts[repeated] = _REPEATED
            return
        place = len(self.keys)
        self._places.add(key, place)
        self.keys.append(key)
        self.digests.append(int(digest, 16))
        self.clusters.append(_cluster_hash(cluster))
        self.verdicts.append(passed)
        labels = self._case_labels(numbers)
        if labels:
            self.labelled[place] = LabelledAnswer(
                labels=labels,
                passed=passed,
                cluster=view.cluster,
                timestamp=view.timestamp,
                judge=view.judge,
            )

    def _case_labels(self, numbers: Iterable[int]) -> tuple[Label, ...]:
        """Return the labels that are about the case and not about one evaluator."""
        labels = []
        for number in numbers:
            label = self.book.labels[number]
            if label.evaluator is None:
                labels.append(label)
        return last_of_each(labels)


def _cluster_hash(cluster: Hashable) -> int:
    """Return a hash that is never 0, or 0 without a cluster."""
    if cluster is None:
        return 0
    return hash(cluster) or 1


def differences_by(book: LabelBook) -> LabelDifferences:
    """Return a function that estimates the differences between runs from these labels."""
    return partial(_label_differences, book)


def _label_differences(
    book: LabelBook,
    runs: Sequence[RunFiles],
    compared: ComparedRuns,
    cluster: str | None,
) -> Iterator[LabelDifference | None]:
    """Yield the difference by labels between each of the other runs and the first; None without labels for their cases.

    `cluster` names the field or metadata key that cases are clustered by; the default is trials and conversations.
    """
    if not book.is_of_any(compared.ids):
        return
    for path in chain.from_iterable(map(files_of, runs)):
        if not path.is_file():
            message = "labels are ignored: the file is not a regular file and can be read only once"
            warn(
                Problem(
                    message=message,
                    severity="warning",
                    file=path,
                )
            )
            return
    first = _read_answers(runs[0], book, cluster, compared)
    for run in runs[1:]:
        second = _read_answers(run, book, cluster, compared)
        yield _compare(first, second)


def _read_answers(
    run: RunFiles,
    book: LabelBook,
    cluster: str | None,
    compared: ComparedRuns,
) -> RunAnswers:
    """Return the judged answers of a run. Cases with a shared id are distinguished by their dataset."""
    answers = RunAnswers(book, compared.shared_ids)
    selection = compared.selection
    for view in read_views(run, JudgedAnswerView, ignore):
        if selection is not None and not selection.includes(view.dataset, view.eval_id):
            continue
        group: Hashable = None
        if cluster is not None:
            group = group_name(view, cluster)
        if group is None:
            group = view.cluster
        answers.add(view, group)
    return answers


class _Groups:
    """Differences of cases: summed up over each cluster, and counted for cases without a cluster."""

    def __init__(self) -> None:
        self._alone: Counter[PairedCases] = Counter()
        self._index = HashIndex()
        self._sums = [array("q") for _ in PairedCases._fields]
        """A column per field of `PairedCases`, with an entry per cluster."""

    def add(self, cluster: Hashable, case: PairedCases) -> None:
        """Add a case; its cluster may be None."""
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
            column[place] += int(number)

    def counts(self) -> Mapping[PairedCases, int]:
        """Return the number of clusters and cases by their differences."""
        counts = Counter(map(PairedCases, *self._sums))
        counts.update(self._alone)
        return counts


_SAME_ANSWER = PairedCases(
    cases=1,
    changed=0,
    labelled=0,
    label=0,
    judge=0,
    rest=0,
)


def _labelled_case(label: int, judge: int) -> PairedCases:
    """Return a case whose labels and verdicts differ by this much."""
    return PairedCases(
        cases=1,
        changed=1,
        labelled=1,
        label=label,
        judge=judge,
        rest=0,
    )


def _unlabelled_case(judge: int) -> PairedCases:
    """Return a case without labels whose verdicts differ by this much."""
    return PairedCases(
        cases=1,
        changed=1,
        labelled=0,
        label=0,
        judge=0,
        rest=judge,
    )


@dataclass(slots=True)
class _Tally:
    """The cases that were judged in both runs: how their answers, verdicts and labels differ."""

    is_depleted: bool
    """Whether some of the random labels are stale, see `_verdict_by_label`."""
    groups: _Groups = field(default_factory=_Groups)
    all: int = 0
    same: int = 0
    """Cases with the same answer in both runs."""
    cases: int = 0
    """Cases with usable labels of both answers."""
    used: int = 0
    """Labels of these cases."""
    first_answers: int = 0
    """Labelled answers of the first run, to cases whose answers differ."""
    second_answers: int = 0
    """Labelled answers of the second run, to cases whose answers differ."""
    unfit: Counter[Unfit] = field(default_factory=Counter)
    """Cases with labels in both runs that cannot be used."""
    repeated: int = 0
    """Cases that are skipped because a run has several results with the same id and trial."""

    def add_same(self, cluster: Hashable) -> None:
        """Count a case that has the same answer in both runs."""
        self.all += 1
        self.same += 1
        self.groups.add(cluster, _SAME_ANSWER)

    def add(
        self,
        cluster: Hashable,
        judge: int,
        first: LabelledAnswer | None,
        second: LabelledAnswer | None,
    ) -> None:
        """Count a case whose answers differ; `judge` is the difference between the verdicts."""
        self.all += 1
        if first is not None:
            self.first_answers += 1
        if second is not None:
            self.second_answers += 1
        label = None
        if first is not None and second is not None:
            label = self._label_difference(first, second)
        if label is None:
            self.groups.add(cluster, _unlabelled_case(judge))
        else:
            self.groups.add(cluster, _labelled_case(label, judge))

    def _label_difference(self, first: LabelledAnswer, second: LabelledAnswer) -> int | None:
        """Return the difference between the labels of two answers, or None if they cannot be used."""
        before = _verdict_by_label(first, self.is_depleted)
        after = _verdict_by_label(second, self.is_depleted)
        # A verdict that is not a bool is the reason why there is none.
        if not isinstance(before, bool):
            self.unfit[before] += 1
            return None
        if not isinstance(after, bool):
            self.unfit[after] += 1
            return None
        self.cases += 1
        self.used += len(first.labels) + len(second.labels)
        return int(after) - int(before)

    @property
    def notes(self) -> Iterator[str]:
        """Yield which cases are not used, and why."""
        for reason, count in self.unfit.items():
            cases = plural(count, "case with labels in both runs is", "cases with labels in both runs are")
            yield f"{cases} not used: {UNFIT_NOTES[reason]}"
        if self.repeated:
            cases = plural(self.repeated, "case is", "cases are")
            yield f"{cases} skipped: several results of a run have the same id and trial"


def _compare(first: RunAnswers, second: RunAnswers) -> LabelDifference | None:
    """Return how the second run differs from the first by labels; None if no label is for one of their cases."""
    is_seen = bytes(map(operator.or_, first.is_seen, second.is_seen))
    is_used = bytes(map(operator.or_, first.is_used, second.is_used))
    if not any(is_seen):
        return None
    is_stale = map(operator.gt, is_seen, is_used)
    stale = list(compress(first.book.labels, is_stale))
    case_labels = [label for label in stale if label.evaluator is None]
    tally = _tally(first, second, has_random(case_labels))
    note = _why_no_figure(tally)
    if note:
        difference = Figure(note=note)
        corrected = Figure(note=note)
    else:
        groups = tally.groups.counts()
        difference = labelled_difference(groups)
        corrected = powered_difference(groups)
    return LabelDifference(
        used=tally.used,
        stale=len(stale),
        cases=tally.cases,
        same_answers=tally.same,
        of=tally.all,
        difference=_figure(difference),
        corrected=_figure(corrected),
        notes=tuple(tally.notes),
    )


def _tally(
    first: RunAnswers,
    second: RunAnswers,
    is_depleted: bool,
) -> _Tally:
    """Pair the answers of two runs, and count how they differ."""
    tally = _Tally(is_depleted)
    for place, key in enumerate(first.keys):
        other = second.find(key)
        if other < 0:
            continue
        before = first.verdicts[place]
        after = second.verdicts[other]
        if _REPEATED in (before, after):
            tally.repeated += 1
            continue
        cluster = first.clusters[place] or second.clusters[other] or None
        if first.digests[place] == second.digests[other]:
            tally.add_same(cluster)
        else:
            first_answer = first.labelled.get(place)
            second_answer = second.labelled.get(other)
            tally.add(cluster, after - before, first_answer, second_answer)
    return tally


def _verdict_by_label(answer: LabelledAnswer, is_depleted: bool) -> bool | Unfit:
    """Return whether an answer passes by its labels, or why these cannot be used.

    `is_depleted` says that some random labels of the two runs' cases are stale: the remaining labels of that time are
    no longer a random sample of the answers.
    """
    deserved = majority(answer.labels)
    if deserved is None:
        return "disputed"
    if not has_random(answer.labels):
        return "chosen"
    if is_depleted and is_earlier(answer.labels, answer.timestamp):
        return "carried over"
    return deserved


def _why_no_figure(tally: _Tally) -> str:
    """Return why the labels do not show a difference between the runs, or an empty string if they do."""
    a = tally.first_answers
    b = tally.second_answers
    if tally.cases:
        return ""
    if not tally.all:
        return "no case was judged in both runs"
    if tally.same == tally.all:
        return "the answers of both runs are identical"
    if not a and not b:
        return "no labelled answer differs between the runs"
    if not a or not b:
        return _why_one_sided(a, b)
    return f"no case has usable labels in both runs (A {a}, B {b}): label both answers to the same cases"


def _why_one_sided(a: int, b: int) -> str:
    """Return the message for labels of only one of the runs; `a` and `b` are the numbers of labelled answers."""
    name = "A"
    other = "B"
    if not a:
        name = "B"
        other = "A"
    count = a or b
    answers = plural(count, f"answer of {name} has", f"answers of {name} have")
    return f"{answers} labels, but none of {other}: label answers of both runs to the same cases"


def _figure(figure: Figure) -> LabelFigure:
    return LabelFigure(**msgspec.structs.asdict(figure))
