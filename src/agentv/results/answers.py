"""A file of answers -> the answer to a case. It is a results file, or batch records: a JSON object with an `id` a line.

The file is read twice: once as a stream, to find where each answer is and all that is wrong, and once answer by answer,
as they are asked for. Only the place of each answer is held.
"""

from array import array
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, Self

import msgspec

from agentv.errors import ProviderError, ResultsError
from agentv.formats.jsonl import explain_json_error
from agentv.formats.wire import response_from
from agentv.notices import warn
from agentv.records import Problem, ProviderResponse
from agentv.results.formats import DECODE_ERRORS, JSONL, format_for, sniff
from agentv.results.read import read_result_blocks, unreadable
from agentv.results.views import ScoreView

NOT_ANSWERS = "a file of answers has results of agentv, or JSON objects with an 'id' and a 'text', one a line"
_START_BYTES = 4096
MOST_PROBLEMS = 10


class KeyView(ScoreView, frozen=True, gc=False, forbid_unknown_fields=False):
    """A result with what tells whose answer it has."""

    dataset: str = ""
    trial: Annotated[int, msgspec.Meta(ge=1)] | None = None


class _BatchRecord(msgspec.Struct, frozen=True, gc=False):
    """A batch record with what tells whose answer it has."""

    id: str
    trial: Annotated[int, msgspec.Meta(ge=1)] | None = None


Key = tuple[str, str, int]
"""Whose answer it is: the dataset, the id and the trial."""
OnTorn = Callable[[Problem], None]
Keys = Callable[[OnTorn], Iterator[tuple[Key, int]]]
"""Yields the key of each answer of a file, and where it begins; tells of a torn one at the end."""
NONE, SEVERAL = -1, -2


class AnswerPlaces:
    """Where each answer of a file is, by a hash of its key; answers are numbered in the order of the file."""

    def __init__(self, path: Path, keys: Keys, hint: str):
        """Raise `ResultsError` for answers to the same trial of a case, with this hint."""
        self._keys = keys
        self._numbers: dict[int, int] = {}
        self._by_id: dict[int, int] | None = None
        self._offsets, self._behind = array("Q"), -1
        for key, offset in keys(warn):
            self._numbers[hash(key)] = len(self._offsets)
            self._offsets.append(offset)
        if len(self._numbers) < len(self):
            raise ResultsError(list(islice(self._repeated(path, hint), MOST_PROBLEMS)))
        self._file = path.open("rb")
        self.form = sniff(self._file.peek(_START_BYTES)) or format_for(path)

    def __len__(self) -> int:
        return len(self._offsets)

    def _repeated(self, path: Path, hint: str) -> Iterator[Problem]:
        seen: set[int] = set()
        for key, _ in self._keys(_ignore):
            if hash(key) in seen:
                _, eval_id, trial = key
                named = f"{eval_id!r}" if trial == 1 else f"{eval_id!r}, trial {trial}"
                yield Problem(message=f"there are two answers to {named}", file=path, hint=hint)
            seen.add(hash(key))

    def exact_number(self, key: Key) -> int:
        """Return the number of the answer that has this very key, `NONE` if there is none."""
        return self._numbers.get(hash(key), NONE)

    def number(self, key: Key) -> int:
        """Return the number of the answer to a trial of a case, `NONE` if there is none.

        An answer without a dataset, or of another one, is the answer if no other has the id; else it is `SEVERAL`.
        """
        found = self.exact_number(key)
        if found >= 0:
            return found
        if self._by_id is None:
            self._by_id = {}
            for number, (other, _) in enumerate(self._keys(_ignore)):
                by_id = hash(other[1:])
                self._by_id[by_id] = SEVERAL if by_id in self._by_id else number
        return self._by_id.get(hash(key[1:]), NONE)

    def read(self, number: int) -> bytes:
        """Return the record of an answer, as it is written; raise `OSError` or `StopIteration` if it is gone."""
        offset = self._offsets[number]
        if offset != self._behind:  # else the last one is just before it
            self._file.seek(offset)
        if self.form is not JSONL:
            self._behind = -1
            return next(iter(self.form.split(self._file)))
        raw = self._file.readline()
        self._behind = offset + len(raw)
        return raw

    def close(self) -> None:
        self._file.close()


