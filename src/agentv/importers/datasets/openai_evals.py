"""Samples of OpenAI's evals -> eval cases: `input` is the conversation, `ideal` an answer or several."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from agentv.formats.wire import text_of
from agentv.importers.datasets.rows import AGREES, id_of, input_of
from agentv.importers.importer import Becomes, Importer, ImportFailure, Row, Tally
from agentv.importers.sample import Sample, read_lines
from agentv.records import Json


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
            if not isinstance(line.value, dict) or not {"input", "ideal"} & line.value.keys():
                names = ", ".join(map(repr, line.value)) if isinstance(line.value, dict) else "no fields"
                message = f"a sample has the fields 'input' and 'ideal', and here are {names}"
                raise ImportFailure(
                    message, file=source, line=line.number, hint="other rows are read with --from jsonl"
                )
            case = _case(line.value, tally.read)
            if isinstance(case, str):
                tally.skip(case, line.where)
            else:
                yield Row(case, line.where)


def _case(sample: Json, number: int) -> Json | str:
    """Return the case of a sample, or why there is none."""
    id_, question = id_of(sample.get("id"), f"sample-{number}"), input_of(sample.get("input"))
    ideals = _ideals(sample.get("ideal"))
    if id_ is None:
        return "the id is neither text nor a number"
    if question is None:
        return "there is no input"
    if not ideals:
        return "there is no ideal answer"
    outcome = AGREES if len(ideals) == 1 else f"The answer agrees with one of: {'; '.join(ideals)}"
    case: Json = {"id": id_, "expected_outcome": outcome, "input": question, "expected_output": ideals[0]}
    rest: Json = {name: value for name, value in sample.items() if name not in ("id", "input", "ideal")}
    if len(ideals) > 1:
        rest["ideal"] = ideals
    return case | ({"metadata": rest} if rest else {})


def _ideals(given: Any) -> list[str]:
    each = given if isinstance(given, list) else [given]
    return [text for value in each if value is not None and (text := text_of(value)).strip()]
