"""A results file -> where its answers stand: a few numbers for each, and no text.

A review draws from these numbers, and reads an answer from the file when it is shown.
"""

import os
from array import array
from pathlib import Path
from typing import NamedTuple

import msgspec

from agentv.errors import ConfigError, ResultsError
from agentv.redact import clean
from agentv.results.formats import DECODE_ERRORS, format_for, sniff
from agentv.results.labels.file import LabelKey, answer_digest
from agentv.results.read import read_result_blocks
from agentv.results.views import VerdictView
from agentv.view.growing import Changed

NO_ANSWERS = "labels are of answers; 'agentv eval' writes them, as 'candidate_answer'"
_START_BYTES = 4096
_BOM = b"\xef\xbb\xbf"


class NoAnswers(ConfigError):
    """A results file has no answer that could be labelled."""


class AnswerView(VerdictView, frozen=True, gc=False):
    """A result with what names its answer."""

    dataset: str = ""
    trial: int | None = None
    candidate_answer: str | None = None

    @property
    def key(self) -> LabelKey:
        """What a label of the answer is about."""
        digest = answer_digest(self.candidate_answer or "")
        return LabelKey(self.eval_id, self.dataset, self.trial or 1, digest, None)


class CaseView(AnswerView, frozen=True, gc=False):
    """A result with what a reviewer reads."""

    question: str | None = None
    expected_outcome: str | None = None
    reference_answer: str | None = None


class BlindCase(msgspec.Struct, frozen=True, kw_only=True):
    """All that is sent of a result to a reviewer: nothing tells who answered, or what anybody made of it."""

    question: str | None
    answer: str
    expected_outcome: str | None
    reference_answer: str | None


class ShownAnswer(NamedTuple):
    """An answer as a reviewer sees it, and what a label of it is about."""

    case: BlindCase
    key: LabelKey


def key_hash(key: LabelKey) -> int:
    """Return the hash by which an answer is known here."""
    return hash(key[:4])


class Answers:
    """The answers of one results file, as it was when it was read."""

    def __init__(self, path: Path, name: Path):
        """Read the file; raise `ResultsError` with all that is wrong with it, `NoAnswers` if it has none.

        `name` is the path as messages have it.
        """
        self.path, self.name = path, name
        self.results = 0
        self.numbers = array("I")
        """Of each answer, the number of its result in the file."""
        self.keys, self.keys_of_any = array("q"), array("q")
        """What a label of the answer is about: with its dataset, and without."""
        self.has_passed = bytearray()
        self._offsets, self._sizes = array("Q"), array("Q")
        self._identity = _identity(path)
        try:
            self._read_all()
        except ResultsError as error:
            raise ResultsError([msgspec.structs.replace(each, file=name) for each in error.problems]) from None
        if not self.keys:
            what = "no result has an answer" if self.results else "there are no results in this file"
            raise NoAnswers(what, file=name, hint=NO_ANSWERS)

    def __len__(self) -> int:
        return len(self.keys)

    def _read_all(self) -> None:
        for block in read_result_blocks(self.path, AnswerView):
            for view, offset, size in block.places():
                if view.error is None and view.candidate_answer is not None:
                    self._add(view, offset, size)
                self.results += 1

    def _add(self, view: AnswerView, offset: int, size: int) -> None:
        key = view.key
        self.numbers.append(self.results)
        self.keys.append(key_hash(key))
        self.keys_of_any.append(key_hash(key._replace(dataset="")))
        self.has_passed.append(view.has_passed)
        self._offsets.append(offset)
        self._sizes.append(size)

    def read(self, number: int) -> ShownAnswer:
        """Read an answer; raise `Changed` if another stands in its place."""
        try:
            with self.path.open("rb", buffering=0) as file:
                form = sniff(os.pread(file.fileno(), _START_BYTES, 0).removeprefix(_BOM)) or format_for(self.path)
                raw = os.pread(file.fileno(), self._sizes[number], self._offsets[number])
            view: CaseView = form.decoder(CaseView)(raw)
        except OSError as error:
            raise Changed(f"the results file cannot be read: {(error.strerror or str(error)).lower()}") from None
        except DECODE_ERRORS:
            raise Changed("the results file was changed: begin anew") from None
        if key_hash(view.key) != self.keys[number]:
            raise Changed("the results file was changed: begin anew")
        return ShownAnswer(_blind(view), view.key)

    @property
    def is_current(self) -> bool:
        """Whether the file is as it was when it was read."""
        return _identity(self.path) == self._identity


def _blind(view: CaseView) -> BlindCase:
    texts = (view.question, view.expected_outcome, view.reference_answer)
    question, expected, reference = (None if text is None else clean(text) for text in texts)
    answer = clean(view.candidate_answer or "")
    return BlindCase(question=question, answer=answer, expected_outcome=expected, reference_answer=reference)


def _identity(path: Path) -> tuple[int, int, int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_mtime_ns, found.st_size
