"""People label answers: which ones they get, in which order, and what becomes of a label.

The server draws, and the page shows one answer after the other; nothing of an answer is sent before it is shown. A
label is on disk before it is acknowledged. What is held of a review is a number for each answer that is to come, and
the labels that it has written.

A random review draws from all answers that the reviewer has not labelled at random, also from those that they have
labelled because they chose to: what is left without these would be no random sample of the run.
"""

import math
import os
import random
import secrets
import threading
from array import array
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from itertools import accumulate
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from agentv.errors import OutputError
from agentv.results.labels.file import LABELS, Label, NoLabels, append_labels, read_labels
from agentv.results.labels.match import LabelBook
from agentv.system.compact_sets import DuplicateFinder
from agentv.view.answers import Answers, NoAnswers, ShownAnswer, key_hash
from agentv.view.files import ResultsFile
from agentv.view.growing import Changed

KEPT_REVIEWS = 32
KEPT_FILES = 8
MAX_NAME = 100
MAX_NOTE = 4000
MAX_CHOSEN = 200_000

Selection = Literal["all", "failed", "chosen"]
Share = Annotated[float, msgspec.Meta(ge=0, le=1)]


class ReviewDefaults(msgspec.Struct, frozen=True, kw_only=True):
    """How reviews begin, unless the page says otherwise, and the one file that labels go to."""

    labels: Path = LABELS
    reviewer: str = ""
    only: Selection = "all"
    share: Share | None = None


class ReviewRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Who reviews what."""

    run: str | None = None
    """The id of a run; without one, what the viewer was started with."""
    reviewer: Annotated[str, msgspec.Meta(max_length=MAX_NAME)] = ""
    only: Selection = "all"
    share: Share | None = None
    """How many of the answers that others have labelled come, before all others; None: they come as any."""
    results: Annotated[tuple[int, ...], msgspec.Meta(max_length=MAX_CHOSEN)] = ()
    """For `chosen`: the numbers of the results in the file."""


class LabelRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What a reviewer says of the answer that they see; `retracted` is undo."""

    label: Literal["pass", "fail", "retracted"]
    note: Annotated[str, msgspec.Meta(max_length=MAX_NOTE)] = ""


class ReviewState(msgspec.Struct, frozen=True, kw_only=True):
    """What a page is told of its review."""

    id: str
    reviewer: str
    sampling: Literal["random", "chosen"]
    count: int
    """Answers to come."""
    labelled: int
    """Answers of the same selection that the reviewer has labelled before."""
    shared: int
    """Of those to come, how many others have labelled, if these come first."""


class Review:
    """The answers that one reviewer gets, in their order."""

    def __init__(self, files: Sequence[Answers], asked: ReviewRequest, labels: Path, seed: int):
        self.id = secrets.token_hex(8)
        self._files, self._asked, self._path = files, asked, labels
        self._ends = list(accumulate(map(len, files)))
        self._reviewer = asked.reviewer.strip() or None
        self._sampling: Literal["random", "chosen"] = "random" if asked.only == "all" else "chosen"
        self._before: dict[int, Label] = {}
        """What the reviewer had said before of answers that come again."""
        self._written: dict[int, Label] = {}
        self._lock = threading.Lock()
        mine, others = self._read_labels()
        self._labelled, self._shared = 0, 0
        self._order = self._draw(mine, others, random.Random(seed))

    def _read_labels(self) -> tuple[set[int], set[int]]:
        """Return what this reviewer need not label again, and what others have labelled."""
        mine: set[int] = set()
        others: set[int] = set()
        for label in read_book(self._path).labels:
            if label.evaluator is not None:
                continue
            counts = self._sampling == "chosen" or label.sampling == "random"
            if label.reviewer != self._reviewer:
                others.update([key_hash(label.key)] if counts else ())
            elif counts:
                mine.add(key_hash(label.key))
            else:
                self._before[key_hash(label.key)] = label
        return mine, others

    def _draw(self, mine: set[int], others: set[int], dice: random.Random) -> "array[int]":
        """Return the numbers of the answers to come, in their order."""
        first, rest, known = array("I"), array("I"), 0
        for number, is_mine, is_others in self._candidates(mine, others):
            if is_mine:
                self._labelled += 1
                known += is_others
            elif is_others and self._asked.share is not None:
                first.append(number)
            else:
                rest.append(number)
        dice.shuffle(first)
        dice.shuffle(rest)
        if self._asked.share is not None:
            self._shared = max(0, math.ceil(self._asked.share * (len(first) + known)) - known)
        return first[: self._shared] + rest

    def _candidates(self, mine: set[int], others: set[int]) -> Iterable[tuple[int, bool, bool]]:
        """Yield the answers that were asked for, the same answer once: whether it has a label of theirs, of others."""
        repeated, chosen, start = _repeated_keys(self._files), set(self._asked.results), 0
        seen: set[int] = set()
        for file in self._files:
            for at, (key, any_key) in enumerate(zip(file.keys, file.keys_of_any, strict=True)):
                if self._asked.only == "failed" and file.has_passed[at]:
                    continue
                if self._asked.only == "chosen" and file.numbers[at] not in chosen:
                    continue
                if hash(key) in repeated:
                    if key in seen:
                        continue
                    seen.add(key)
                yield start + at, key in mine or any_key in mine, key in others or any_key in others
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

    def show(self, place: int) -> ShownAnswer:
        """Return the answer at a place of the order; raise `Changed` if its file is not what it was."""
        if not 0 <= place < len(self._order):
            raise Changed("there is no such answer in this review")
        number = self._order[place]
        file = bisect_right(self._ends, number)
        return self._files[file].read(number - (self._ends[file] - len(self._files[file])))

    def label(self, place: int, said: LabelRequest) -> None:
        """Write a label of the answer at a place; it is on disk when this returns. Raise `OutputError` if it is not.

        Undo puts back what the reviewer had said before the review; nothing, as a rule.
        """
        with self._lock:
            label = self._take_back(place) if said.label == "retracted" else self._make(place, said)
            append_labels(self._path, [label])
            if said.label == "retracted":
                del self._written[place]
            else:
                self._written[place] = label

    def _make(self, place: int, said: LabelRequest) -> Label:
        eval_id, dataset, trial, digest, _ = self.show(place).key
        return Label(
            eval_id=eval_id,
            dataset=dataset,
            trial=trial,
            answer_digest=digest,
            label=said.label,
            reviewer=self._reviewer,
            note=said.note.strip() or None,
            sampling=self._sampling,
            at=_now(),
        )

    def _take_back(self, place: int) -> Label:
        written = self._written.get(place)
        if written is None:
            raise Changed("there is nothing to take back")
        retracted = msgspec.structs.replace(written, label="retracted", note=None, sampling=None, at=_now())
        return self._before.get(key_hash(written.key), retracted)


