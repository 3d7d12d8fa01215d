"""An index of the answers in a results file: a few numbers per answer, and no text.

A review samples from these numbers, and reads an answer from the file when it is shown.
"""

import os
from array import array
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from agentv.errors import ConfigError
from agentv.redact import clean
from agentv.results.formats import DECODE_ERRORS, format_for, sniff
from agentv.results.views import PageView, TextRow
from agentv.trust.labels.file import LabelKey
from agentv.trust.review_content import ReviewMessage, ReviewToolCall, shown_calls, shown_conversation

NO_ANSWERS = "labels refer to answers, which 'agentv eval' writes as 'candidate_answer'"
FILE_CHANGED = "the results file has changed: reload the page"
_START_BYTES = 4096
_BOM = b"\xef\xbb\xbf"


class NoAnswers(ConfigError):
    """A results file has no answers to label."""


class ReviewConflict(Exception):
    """A request does not fit the state of its review, or the results file has changed."""


class ReviewedView(TextRow, frozen=True, gc=False):
    """A result with everything that a reviewer reads."""

    question: str | None = None
    expected_outcome: str | None = None
    reference_answer: str | None = None
    output_messages: Any = None
    trace: Any = None


class BlindCase(msgspec.Struct, frozen=True, kw_only=True):
    """The part of a result that is sent to a reviewer: without target, scores and verdicts."""

    question: str | None
    answer: str
    conversation: tuple[ReviewMessage, ...]
    """The messages of the answer with their tool calls; empty if it consists of text, or if they were not stored."""
    tool_calls: tuple[ReviewToolCall, ...]
    """The tool calls of the trace, unless the conversation already contains them."""
    tool_counts: dict[str, int]
    """How often each tool was called, if the calls themselves were not stored."""
    file_changes: str | None
    """The changed files as a unified diff."""
    expected_outcome: str | None
    reference_answer: str | None


class ReviewedAnswer(NamedTuple):
    """An answer as a reviewer sees it, and the key of its labels."""

    case: BlindCase
    key: LabelKey


def key_hash(key: LabelKey) -> int:
    """Return the hash that identifies an answer. The evaluator of a label does not count."""
    return hash(key[:4])


class AnswerIndex:
    """The answers of one results file, at the time when it was read."""

    def __init__(self, path: Path, name: Path):
        """Start without answers. `name` is the path that messages show."""
        self.path = path
        self.name = name
        self.results = 0
        self.numbers = array("I")
        """For each answer, the number of its result in the file."""
        self.keys = array("q")
        """For each answer, the hash of its label key."""
        self.keys_of_any = array("q")
        """The same without the dataset, for labels that name none."""
        self.has_passed = bytearray()
        self._offsets = array("Q")
        self._sizes = array("Q")
        self._stamp = _stamp_of(path)

    def __len__(self) -> int:
        return len(self.keys)

    def add(
        self,
        view: PageView,
        offset: int,
        size: int,
    ) -> None:
        """Add the answer of a result, if it has one. The result takes `size` bytes of the file from `offset` on."""
        number = self.results
        self.results += 1
        if view.error is not None or view.candidate_answer is None:
            return
        key = _key_of(view)
        self.numbers.append(number)
        self.keys.append(key_hash(key))
        self.keys_of_any.append(key_hash(key._replace(dataset="")))
        self.has_passed.append(view.has_passed)
        self._offsets.append(offset)
        self._sizes.append(size)

    def check(self) -> None:
        """Raise `NoAnswers` if there are none."""
        if self.keys:
            return
        message = "the file contains no results"
        if self.results:
            message = "no result has an answer"
        raise NoAnswers(message, file=self.name, hint=NO_ANSWERS)

    def read(self, number: int) -> ReviewedAnswer:
        """Read an answer from the file; raise `ReviewConflict` if the file has changed at its position."""
        try:
            with self.path.open("rb", buffering=0) as file:
                descriptor = file.fileno()
                start = os.pread(descriptor, _START_BYTES, 0)
                raw = os.pread(descriptor, self._sizes[number], self._offsets[number])
            form = sniff(start.removeprefix(_BOM)) or format_for(self.path)
            view: ReviewedView = form.decoder(ReviewedView)(raw)
        except OSError as error:
            reason = error.strerror or str(error)
            raise ReviewConflict(f"the results file cannot be read: {reason.lower()}") from None
        except DECODE_ERRORS:
            raise ReviewConflict(FILE_CHANGED) from None
        key = _key_of(view)
        if key_hash(key) != self.keys[number]:
            raise ReviewConflict(FILE_CHANGED)
        return ReviewedAnswer(_blind(view), key)

    @property
    def is_current(self) -> bool:
        """Whether the file has not changed since it was read."""
        return _stamp_of(self.path) == self._stamp


def _key_of(view: PageView | ReviewedView) -> LabelKey:
    """Return the key of labels for the answer of a result as a whole."""
    return LabelKey(
        eval_id=view.eval_id,
        dataset=view.dataset,
        trial=view.trial or 1,
        answer_digest=view.label_digest,
        evaluator=None,
    )


def _blind(view: ReviewedView) -> BlindCase:
    answer = clean(view.candidate_answer or "")
    conversation = shown_conversation(view.output_messages, answer)
    tool_calls: tuple[ReviewToolCall, ...] = ()
    if not any(message.calls for message in conversation):
        tool_calls = shown_calls(view.trace)
    tool_counts: dict[str, int] = {}
    if not conversation and not tool_calls:
        tool_counts = clean.values(view.tool_counts)
    return BlindCase(
        question=_masked(view.question),
        answer=answer,
        conversation=conversation,
        tool_calls=tool_calls,
        tool_counts=tool_counts,
        file_changes=_masked(view.file_changes or None),
        expected_outcome=_masked(view.expected_outcome),
        reference_answer=_masked(view.reference_answer),
    )


def _masked(text: str | None) -> str | None:
    if text is None:
        return None
    return clean(text)


def _stamp_of(path: Path) -> tuple[int, int, int, int] | None:
    """Return values that change with the file; None if it does not exist."""
    try:
        status = path.stat()
    except OSError:
        return None
    return (
        status.st_dev,
        status.st_ino,
        status.st_mtime_ns,
        status.st_size,
    )