class StoredAnswers:
    """The answers of a file, by the cases that they answer."""

    def __init__(self, path: Path):
        """Find all answers of the file. Raise `ResultsError` with everything that is wrong with it."""
        self._path = path
        try:
            with path.open("rb") as file:
                start = file.peek(_START_BYTES)
        except OSError as error:
            raise ResultsError([Problem.of(unreadable(error, path))]) from error
        has_results = (sniff(start) or format_for(path)) is not JSONL or b'"eval_id"' in start.partition(b"\n")[0]
        keys = _results if has_results else _batch_records
        self._places = AnswerPlaces(path, partial(keys, path), "keep one answer for each case, dataset and trial")
        if not len(self):
            raise ResultsError([Problem(message="there are no answers in this file", file=path, hint=NOT_ANSWERS)])
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
        """Return the record with the answer to a trial of a case; None if there is none.

        Raise `ProviderError` if several datasets have one and this does not, or if it cannot be read any more.
        """
        number = self._places.number((dataset, eval_id, trial))
        if number == SEVERAL:
            names = f"{self._path.name} has answers to {eval_id!r}"
            raise ProviderError(f"{names} of several datasets, and none of {dataset!r}")
        if number == NONE:
            return None
        try:
            record: dict[str, Any] = self._decode(self._places.read(number))
        except (OSError, StopIteration, *DECODE_ERRORS) as error:
            raise ProviderError(f"{self._path.name} has changed since the run began: {error}") from error
        return record


def _ignore(_torn: Problem) -> None:
    """Say nothing: it was told when the file was read first."""


def _results(path: Path, on_torn: OnTorn) -> Iterator[tuple[Key, int]]:
    for block in read_result_blocks(path, KeyView, on_torn):
        for view, offset, _ in block.places():
            yield (view.dataset, view.eval_id, view.trial or 1), offset


def _batch_records(path: Path, _on_torn: OnTorn) -> Iterator[tuple[Key, int]]:
    """Yield the keys of batch records; raise `ResultsError`, at the end, with all that is wrong."""
    decode = msgspec.json.Decoder(_BatchRecord).decode
    problems: list[Problem] = []
    offset = 0
    with path.open("rb") as file:
        for number, raw in enumerate(file, 1):
            start, offset = offset, offset + len(raw)
            line = raw.removeprefix(b"\xef\xbb\xbf") if number == 1 else raw
            if not line.strip():
                continue
            try:
                record = decode(line)
            except msgspec.ValidationError as error:
                message = f"no 'id' that is a text: {error}" if "id" in str(error) else str(error)
                problems.append(Problem(message=message, file=path, line=number, hint=NOT_ANSWERS))
            except DECODE_ERRORS as error:
                message, column = explain_json_error(line, error)
                problems.append(Problem(message=message, file=path, line=number, column=column, hint=NOT_ANSWERS))
            else:
                yield ("", record.id, record.trial or 1), start + len(raw) - len(line)
            if len(problems) >= MOST_PROBLEMS:
                break
    if problems:
        raise ResultsError(problems)


def response_of(record: Mapping[str, Any]) -> ProviderResponse:
    """Return the answer that a result or a batch record has; raise `ProviderError` if it has an error instead."""
    if "eval_id" not in record:
        if isinstance(error := record.get("error"), str) and not {"text", "output_messages"} & record.keys():
            raise ProviderError(error)
        return response_from(record)
    if record.get("error") is not None:
        raise ProviderError(str(record["error"]))
    if "candidate_answer" not in record:
        raise ProviderError("the stored result has no candidate_answer")
    metrics = record.get("execution_metrics")
    kept = ("trace", "trace_complete", "stop_reason", "note")
    response = response_from(
        {"text": record["candidate_answer"]}
        | {name: record[name] for name in kept if name in record}
        | (metrics if isinstance(metrics, dict) else {})
    )
    changes = record.get("file_changes")
    return msgspec.structs.replace(response, file_changes=changes) if isinstance(changes, str) else response
