"""Samples that lm-evaluation-harness logs (`--log_samples`) -> results.

A document that several filters were applied to has a line for each: their ids end in the name of the filter.
"""

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from agentv.formats.wire import text_of
from agentv.formats.written_values import parse_number
from agentv.importers.importer import Becomes, Importer, ImportFailure, Row, Tally
from agentv.importers.logs.scores import evaluator_result, fraction_of, total_of
from agentv.importers.sample import Line, Sample, read_lines
from agentv.records import EvalResult, EvaluatorResult, Json

FILE_NAME = re.compile(r"samples_(?P<task>.+?)_(?P<date>\d{4}-\d\d-\d\dT\d\d[-:]\d\d[-:]\d\d(?:\.\d+)?)")
KNOWN = (
    *("doc_id", "doc", "target", "arguments", "resps", "filtered_resps", "filter", "metrics"),
    *("doc_hash", "prompt_hash", "target_hash", "schema_version"),
)
"""Fields of a line that are no metrics."""


class LmEval(Importer):
    """A JSONL file of samples."""

    becomes = Becomes.RESULTS
    noun = "samples"

    @classmethod
    def recognizes(cls, sample: Sample) -> bool:
        return sample.has("doc_id", "resps") or sample.has("doc_id", "filtered_resps")

    def read(self, source: Path, tally: Tally) -> Iterator[Row]:
        name = FILE_NAME.match(source.name)
        task = name["task"] if name else source.stem
        target = source.resolve().parent.name if name else "lm-eval"  # where the harness has the model's name
        moment = datetime.fromtimestamp(source.stat().st_mtime, UTC).isoformat(timespec="milliseconds")
        for line in read_lines(source):
            tally.read += 1
            if not isinstance(line.value, dict) or "doc_id" not in line.value:
                message = "a sample of lm-eval has a 'doc_id'"
                raise ImportFailure(message, file=source, line=line.number, hint="'lm_eval --log_samples' writes them")
            yield Row(_result(line, task, target, moment, tally), line.where)


def _result(line: Line, task: str, target: str, moment: str, tally: Tally) -> EvalResult:
    sample: Json = line.value
    choices = _arguments(sample.get("arguments"))
    filter_ = sample.get("filter")
    id_ = text_of(sample["doc_id"])
    return EvalResult(
        timestamp=moment,
        eval_id=id_ if filter_ in (None, "none") else f"{id_}-{text_of(filter_)}",
        dataset=task,
        target=target,
        attempt=1,
        question=choices[0][0] if choices else None,
        reference_answer=_target(sample.get("target"), choices),
        candidate_answer=_answer(sample, choices),
        **total_of(_scores(line, tally)),
    )


def _scores(line: Line, tally: Tally) -> Iterator[EvaluatorResult]:
    """Yield the metrics that are between 0 and 1; others, such as perplexities, are no scores."""
    sample: Json = line.value
    named = sample.get("metrics")
    names = named if isinstance(named, list) else [name for name in sample if name not in KNOWN]
    for name in filter(lambda name: isinstance(name, str), names):
        value = sample.get(name)
        score = None if isinstance(value, list) else fraction_of(value)
        if score is not None:
            yield evaluator_result(name, "lm-eval", score)
        elif names is named:
            tally.note(f"the metric {name!r} is not between 0 and 1, and is left out")


def _arguments(given: Any) -> list[tuple[str, str]]:
    """Return what the model was given: for each request the prompt, and the text whose likelihood was asked for."""
    requests = list(given.values()) if isinstance(given, dict) else given if isinstance(given, list) else []
    found = []
    for request in requests:
        parts = list(request.values()) if isinstance(request, dict) else request if isinstance(request, list) else []
        texts = [part if isinstance(part, str) else "" for part in parts]
        if texts:
            found.append((texts[0], texts[1] if len(texts) > 1 else ""))
    return found


def _target(given: Any, choices: list[tuple[str, str]]) -> str | None:
    """Return the right answer; of a multiple choice, whose target is a number, the text of that choice."""
    number = int(given) if isinstance(given, str) and given.isdigit() else given
    if isinstance(number, int) and not isinstance(number, bool) and len(choices) > 1 and 0 <= number < len(choices):
        return choices[number][1].strip() or text_of(given)
    return None if given is None else text_of(given)


def _answer(sample: Json, choices: list[tuple[str, str]]) -> str:
    """Return what the model said; of a multiple choice, the text that it found most likely."""
    given = sample.get("filtered_resps", sample.get("resps"))
    while isinstance(given, list) and len(given) == 1:
        given = given[0]
    if isinstance(given, list) and given and all(isinstance(each, list) and each for each in given):
        likely = [parse_number(each[0][0] if isinstance(each[0], list) and each[0] else each[0]) for each in given]
        known = [each for each in likely if each is not None]
        if len(known) == len(choices) == len(likely):
            return choices[max(range(len(known)), key=known.__getitem__)][1].strip()
    return "" if given is None else text_of(given)