class ReviewDesk:
    """Begins reviews, and knows those that go on."""

    def __init__(self, defaults: ReviewDefaults):
        self.defaults = defaults
        self._reviews: OrderedDict[str, Review] = OrderedDict()
        self._answers: OrderedDict[Path, Answers] = OrderedDict()
        self._lock = threading.Lock()

    def check(self, files: Sequence[ResultsFile]) -> None:
        """Raise `AgentvError` if a review of these files could not begin, or no label be written."""
        check_labels(self.defaults.labels)
        self._read(files)

    def begin(self, files: Sequence[ResultsFile], asked: ReviewRequest) -> Review:
        """Begin a review of the answers in these files.

        Raise `AgentvError` if one cannot be read, or none has an answer, or the labels that are there are none.
        """
        with self._lock:
            answers = self._read(files)
            review = Review(answers, asked, self.defaults.labels, secrets.randbits(64))
            self._reviews[review.id] = review
            if len(self._reviews) > KEPT_REVIEWS:
                self._reviews.popitem(last=False)
            return review

    def find(self, review: str) -> Review:
        """Return a review that was begun; raise `Changed` if it is forgotten."""
        found = self._reviews.get(review)
        if found is None:
            raise Changed("this review is over: begin anew")
        return found

    def _read(self, files: Sequence[ResultsFile]) -> list[Answers]:
        found: list[Answers] = []
        problem: NoAnswers | None = None
        for file in files:
            try:
                found.append(self._read_file(file))
            except NoAnswers as error:
                problem = error  # another file may have some
        if not found and problem is not None:
            raise problem
        return found

    def _read_file(self, file: ResultsFile) -> Answers:
        known = self._answers.pop(file.real, None)
        answers = known if known is not None and known.is_current else Answers(file.real, file.path)
        self._answers[file.real] = answers
        if len(self._answers) > KEPT_FILES:
            self._answers.popitem(last=False)
        return answers


def read_book(path: Path) -> LabelBook:
    """Return the labels of a file; none if it is not there. Raise `AgentvError` if it is no file of labels."""
    try:
        return LabelBook(read_labels(path))
    except NoLabels:
        return LabelBook(())


def check_labels(path: Path) -> None:
    """Raise `AgentvError` if labels cannot be read from a file, or not be written to it."""
    read_book(path)
    place = path
    while not place.exists() and place != place.parent:
        place = place.parent
    is_fit = place.is_dir() if place != path else place.is_file()
    if not is_fit or not os.access(place, os.W_OK, effective_ids=os.access in os.supports_effective_ids):
        what = "Permission denied" if is_fit else f"{str(place)!r} is not a {'file' if place == path else 'folder'}"
        hint = "see who may write there, or name another --labels"
        raise OutputError(f"labels cannot be written: {what}", file=path, hint=hint)


def _repeated_keys(files: Sequence[Answers]) -> set[int]:
    """Return the hashes of answers that occur more than once: two targets, or two runs, may answer the same."""
    finder = DuplicateFinder()
    for file in files:
        finder.add(file.keys)
    return finder.duplicate_hashes()


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
