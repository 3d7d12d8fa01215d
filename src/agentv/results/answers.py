"""A file of answers -> the answer to a case. It is a results file, or batch records: a JSON object with an `id` a line.

The file is read twice: once as a stream, to find where each answer is and all that is wrong, and once answer by answer,
as they are asked for. Only the place of each answer is held.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, NamedTuple, Self

import msgspec

from agentv.errors import ProviderError, ResultsError
from agentv.formats.jsonl import explain_json_error
from agentv.formats.wire import response_from
from agentv.records import Problem, ProviderResponse
from agentv.results.formats import DECODE_ERRORS, JSONL, format_for, sniff
from agentv.results.read import read_result_blocks, unreadable
from agentv.results.views import ScoreView
from agentv.system.compact_sets import HashIndex

NOT_ANSWERS = "a file of answers has results of agentv, or JSON objects with an 'id' and a 'text', one a line"
_START_BYTES = 4096
_NAMED_PROBLEMS = 10


class KeyView(ScoreView, frozen=True, gc=False, forbid_unknown_fields=False):
    """A result with what tells whose answer it has."""

    dataset: str = ""
    trial: Annotated[int, msgspec.Meta(ge=1)] | None = None


class _BatchRecord(msgspec.Struct, frozen=True, gc=False):
    """A batch record with what tells whose answer it has."""

    id: str
    trial: Annotated[int, msgspec.Meta(ge=1)] | None = None


class _Place(NamedTuple):
    """Where an answer is, and whose it is."""

    dataset: str
    eval_id: str
    trial: int
    offset: int


class StoredAnswers:
    """The answers of a file, by the cases that they answer."""

    def __init__(self, path: Path):
        """Find all answers of the file. Raise `ResultsError` with everything that is wrong with it."""
        self._path = path
        self._exact, self._by_id = HashIndex(), HashIndex()
        self._shared: set[int] = set()
        """Hashes of ids that are in more than one dataset."""
        try:
            self._file = path.open("rb")
            start = self._file.peek(_START_BYTES)
        except OSError as error:
            raise ResultsError([Problem.of(unreadable(error, path))]) from error
        self._form = sniff(start) or format_for(path)
        has_results = self._form is not JSONL or b'"eval_id"' in start.partition(b"\n")[0]
        problems: list[Problem] = []
        for place in _results(path) if has_results else _batch_records(path, problems):
            self._add(place, problems)
        if not len(self) and not problems:
            problems.append(Problem(message="there are no answers in this file", file=path, hint=NOT_ANSWERS))
        if problems:
            raise ResultsError(problems[:_NAMED_PROBLEMS])

    def __len__(self) -> int:
        return len(self._exact)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._file.close()

    def _add(self, place: _Place, problems: list[Problem]) -> None:
        key, by_id = place[:3], (place.eval_id, place.trial)
        if self._exact.get(key) >= 0:
            named = f"{place.eval_id!r}" if place.trial == 1 else f"{place.eval_id!r}, trial {place.trial}"
            hint = "keep one answer for each case, dataset and trial"
            problems.append(Problem(message=f"there are two answers to {named}", file=self._path, hint=hint))
            return
        self._exact.add(key, place.offset)
        if self._by_id.get(by_id) < 0:
            self._by_id.add(by_id, place.offset)
        else:
            self._shared.add(hash(by_id))

    def find(self, dataset: str, eval_id: str, trial: int) -> dict[str, Any] | None:
        """Return the record with the answer to a trial of a case; None if there is none.

        An answer without a dataset, or of another one, is the answer if no other has the id. Raise `ProviderError` if
        several have, or if the record cannot be read any more.
        """
        offset = self._exact.get((dataset, eval_id, trial))
        if offset < 0:
            if hash((eval_id, trial)) in self._shared:
                names = f"{self._path.name} has answers to {eval_id!r}"
                raise ProviderError(f"{names} of several datasets, and none of {dataset!r}")
            offset = self._by_id.get((eval_id, trial))
        if offset < 0:
            return None
        try:
            self._file.seek(offset)
            raw = next(iter(self._form.split(self._file)))
            record: dict[str, Any] = self._form.decoder(dict)(raw)
        except (OSError, StopIteration, *DECODE_ERRORS) as error:
            raise ProviderError(f"{self._path.name} has changed since the run began: {error}") from error
        return record


def _results(path: Path) -> Iterator[_Place]:
    for block in read_result_blocks(path, KeyView):
        for view, offset, _ in block.places():
            yield _Place(view.dataset, view.eval_id, view.trial or 1, offset)


def _batch_records(path: Path, problems: list[Problem]) -> Iterator[_Place]:
    decode = msgspec.json.Decoder(_BatchRecord).decode
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
                yield _Place("", record.id, record.trial or 1, start + len(raw) - len(line))
            if len(problems) > _NAMED_PROBLEMS:
                return


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
    kept = ("trace", "stop_reason", "note")
    response = response_from(
        {"text": record["candidate_answer"]}
        | {name: record[name] for name in kept if name in record}
        | (metrics if isinstance(metrics, dict) else {})
    )
    changes = record.get("file_changes")
    return msgspec.structs.replace(response, file_changes=changes) if isinstance(changes, str) else response
