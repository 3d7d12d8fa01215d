"""Reviews, in which people label answers: the answers of a review, their order, and storing the labels.

A review samples the answers, and reads an answer from its file when it is shown. A label is on disk before it is
acknowledged. In memory, a review keeps one number per remaining answer, and the labels that it has written.

A random review samples from all answers without a random label of this reviewer. This includes answers that the
reviewer has labelled in a chosen selection: without these, the rest would not be a random sample of the run.
"""

import math
import os
import random
import secrets
import threading
from array import array
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

import msgspec

from agentv.errors import OutputError
from agentv.files.compact_sets import DuplicateFinder
from agentv.results.runs import LABELS
from agentv.text import timestamp_now
from agentv.trust.answers import AnswerIndex, ReviewConflict, ReviewedAnswer, key_hash
from agentv.trust.labels.file import Label, NoLabels, append_labels, read_labels
from agentv.trust.labels.match import LabelBook

MAX_NAME = 100
MAX_NOTE = 4000
MAX_CHOSEN = 200_000

Selection = Literal["all", "failed", "chosen"]
Share = Annotated[float, msgspec.Meta(ge=0, le=1)]


class ReviewDefaults(msgspec.Struct, frozen=True, kw_only=True):
    """The labels file, and the initial choices on the page that starts a review."""

    labels: Path = LABELS
    reviewer: str = ""
    only: Selection = "all"
    share: Share | None = None


class ReviewOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The answers that a review shows, and who labels them."""

    reviewer: Annotated[str, msgspec.Meta(max_length=MAX_NAME)] = ""
    only: Selection = "all"
    share: Share | None = None
    """The share of the answers labelled by other reviewers that is shown first; None to mix them with the rest."""
    results: Annotated[tuple[int, ...], msgspec.Meta(max_length=MAX_CHOSEN)] = ()
    """The numbers of the results in the file, if `only` is `chosen`."""


class NewLabel(msgspec.Struct, frozen=True, kw_only=True):
    """The label that a reviewer gives to the answer that is shown; `retracted` removes the label."""

    label: Literal["pass", "fail", "retracted"]
    note: Annotated[str, msgspec.Meta(max_length=MAX_NOTE)] = ""


class ReviewState(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a review, as sent to its page."""

    id: str
    reviewer: str
    sampling: Literal["random", "chosen"]
    count: int
    """The number of remaining answers."""
    labelled: int
    """The number of answers in the selection that the reviewer has labelled before."""
    shared: int
    """The number of remaining answers that other reviewers have labelled, if these are shown first."""


class _Labelled(NamedTuple):
    """The hashes of answers that have labels."""

    mine: set[int]
    """Those that the reviewer does not have to label again."""
    others: set[int]
    """Those that other reviewers have labelled."""


class _Candidate(NamedTuple):
    """An answer that a review may show."""

    number: int
    """The position of the answer among those of all files."""
    is_mine: bool
    """Whether the reviewer has labelled it."""
    is_others: bool
    """Whether another reviewer has labelled it."""


