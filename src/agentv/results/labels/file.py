"""Labels: what people say of answers. One JSON object a line, in a file that only ever grows.

A label names the text that it is about by a digest, so that it holds for that answer wherever it turns up, and for no
other. The last label of a reviewer for the same thing counts; earlier ones stay in the file. `retracted` takes what a
reviewer has said back: it is then as if they had given no label.
"""

import fcntl
import hashlib
import os
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

import msgspec

from agentv.errors import ConfigError, OutputError, ResultsError
from agentv.formats.conversion import convert
from agentv.formats.jsonl import column_in_json, explain_json_error
from agentv.formats.yaml import Place, open_regular, read_error
from agentv.notices import warn
from agentv.records import Fraction, Problem
from agentv.redact import Redactor, clean
from agentv.results.formats import DECODE_ERRORS

LABELS = Path(".agentv/labels.jsonl")
DIGEST_LENGTH = 16
DIGEST_PATTERN = f"[0-9a-f]{{{DIGEST_LENGTH}}}"
MAX_PROBLEMS = 10
NOT_LABELS = "a line of labels has eval_id, answer_digest and label (pass or fail)"
NO_LABELS = (
    "make labels with 'agentv view --review' or 'agentv labels import FILE.csv', or name another file with --labels"
)
_BOM = b"\xef\xbb\xbf"
_TAIL_BYTES = 1 << 16
_to_json = msgspec.json.Encoder().encode


class NoLabels(ConfigError):
    """There is no file of labels, or nothing is in it."""


def _no_dataset() -> str:
    return ""


def _first_trial() -> int:
    """Return 1. As the result of a function it is written to files, though it is a default."""
    return 1


class Label(msgspec.Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True):
    """What one person says of one answer: one line of `labels.jsonl`."""

    eval_id: Annotated[str, msgspec.Meta(min_length=1)]
    dataset: str = msgspec.field(default_factory=_no_dataset)
    """Without one, it holds for the case of that id in any dataset."""
    trial: Annotated[int, msgspec.Meta(ge=1)] = msgspec.field(default_factory=_first_trial)
    answer_digest: Annotated[str, msgspec.Meta(min_length=1, extra_json_schema={"pattern": f"^{DIGEST_PATTERN}$"})]
    """The first 16 hex digits of the SHA-256 of the labelled text."""
    label: Literal["pass", "fail", "retracted"]
    """`retracted` takes back what the same reviewer has said of the same thing."""
    score: Fraction | None = None
    evaluator: str | None = None
    """The evaluator whose verdict it is to be compared with; without one it is that of the case."""
    reviewer: str | None = None
    note: str | None = None
    sampling: Literal["random", "chosen"] | None = None
    """How the answer came to be labelled: drawn at random from its run, or chosen."""
    at: str | None = None
    """When."""

    @property
    def key(self) -> "LabelKey":
        """What the label is about."""
        return LabelKey(self.eval_id, self.dataset, self.trial, self.answer_digest, self.evaluator)


class LabelKey(NamedTuple):
    """What a label is about: an answer, and which evaluator's verdict on it, or the case's."""

    eval_id: str
    dataset: str
    trial: int
    answer_digest: str
    evaluator: str | None


