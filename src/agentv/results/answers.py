"""Look up stored answers by case, in a results file or in batch records (one JSON object with an `id` per line).

The file is read twice: once as a stream, to index the answers and to find all problems, and once answer by answer, on
demand. Only the offset of each answer is held in memory.
"""

import weakref
from array import array
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, Self

import msgspec

from agentv.errors import ProviderError, ResultsError
from agentv.files.jsonl import explain_json_error
from agentv.files.wire import response_from
from agentv.log import ignore, warn
from agentv.records import Problem, ProviderResponse, ResultKey
from agentv.redact import MASK
from agentv.results.formats import DECODE_ERRORS, JSONL, format_for, sniff
from agentv.results.read import read_result_blocks, unreadable
from agentv.results.trace import build_trace, summarize_trace
from agentv.results.views import ResultRow

NOT_ANSWERS = "an answers file contains agentv results, or one JSON object with 'id' and 'text' per line"
_START_BYTES = 4096
MOST_PROBLEMS = 10
_BOM = b"\xef\xbb\xbf"
_KEPT_FIELDS = {
    "trace": "trace",
    "trace_complete": "trace_complete",
    "stop_reason": "stop_reason",
    "note": "note",
    "output_messages": "output_messages",
    "response_metadata": "metadata",
}
"""The fields of a result that a response has, and their names there."""


class _BatchRecord(msgspec.Struct, frozen=True, gc=False):
    """A batch record with the fields that identify its case and trial."""

    id: str
    trial: Annotated[int, msgspec.Meta(ge=1)] | None = None


OnTruncated = Callable[[Problem], None]
Keys = Callable[[OnTruncated], Iterator[tuple[ResultKey, int]]]
"""Yields the key and offset of each answer of a file, and reports a truncated one at the end."""
NONE = -1
SEVERAL = -2


class AnswerOffsets:
    """The offsets of the answers of a file, by a hash of their key. Answers are numbered in file order."""

    def __init__(self, path: Path, keys: Keys, hint: str):
        """Raise `ResultsError`, with this hint, for several answers to the same trial of a case."""
        self._keys = keys
        self._numbers: dict[int, int] = {}
        self._by_id: dict[int, int] | None = None
        self._offsets = array("Q")
        self._position = -1
        """The offset after the record that was read last, or -1 if it is unknown."""
        for key, offset in keys(warn):
            key_hash = hash(key)
            self._numbers[key_hash] = len(self._offsets)
            self._offsets.append(offset)
        if len(self._numbers) < len(self):
            problems = islice(self._repeated(path, hint), MOST_PROBLEMS)
            raise ResultsError(list(problems))
        self._file = path.open("rb")
        weakref.finalize(self, self._file.close)  # also if the run that wanted the answers never started
        start = self._file.peek(_START_BYTES)
        self.form = sniff(start) or format_for(path)

    def __len__(self) -> int:
        return len(self._offsets)

    def _repeated(self, path: Path, hint: str) -> Iterator[Problem]:
        seen: set[int] = set()
        for key, _ in self._keys(ignore):
            key_hash = hash(key)
            if key_hash in seen:
                case = f"{key.eval_id!r}"
                if key.trial != 1:
                    case = f"{key.eval_id!r}, trial {key.trial}"
                yield Problem(
                    message=f"duplicate answer for {case}",
                    file=path,
                    hint=hint,
                )
            seen.add(key_hash)

    def exact_number(self, key: ResultKey) -> int:
        """Return the number of the answer with exactly this key, or `NONE`."""
        key_hash = hash(key)
        return self._numbers.get(key_hash, NONE)

    def number(self, key: ResultKey) -> int:
        """Return the number of the answer to a trial of a case, or `NONE`.

        An answer with another dataset, or without one, is used if no other answer has the same id and trial. Otherwise
        return `SEVERAL`.
        """
        found = self.exact_number(key)
        if found != NONE:
            return found
        if self._by_id is None:
            self._by_id = self._index_by_id()
        by_id = hash((key.eval_id, key.trial))
        return self._by_id.get(by_id, NONE)

    def _index_by_id(self) -> dict[int, int]:
        """Return the numbers of the answers by a hash of id and trial."""
        numbers: dict[int, int] = {}
        for number, (key, _) in enumerate(self._keys(ignore)):
            by_id = hash((key.eval_id, key.trial))
            if by_id in numbers:
                numbers[by_id] = SEVERAL
            else:
                numbers[by_id] = number
        return numbers

    def read(self, number: int) -> bytes:
        """Return the record of an answer; raise `OSError` or `StopIteration` if it no longer exists."""
        offset = self._offsets[number]
        if offset != self._position:
            # consecutive records need no seek, which would discard the buffer
            self._file.seek(offset)
        if self.form is not JSONL:
            self._position = -1
            records = iter(self.form.split(self._file))
            return next(records)
        raw = self._file.readline()
        self._position = offset + len(raw)
        return raw

    def close(self) -> None:
        self._file.close()