class Review:
    """The answers that one reviewer labels, in order."""

    def __init__(
        self,
        files: Sequence[AnswerIndex],
        options: ReviewOptions,
        labels: Path,
        seed: int,
    ):
        """Sample the answers. `labels` is the labels file."""
        self.id = secrets.token_hex(8)
        self._files = files
        self._options = options
        self._path = labels
        self._ends = list(accumulate(map(len, files)))
        self._reviewer = options.reviewer.strip() or None
        self._sampling: Literal["random", "chosen"] = "chosen"
        if options.only == "all":
            self._sampling = "random"
        self._before: dict[int, Label] = {}
        """Earlier labels of this reviewer for answers that are shown again."""
        self._written: dict[int, Label] = {}
        self._lock = threading.Lock()
        self._labelled = 0
        self._shared = 0
        labelled = self._read_labels()
        self._order = self._sample(labelled, random.Random(seed))

    def _read_labels(self) -> _Labelled:
        """Return the answers that have labels, and remember earlier labels of answers that are shown again."""
        labelled = _Labelled(mine=set(), others=set())
        for label in read_book(self._path).labels:
            # Labels for the score of a single evaluator are not about the answer as a whole.
            if label.evaluator is not None:
                continue
            key = key_hash(label.key)
            is_mine = label.reviewer == self._reviewer
            # For a random sample, other labels do not count: their answers are labelled again.
            suffices = self._sampling == "chosen" or label.sampling == "random"
            if suffices and is_mine:
                labelled.mine.add(key)
            elif suffices:
                labelled.others.add(key)
            elif is_mine:
                self._before[key] = label
        return labelled

    def _sample(self, labelled: _Labelled, generator: random.Random) -> "array[int]":
        """Return the numbers of the remaining answers, in order."""
        share = self._options.share
        first = array("I")
        rest = array("I")
        known = 0
        for candidate in self._candidates(labelled):
            if candidate.is_mine:
                self._labelled += 1
                known += candidate.is_others
            elif candidate.is_others and share is not None:
                first.append(candidate.number)
            else:
                rest.append(candidate.number)
        generator.shuffle(first)
        generator.shuffle(rest)
        if share is not None:
            # Answers that the reviewer has already labelled count towards the share.
            wanted = math.ceil(share * (len(first) + known))
            self._shared = max(0, wanted - known)
        return first[: self._shared] + rest

    def _candidates(self, labelled: _Labelled) -> Iterable[_Candidate]:
        """Yield the answers of the selection. Equal answers to a case are yielded once."""
        mine = labelled.mine
        others = labelled.others
        repeated = _repeated_keys(self._files)
        chosen = set(self._options.results)
        seen: set[int] = set()
        start = 0
        for file in self._files:
            for at, (key, any_key) in enumerate(zip(file.keys, file.keys_of_any, strict=True)):
                if self._options.only == "failed" and file.has_passed[at]:
                    continue
                if self._options.only == "chosen" and file.numbers[at] not in chosen:
                    continue
                # Remember only keys that are known to occur again, to keep memory flat.
                if hash(key) in repeated:
                    if key in seen:
                        continue
                    seen.add(key)
                yield _Candidate(
                    number=start + at,
                    is_mine=key in mine or any_key in mine,
                    is_others=key in others or any_key in others,
                )
            start += len(file)

    @property
    def state(self) -> ReviewState:
        return ReviewState(
            id=self.id,
            reviewer=self._reviewer or "",
            sampling=self._sampling,
            count=len(self._order),
            labelled=self._labelled,
            shared=self._shared,
        )

    def show(self, place: int) -> ReviewedAnswer:
        """Return the answer at a position of the order; raise `ReviewConflict` if its file has changed."""
        if not 0 <= place < len(self._order):
            raise ReviewConflict("no such answer in this review")
        number = self._order[place]
        file_number = bisect_right(self._ends, number)
        file = self._files[file_number]
        start = self._ends[file_number] - len(file)
        return file.read(number - start)

    def label(self, place: int, given: NewLabel) -> None:
        """Write a label for the answer at a position. The label is on disk when this returns.

        A retraction restores the label that the reviewer had given before this review, if any. Raise `OutputError` if
        the label cannot be written.
        """
        with self._lock:
            if given.label == "retracted":
                append_labels(self._path, [self._retraction(place)])
                del self._written[place]
            else:
                label = self._new_label(place, given)
                append_labels(self._path, [label])
                self._written[place] = label

    def _new_label(self, place: int, given: NewLabel) -> Label:
        eval_id, dataset, trial, digest, _ = self.show(place).key
        return Label(
            eval_id=eval_id,
            dataset=dataset,
            trial=trial,
            answer_digest=digest,
            label=given.label,
            reviewer=self._reviewer,
            note=given.note.strip() or None,
            sampling=self._sampling,
            at=timestamp_now(),
        )

    def _retraction(self, place: int) -> Label:
        """Return the label that undoes the label of an answer."""
        written = self._written.get(place)
        if written is None:
            raise ReviewConflict("there is no label to retract")
        earlier = self._before.get(key_hash(written.key))
        if earlier is not None:
            return earlier
        return msgspec.structs.replace(
            written,
            label="retracted",
            note=None,
            sampling=None,
            at=timestamp_now(),
        )


def read_book(path: Path) -> LabelBook:
    """Return the labels of a file; none if it does not exist. Raise `AgentvError` if it is not a labels file."""
    try:
        return LabelBook(read_labels(path))
    except NoLabels:
        return LabelBook(())


def check_labels(path: Path) -> None:
    """Raise `AgentvError` if labels cannot be read from a file, or cannot be written to it."""
    read_book(path)
    problem = _write_problem(path)
    if problem:
        raise OutputError(
            f"labels cannot be written: {problem}",
            file=path,
            hint="check the permissions, or choose another --labels",
        )


def _write_problem(path: Path) -> str:
    """Return why a file cannot be written; empty if it can be."""
    existing = path
    while not existing.exists() and existing != existing.parent:
        existing = existing.parent
    if existing == path:
        if not existing.is_file():
            return f"{str(existing)!r} is not a file"
    elif not existing.is_dir():
        return f"{str(existing)!r} is not a folder"
    can_check_effective_ids = os.access in os.supports_effective_ids
    if not os.access(existing, os.W_OK, effective_ids=can_check_effective_ids):
        return "Permission denied"
    return ""


def _repeated_keys(files: Sequence[AnswerIndex]) -> set[int]:
    """Return the hashes of answers that occur more than once: two targets, or two runs, may give equal answers."""
    finder = DuplicateFinder()
    for file in files:
        finder.add(file.keys)
    return finder.duplicate_hashes()
