"""Human labels of answers, in an append-only file with one JSON object per line.

A label refers to its answer by a digest, so that it applies to that answer in any run, and to no other. The last label
of a reviewer for the same answer and evaluator counts; earlier ones stay in the file. The label `retracted` withdraws
the reviewer's earlier labels.
"""

import fcntl
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

import msgspec

from agentv.errors import ConfigError, OutputError, ResultsError
from agentv.files.atomic_files import sync_folder
from agentv.files.conversion import convert
from agentv.files.encode import to_json
from agentv.files.jsonl import column_in_json, explain_json_error
from agentv.files.yaml import Place, open_regular, read_error
from agentv.log import warn
from agentv.records import Fraction, Problem
from agentv.redact import Redactor, clean
from agentv.results.answer_digest import DIGEST_LENGTH, DIGEST_PATTERN
from agentv.results.formats import DECODE_ERRORS

MAX_PROBLEMS = 10
NOT_LABELS = "each line of a labels file has eval_id, answer_digest and label (pass or fail)"
NO_LABELS = (
    "create labels with 'agentv view --review' or 'agentv labels import FILE.csv', or choose another file with --labels"
)
_BOM = b"\xef\xbb\xbf"
_TAIL_BYTES = 1 << 16


class NoLabels(ConfigError):
    """The labels file does not exist or is empty."""


def _no_dataset() -> str:
    """Return an empty string. Unlike a plain default, the value of a default factory is written to files."""
    return ""


def _first_trial() -> int:
    """Return 1, as a default factory for the same reason as `_no_dataset`."""
    return 1


class Label(msgspec.Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True):
    """The label of one reviewer for one answer: one line of `labels.jsonl`."""

    eval_id: Annotated[str, msgspec.Meta(min_length=1)]
    """The id of the case."""
    dataset: str = msgspec.field(default_factory=_no_dataset)
    """If empty, the label applies to the case with this id in any dataset."""
    trial: Annotated[int, msgspec.Meta(ge=1)] = msgspec.field(default_factory=_first_trial)
    """The number of the trial."""
    answer_digest: Annotated[str, msgspec.Meta(min_length=1, extra_json_schema={"pattern": f"^{DIGEST_PATTERN}$"})]
    """The `answer_digest` of the result; of an answer that consists of text, the start of the SHA-256 of the text."""
    label: Literal["pass", "fail", "retracted"]
    """`retracted` withdraws earlier labels of the same reviewer with the same key."""
    score: Fraction | None = None
    """A score in addition to the label."""
    evaluator: str | None = None
    """The evaluator whose verdict the label is compared with, or None for the verdict on the case."""
    reviewer: str | None = None
    """Who gave the label."""
    note: str | None = None
    """A comment of the reviewer."""
    sampling: Literal["random", "chosen"] | None = None
    """Whether the answer was sampled at random from its run, or chosen."""
    at: str | None = None
    """The time at which the label was given."""

    @property
    def key(self) -> "LabelKey":
        """The answer and evaluator that the label is for."""
        return LabelKey(
            eval_id=self.eval_id,
            dataset=self.dataset,
            trial=self.trial,
            answer_digest=self.answer_digest,
            evaluator=self.evaluator,
        )


class LabelKey(NamedTuple):
    """Identifies an answer, and the evaluator whose verdict on it is labelled (None: the verdict on the case)."""

    eval_id: str
    dataset: str
    trial: int
    answer_digest: str
    evaluator: str | None


def read_labels(path: Path, on_truncated: Callable[[Problem], None] = warn) -> Iterator[Label]:
    """Yield the labels of a file in order.

    A truncated last line is skipped and passed to `on_truncated` as a warning. Raise `NoLabels` if the file does not
    exist or is empty, and `ResultsError` with everything that is wrong with it.
    """
    problems: list[Problem] = []
    count = 0
    try:
        with open_regular(path) as file:
            for label in _decode_lines(file, path, problems):
                count += 1
                yield label
    except FileNotFoundError:
        raise NoLabels("no labels: the file does not exist", file=path, hint=NO_LABELS) from None
    except (OSError, ValueError) as error:
        raise read_error(error, path, ConfigError) from error
    errors: list[Problem] = []
    for problem in problems:
        if problem.severity == "warning":
            on_truncated(problem)
        else:
            errors.append(problem)
    if errors:
        raise ResultsError(errors)
    if not count:
        raise NoLabels("the file contains no labels", file=path, hint=NO_LABELS)


