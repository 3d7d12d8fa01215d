"""Import samples that lm-evaluation-harness logs (`--log_samples`) as results.

A document that several filters were applied to has one line per filter. Their ids end in the name of the filter.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

from agentv.files.wire import text_of
from agentv.files.written_values import parse_number
from agentv.importers.importer import Becomes, Importer, ImportFailure, Row, Tally
from agentv.importers.logs.scores import evaluator_result, fraction_of, total_score_fields
from agentv.importers.sample import Sample, read_lines
from agentv.records import EvalResult, EvaluatorResult, Json, ProviderResponse
from agentv.results.answer_digest import answer_digest

FILE_NAME = re.compile(r"samples_(?P<task>.+?)_(?P<date>\d{4}-\d\d-\d\dT\d\d[-:]\d\d[-:]\d\d(?:\.\d+)?)")
KNOWN = (
    "doc_id",
    "doc",
    "target",
    "arguments",
    "resps",
    "filtered_resps",
    "filter",
    "metrics",
    "doc_hash",
    "prompt_hash",
    "target_hash",
    "schema_version",
)
"""Fields of a sample that are not metrics."""


class Choice(NamedTuple):
    """A request to the model: the prompt, and the continuation whose likelihood was requested, if any."""

    prompt: str
    continuation: str


@dataclass(frozen=True, slots=True)
class _Run:
    """What all samples of a file have in common."""

    task: str
    target: str
    timestamp: str


class LmEval(Importer):
    """A JSONL file of samples."""

    becomes = Becomes.RESULTS
    noun = "samples"

    @classmethod
    def recognizes(cls, sample: Sample) -> bool:
        return sample.has("doc_id", "resps") or sample.has("doc_id", "filtered_resps")

    def read(self, source: Path, tally: Tally) -> Iterator[Row]:
        run = _run(source)
        for line in read_lines(source):
            tally.read += 1
            if not isinstance(line.value, dict) or "doc_id" not in line.value:
                raise ImportFailure(
                    "missing 'doc_id': not a sample of lm-eval",
                    file=source,
                    line=line.number,
                    hint="write samples with 'lm_eval --log_samples'",
                )
            yield Row(_result(line.value, run, tally), line.where)


def _run(source: Path) -> _Run:
    """Return the task and the model from the path of a file, and its time of modification."""
    modified = datetime.fromtimestamp(source.stat().st_mtime, UTC)
    timestamp = modified.isoformat(timespec="milliseconds")
    name = FILE_NAME.match(source.name)
    if name is None:
        return _Run(task=source.stem, target="lm-eval", timestamp=timestamp)
    model = source.resolve().parent.name  # the harness names the folder after the model
    return _Run(task=name["task"], target=model, timestamp=timestamp)


def _result(sample: Json, run: _Run, tally: Tally) -> EvalResult:
    choices = _choices(sample.get("arguments"))
    question = None
    if choices:
        question = choices[0].prompt
    answer = _candidate_answer(sample, choices)
    return EvalResult(
        timestamp=run.timestamp,
        eval_id=_id(sample),
        dataset=run.task,
        target=run.target,
        attempt=1,
        question=question,
        reference_answer=_reference_answer(sample.get("target"), choices),
        candidate_answer=answer,
        answer_digest=answer_digest(ProviderResponse(text=answer)),
        **total_score_fields(_scores(sample, tally)),
    )


def _id(sample: Json) -> str:
    id_ = text_of(sample["doc_id"])
    filter_ = sample.get("filter")
    if filter_ in (None, "none"):
        return id_
    return f"{id_}-{text_of(filter_)}"


def _scores(sample: Json, tally: Tally) -> Iterator[EvaluatorResult]:
    """Yield the metrics that are between 0 and 1. Others, such as perplexities, are not scores."""
    metrics = sample.get("metrics")
    is_listed = isinstance(metrics, list)
    if not isinstance(metrics, list):
        metrics = [name for name in sample if name not in KNOWN]  # older versions do not list them
    for name in metrics:
        if not isinstance(name, str):
            continue
        value = sample.get(name)
        score = None
        if not isinstance(value, list):
            score = fraction_of(value)
        if score is not None:
            yield evaluator_result(name, "lm-eval", score)
        elif is_listed:
            tally.note(f"the metric {name!r} is not between 0 and 1 and is skipped")


def _choices(arguments: Any) -> list[Choice]:
    """Return the requests that were sent to the model for a sample."""
    choices = []
    for request in _values(arguments):
        texts = []
        for part in _values(request):
            texts.append(part if isinstance(part, str) else "")
        if texts:
            continuation = texts[1] if len(texts) > 1 else ""
            choices.append(Choice(texts[0], continuation))
    return choices


def _values(given: Any) -> list[Any]:
    """Return the values of an object or a list. Return an empty list for anything else."""
    if isinstance(given, dict):
        return list(given.values())
    if isinstance(given, list):
        return given
    return []


def _reference_answer(target: Any, choices: list[Choice]) -> str | None:
    """Return the right answer. For multiple choice, the target is an index: return the text of that choice."""
    if target is None:
        return None
    index = target
    if isinstance(target, str) and target.isdigit():
        index = int(target)
    is_index = isinstance(index, int) and not isinstance(index, bool)
    if is_index and len(choices) > 1 and 0 <= index < len(choices):
        return choices[index].continuation.strip() or text_of(target)
    return text_of(target)


def _candidate_answer(sample: Json, choices: list[Choice]) -> str:
    """Return the model's answer. For multiple choice, return the choice with the highest likelihood."""
    responses = sample.get("filtered_resps", sample.get("resps"))
    while isinstance(responses, list) and len(responses) == 1:
        responses = responses[0]
    if responses is None:
        return ""

    likelihoods = _likelihoods(responses)
    if likelihoods is not None and len(likelihoods) == len(choices):
        best = likelihoods.index(max(likelihoods))
        return choices[best].continuation.strip()
    return text_of(responses)


def _likelihoods(responses: Any) -> list[Decimal] | None:
    """Return the log-likelihood of each choice, or None if the responses are not those of a multiple choice.

    A response is a list that starts with the likelihood, or that starts with such a list.
    """
    if not isinstance(responses, list) or not responses:
        return None
    likelihoods = []
    for response in responses:
        if not isinstance(response, list) or not response:
            return None
        first = response[0]
        if isinstance(first, list) and first:
            first = first[0]
        likelihood = parse_number(first)
        if likelihood is None:
            return None
        likelihoods.append(likelihood)
    return likelihoods