def answer_digest(text: str) -> str:
    """Return the digest by which a label names an answer."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:DIGEST_LENGTH]


def read_labels(path: Path, on_torn: Callable[[Problem], None] = warn) -> Iterator[Label]:
    """Yield the labels of a file, in their order.

    A torn last line is skipped, and `on_torn` is told. Raise `NoLabels` if there is no such file, or nothing in it,
    `ResultsError` with all that is wrong with it.
    """
    problems: list[Problem] = []
    count = 0
    try:
        with open_regular(path) as file:
            decode = msgspec.json.Decoder(Label).decode
            for number, line in enumerate(file, 1):
                raw = line.removeprefix(_BOM) if number == 1 else line
                if not raw.strip():
                    continue
                try:
                    label = decode(raw)
                except DECODE_ERRORS as error:
                    problems += _find_problems(raw, error, path, number, is_first=not count)
                else:
                    problems += check_digest(label, path, number)
                    count += 1
                    yield label
                if len(problems) >= MAX_PROBLEMS:
                    break
    except FileNotFoundError:
        raise NoLabels("there are no labels: no such file", file=path, hint=NO_LABELS) from None
    except (OSError, ValueError) as error:
        raise read_error(error, path, ConfigError) from error
    for torn in (problem for problem in problems if problem.severity == "warning"):
        on_torn(torn)
    if errors := [problem for problem in problems if problem.severity == "error"]:
        raise ResultsError(errors)
    if not count:
        raise NoLabels("there are no labels in this file", file=path, hint=NO_LABELS)


def check_digest(label: Label, path: Path, line: int) -> list[Problem]:
    """Return the problem of a digest that cannot be one."""
    if re.fullmatch(DIGEST_PATTERN, label.answer_digest):
        return []
    message = f"answer_digest: {label.answer_digest[:40]!r} is no digest"
    hint = f"it is the first {DIGEST_LENGTH} hex digits (0-9, a-f) of the SHA-256 of the answer"
    return [Problem(message=message, file=path, line=line, hint=hint)]


def _find_problems(raw: bytes, error: Exception, path: Path, line: int, *, is_first: bool) -> list[Problem]:
    """Return what is wrong with a line; a warning if it is that the end of the file is cut off."""
    try:
        value = msgspec.json.decode(raw)
    except DECODE_ERRORS:
        message, column = explain_json_error(raw, error)
        if not raw.endswith(b"\n") and not is_first:
            message = f"the last line is cut off ({message}): it is left out"
            return [Problem(message=message, severity="warning", file=path, line=line)]
        return [Problem(message=message, file=path, line=line, column=column, hint=NOT_LABELS)]
    if isinstance(value, dict) and is_first and not {"label", "answer_digest"} & value.keys():
        raise ResultsError([Problem(message="this is no file of labels", file=path, line=line, hint=NOT_LABELS)])
    found = convert(value, Label)
    misfits = found if isinstance(found, list) else []
    places = [Place(line, column_in_json(raw.decode(), misfit.steps)) for misfit in misfits]
    return [misfit.problem(path, place) for misfit, place in zip(misfits, places, strict=True)]


def append_labels(path: Path, labels: Iterable[Label], clean: Redactor = clean) -> int:
    """Append labels to a file, and return how many; when this returns, they are on disk.

    The file is locked meanwhile: whoever else appends waits. All of them are written, or none. Raise `OutputError` if
    that fails.
    """
    lines = [_to_json(clean.values(msgspec.to_builtins(label))) + b"\n" for label in labels]
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            is_new = not os.fstat(descriptor).st_size
            _write(descriptor, _end_last_line(descriptor, path) + b"".join(lines))
            os.fsync(descriptor)
            if is_new:
                _sync_folder(path.parent)
        finally:
            os.close(descriptor)
    except OSError as error:
        message = f"labels cannot be written: {error.strerror or error}"
        raise OutputError(message, file=path, hint="see who may write there, or name another --labels") from error
    return len(lines)


def _write(descriptor: int, data: bytes) -> None:
    """Write all of it; if there is no room for it, leave nothing of it behind."""
    before, written = os.fstat(descriptor).st_size, 0
    try:
        while written < len(data):
            written += os.write(descriptor, memoryview(data)[written:])
    except OSError:
        with suppress(OSError):
            os.ftruncate(descriptor, before)
        raise


def _sync_folder(folder: Path) -> None:
    """See to it that a file that is new in a folder is still there after a crash."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _end_last_line(descriptor: int, path: Path) -> bytes:
    """Return what is to be written before new labels; a last line that a kill has cut off is taken out."""
    size = os.fstat(descriptor).st_size
    if not size or os.pread(descriptor, 1, size - 1) == b"\n":
        return b""
    start, tail = size, b""
    while start and b"\n" not in tail:
        start = max(0, start - _TAIL_BYTES)
        tail = os.pread(descriptor, size - start, start)
    line = tail.rpartition(b"\n")[2]
    try:
        msgspec.json.decode(line.removeprefix(_BOM))
    except DECODE_ERRORS:
        os.ftruncate(descriptor, size - len(line))
        warn(Problem(message="the last line was cut off: it is taken out", severity="warning", file=path))
        return b""
    return b"\n"  # whole, as an editor leaves it