def _decode_lines(
    lines: Iterable[bytes],
    path: Path,
    problems: list[Problem],
) -> Iterator[Label]:
    """Yield the labels of lines, and add everything that is wrong to `problems`, up to a limit."""
    decode = msgspec.json.Decoder(Label).decode
    is_first = True
    for number, line in enumerate(lines, 1):
        raw = line
        if number == 1:
            raw = line.removeprefix(_BOM)
        if not raw.strip():
            continue
        try:
            label = decode(raw)
        except DECODE_ERRORS as error:
            problems += _find_problems(raw, error, path, number, is_first=is_first)
        else:
            problems += check_digest(label, path, number)
            is_first = False
            yield label
        if len(problems) >= MAX_PROBLEMS:
            break


def check_digest(
    label: Label,
    path: Path,
    line: int,
) -> list[Problem]:
    """Return a problem if the digest of a label is malformed."""
    if re.fullmatch(DIGEST_PATTERN, label.answer_digest):
        return []
    problem = Problem(
        message=f"answer_digest: {label.answer_digest[:40]!r} is not a digest",
        file=path,
        line=line,
        hint=f"a digest has {DIGEST_LENGTH} hex digits (0-9, a-f): copy the answer_digest of the result",
    )
    return [problem]


def _find_problems(
    raw: bytes,
    error: Exception,
    path: Path,
    line: int,
    *,
    is_first: bool,
) -> list[Problem]:
    """Return the problems of an invalid line; a truncated line at the end of the file is a warning.

    Raise `ResultsError` if the first line shows that this is not a labels file.
    """
    try:
        value = msgspec.json.decode(raw)
    except DECODE_ERRORS:
        return [_json_problem(raw, error, path, line, is_first=is_first)]
    if is_first and isinstance(value, dict) and _is_other_record(value):
        problem = Problem(
            message="not a labels file",
            file=path,
            line=line,
            hint=NOT_LABELS,
        )
        raise ResultsError([problem])
    misfits = convert(value, Label)
    if not isinstance(misfits, list):
        return []
    problems: list[Problem] = []
    for misfit in misfits:
        place = Place(line, column_in_json(raw.decode(), misfit.steps))
        problems.append(misfit.problem(path, place))
    return problems


def _is_other_record(value: Mapping[str, object]) -> bool:
    """Return whether an object is not meant to be a label. Results have an `answer_digest`, too."""
    if "label" in value:
        return False
    return "answer_digest" not in value or "candidate_answer" in value


def _json_problem(
    raw: bytes,
    error: Exception,
    path: Path,
    line: int,
    *,
    is_first: bool,
) -> Problem:
    """Return the problem of a line that is not JSON."""
    message, column = explain_json_error(raw, error)
    if not raw.endswith(b"\n") and not is_first:
        return Problem(
            message=f"the last line is truncated ({message}) and is skipped",
            severity="warning",
            file=path,
            line=line,
        )
    return Problem(
        message=message,
        file=path,
        line=line,
        column=column,
        hint=NOT_LABELS,
    )


def append_labels(
    path: Path,
    labels: Iterable[Label],
    clean: Redactor = clean,
) -> int:
    """Append masked labels to a file, synchronize it to disk, and return their number.

    The file is locked while labels are appended; other processes wait. Either all labels are written, or none. Raise
    `OutputError` on failure.
    """
    lines: list[bytes] = []
    for label in labels:
        masked = clean.values(msgspec.to_builtins(label))
        lines.append(to_json(masked) + b"\n")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            is_new = not os.fstat(descriptor).st_size
            separator = _end_last_line(descriptor, path)
            _write(descriptor, separator + b"".join(lines))
            os.fsync(descriptor)
            if is_new:
                sync_folder(path.parent)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise OutputError(
            f"labels cannot be written: {error.strerror or error}",
            file=path,
            hint="check the permissions, or choose another --labels",
        ) from error
    return len(lines)


def _write(descriptor: int, data: bytes) -> None:
    """Append data to a file; if that fails, for example because the disk is full, restore the file."""
    size_before = os.fstat(descriptor).st_size
    rest = memoryview(data)
    try:
        while rest:
            written = os.write(descriptor, rest)
            rest = rest[written:]
    except OSError:
        with suppress(OSError):
            os.ftruncate(descriptor, size_before)
        raise


def _end_last_line(descriptor: int, path: Path) -> bytes:
    """Remove a truncated last line, and return the separator to write before new labels."""
    size = os.fstat(descriptor).st_size
    if not size or os.pread(descriptor, 1, size - 1) == b"\n":
        return b""
    start = size
    tail = b""
    while start and b"\n" not in tail:
        start = max(0, start - _TAIL_BYTES)
        tail = os.pread(descriptor, size - start, start)
    line = tail.rpartition(b"\n")[2]
    try:
        msgspec.json.decode(line.removeprefix(_BOM))
    except DECODE_ERRORS:
        os.ftruncate(descriptor, size - len(line))
        problem = Problem(
            message="the last line was truncated and is removed",
            severity="warning",
            file=path,
        )
        warn(problem)
        return b""
    return b"\n"  # the line is complete; an editor saved it without a line feed
