"""Import samples of OpenAI Evals as eval cases: `input` is the conversation, `ideal` one or more right answers."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from agentv.files.wire import text_of
from agentv.importers.datasets.rows import AGREES, UnreadableMessages, id_of, input_of
from agentv.importers.importer import Becomes, Importer, ImportFailure, Row, Tally
from agentv.importers.sample import Line, Sample, read_lines
from agentv.records import Json

SAMPLE_FIELDS = ("id", "input", "ideal")
"""The fields of a sample that agentv interprets. All others become metadata."""


class OpenAIEvals(Importer):
    """A JSONL file of samples."""

    becomes = Becomes.CASES
    noun = "samples"

    @classmethod
    def recognizes(cls, sample: Sample) -> bool:
        return sample.has("input", "ideal")

    def read(self, source: Path, tally: Tally) -> Iterator[Row]:
        for line in read_lines(source):
            tally.read += 1
            sample = line.value
            if not isinstance(sample, dict) or not {"input", "ideal"} & sample.keys():
                raise _not_a_sample(line, source)
            case = _case(sample, tally.read)
            if isinstance(case, str):
                tally.skip(case, line.where)
            else:
                yield Row(case, line.where)


def _not_a_sample(line: Line, source: Path) -> ImportFailure:
    names = "no fields"
    if isinstance(line.value, dict):
        names = ", ".join(map(repr, line.value))
    return ImportFailure(
        f"expected the fields 'input' and 'ideal', got {names}",
        file=source,
        line=line.number,
        hint="use --from jsonl for other rows",
    )


def _case(sample: Json, number: int) -> Json | str:
    """Return a sample as an eval case, or as text the reason why that is not possible."""
    id_ = id_of(sample.get("id"), f"sample-{number}")
    if id_ is None:
        return "the id is neither a string nor a number"
    try:
        question = input_of(sample.get("input"))
    except UnreadableMessages as error:
        return str(error)
    if question is None:
        return "'input' is missing"
    ideals = _ideals(sample.get("ideal"))
    if not ideals:
        return "'ideal' is missing"

    metadata: Json = {}
    for name, value in sample.items():
        if name not in SAMPLE_FIELDS:
            metadata[name] = value
    outcome = AGREES
    if len(ideals) > 1:
        outcome = f"The answer agrees with one of: {'; '.join(ideals)}"
        metadata["ideal"] = ideals

    case: Json = {
        "id": id_,
        "expected_outcome": outcome,
        "input": question,
        "expected_output": ideals[0],
    }
    if metadata:
        case["metadata"] = metadata
    return case


def _ideals(given: Any) -> list[str]:
    """Return the ideal answers that are not blank, as text."""
    if not isinstance(given, list):
        given = [given]
    ideals = []
    for value in given:
        if value is None:
            continue
        text = text_of(value)
        if text.strip():
            ideals.append(text)
    return ideals