class StoredAnswers:
    """The answers of a file, by case."""

    def __init__(self, path: Path):
        """Index all answers of the file. Raise `ResultsError` with all of its problems."""
        self._path = path
        if _has_results(path):
            keys: Keys = partial(_result_keys, path)
        else:
            keys = partial(_batch_keys, path)
        self._places = AnswerOffsets(
            path,
            keys,
            hint="keep one answer for each case, dataset and trial",
        )
        if not len(self):
            problem = Problem(
                message="the file contains no answers",
                file=path,
                hint=NOT_ANSWERS,
            )
            raise ResultsError([problem])
        self._decode = self._places.form.decoder(dict)

    def __len__(self) -> int:
        return len(self._places)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._places.close()

    def find(self, dataset: str, eval_id: str, trial: int) -> dict[str, Any] | None:
        """Return the record with the answer to a trial of a case, or None if the file has none.

        Raise `ProviderError` if only other datasets have an answer, and several do, or if the record can no
        longer be read.
        """
        key = ResultKey.of_any_target(dataset, eval_id, trial)
        number = self._places.number(key)
        if number == SEVERAL:
            answers = f"{self._path.name} has answers to {eval_id!r}"
            raise ProviderError(f"{answers} from several datasets, but not from {dataset!r}")
        if number == NONE:
            return None
        try:
            raw = self._places.read(number)
            record: dict[str, Any] = self._decode(raw)
        except (OSError, StopIteration, *DECODE_ERRORS) as error:
            raise ProviderError(f"{self._path.name} has changed since the run began: {error}") from error
        return record


def _has_results(path: Path) -> bool:
    """Return whether the file has results, not batch records; raise `ResultsError` if it cannot be read."""
    try:
        with path.open("rb") as file:
            start = file.peek(_START_BYTES)
    except OSError as error:
        problem = Problem.of(unreadable(error, path))
        raise ResultsError([problem]) from error
    form = sniff(start) or format_for(path)
    if form is not JSONL:
        return True
    first_line, _, _ = start.partition(b"\n")
    return b'"eval_id"' in first_line


def _result_keys(path: Path, on_truncated: OnTruncated) -> Iterator[tuple[ResultKey, int]]:
    """Yield the key and offset of each result."""
    for block in read_result_blocks(path, ResultRow, on_truncated):
        for view, offset, _ in block.places():
            # answers are looked up by case and trial: another target may have given them
            yield view.trial_key, offset


def _batch_keys(path: Path, _on_truncated: OnTruncated) -> Iterator[tuple[ResultKey, int]]:
    """Yield the key and offset of each batch record; raise `ResultsError` with all problems after the last one."""
    decode = msgspec.json.Decoder(_BatchRecord).decode
    problems: list[Problem] = []
    next_offset = 0
    with path.open("rb") as file:
        for number, raw in enumerate(file, 1):
            offset = next_offset
            next_offset += len(raw)
            line = raw
            if number == 1:
                line = raw.removeprefix(_BOM)
                offset += len(raw) - len(line)
            if not line.strip():
                continue
            try:
                record = decode(line)
            except DECODE_ERRORS as error:
                problem = _batch_problem(line, error, path, number)
                problems.append(problem)
            else:
                key = ResultKey.of_any_target("", record.id, record.trial or 1)
                yield key, offset
            if len(problems) >= MOST_PROBLEMS:
                break
    if problems:
        raise ResultsError(problems)


def _batch_problem(
    line: bytes,
    error: Exception,
    path: Path,
    number: int,
) -> Problem:
    """Return the problem of an invalid batch record; `error` is the exception of the decoder."""
    column = None
    if isinstance(error, msgspec.ValidationError):
        message = str(error)
        if "id" in message:
            message = f"'id' is missing or not a string: {message}"
    else:
        message, column = explain_json_error(line, error)
    return Problem(
        message=message,
        file=path,
        line=number,
        column=column,
        hint=NOT_ANSWERS,
    )


def response_of(record: Mapping[str, Any]) -> ProviderResponse:
    """Return the answer of a result or batch record; raise `ProviderError` if it has an error instead."""
    if "eval_id" in record:
        return _response_of_result(record)
    error = record.get("error")
    has_answer = "text" in record or "output_messages" in record
    if isinstance(error, str) and not has_answer:
        raise ProviderError(error)
    return response_from(record)


def _response_of_result(result: Mapping[str, Any]) -> ProviderResponse:
    error = result.get("error")
    if error is not None:
        raise ProviderError(str(error))
    if "candidate_answer" not in result:
        raise ProviderError("the stored result has no candidate_answer")
    fields: dict[str, Any] = {"text": result["candidate_answer"]}
    for name, response_name in _KEPT_FIELDS.items():
        if name in result:
            fields[response_name] = result[name]
    metrics = result.get("execution_metrics")
    if isinstance(metrics, dict):
        fields |= metrics
    response = response_from(fields)
    changes = result.get("file_changes")
    if isinstance(changes, str):
        response = msgspec.structs.replace(response, file_changes=changes)
    metadata = result.get("metadata")
    if isinstance(metadata, Mapping):
        masked = result.get("masked")
        response = msgspec.structs.replace(response, case_metadata=usable_metadata(metadata, masked))
    if lacks_calls(response, _stored_calls(result.get("trace_summary"))):
        response = msgspec.structs.replace(response, trace_complete=False)
    return response


def usable_metadata(metadata: Mapping[str, Any] | None, masked: Any) -> Mapping[str, Any] | None:
    """Return the case metadata of a stored result; None if it has none, or if secrets are masked in it."""
    if metadata is None:
        return None
    if masked and MASK in msgspec.json.encode(metadata).decode():
        return None  # the case still has the value
    return metadata


def _stored_calls(summary: Any) -> Mapping[str, int]:
    """Return how often each tool was called, according to the summary of a trace in a result."""
    if not isinstance(summary, Mapping):
        return {}
    calls = summary.get("toolCallsByName")
    if not isinstance(calls, Mapping):
        return {}
    return calls


def lacks_calls(response: ProviderResponse, stored: Mapping[str, int]) -> bool:
    """Return whether tool calls that a stored summary counts are in neither the trace nor the messages."""
    if not stored:
        return False
    trace = build_trace(response) or ()
    return summarize_trace(trace, response).tool_calls_by_name != dict(stored)
