"""Provide the answers of a results file to a run that re-scores them, and build the new results."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec.structs import replace

from agentv.errors import ProviderError, ResultsError
from agentv.records import (
    Digests,
    EvalCase,
    EvalResult,
    EvaluatorResult,
    ExecutionMetrics,
    GradedFrom,
    Problem,
    ProviderRequest,
    ProviderResponse,
)
from agentv.redact import clean
from agentv.results.answers import AnswerPlaces, Key, OnTorn
from agentv.results.formats import DECODE_ERRORS
from agentv.results.read import read_result_blocks
from agentv.results.views import VerdictView
from agentv.run.outcome import combine_scores
from agentv.scoring import verdict_of

Only = Literal["judge-failed", "error"]
NAMED = 20
NO_ANSWER = "name a results file of 'agentv eval', or import answers with 'agentv import'"


class AnswerView(VerdictView, frozen=True, gc=False, kw_only=True):
    """A result with the fields that identify its answer."""

    candidate_answer: str
    dataset: str = ""
    target: str = ""
    trial: Annotated[int, msgspec.Meta(ge=1)] | None = None


class StoredRun:
    """The answers of a results file, to be scored again. It replaces the targets of a run.

    With `only`, just these results are scored again, and the others stay unchanged. With `names`, just these evaluators
    score, and the scores of the others are kept. With `is_part`, only some cases are graded.
    """

    is_stored = True

    def __init__(
        self,
        path: Path,
        *,
        only: Only | None = None,
        names: Sequence[str] = (),
        target: str | None = None,
        is_part: bool = False,
    ):
        """Find all answers of the file; raise `ResultsError` with everything that is wrong with it."""
        self.path = path
        self.called = f"answers of {path}"
        self.names = frozenset(names) or None
        self._only = only
        self._target = target
        self._is_part = is_part

        self.trials = 1
        self.targets: dict[str, None] = {}
        self._other_targets: dict[str, None] = {}
        """The targets whose answers are excluded."""
        self.missing = 0
        """The number of trials without an answer."""
        self.changed_questions = 0
        """The number of answers to a question that has changed since."""
        self.without_trace = 0
        """The number of answers whose trace was not stored."""
        self._open: dict[Key, EvalResult] = {}
        """The stored results that are being scored again."""

        # Finding the answers fills `_is_graded`, `trials` and the targets.
        self._is_graded = bytearray()
        hint = "name the target whose answers are meant with --target, or keep one result for each case"
        self._places = AnswerPlaces(path, self._keys, hint)
        self.answers = len(self._places)
        self._was_used = bytearray(self.answers)
        if not self.answers:
            raise ResultsError([self._no_answers()])
        self._decode = self._places.form.decoder(EvalResult)

    def _keys(self, on_torn: OnTorn) -> Iterator[tuple[Key, int]]:
        """Yield the key and the offset of each answer, and collect the trials and targets of the file.

        `AnswerPlaces` may call this more than once.
        """
        self._is_graded.clear()
        for block in read_result_blocks(self.path, AnswerView, on_torn):
            for view, offset, _ in block.places():
                if self._target is not None and view.target != self._target:
                    self._other_targets[view.target] = None
                    continue
                self._is_graded.append(self._is_selected(view))
                if view.trial is not None:
                    self.trials = max(self.trials, view.trial)
                if view.target not in self.targets:
                    self.targets[view.target] = None
                yield (view.dataset, view.eval_id, view.trial or 1), offset

    def _is_selected(self, view: AnswerView) -> bool:
        """Return whether `only` selects this result."""
        if self._only is None:
            return True
        if self._only == "judge-failed":
            return view.failure == "judge"
        return view.error is not None

    def _no_answers(self) -> Problem:
        if not self._other_targets:
            return Problem(message="there are no answers in this file", file=self.path, hint=NO_ANSWER)
        names = list(self._other_targets)[:NAMED]
        return Problem(
            message=f"no answer in this file is of the target {self._target!r}",
            file=self.path,
            hint=f"it has answers of {', '.join(map(repr, names))}",
        )

    def _number(self, key: Key) -> int:
        """Return the number of an answer; negative if there is none."""
        number = self._places.exact_number(key)
        if number >= 0:
            return number
        # Secrets in names are masked in the file.
        dataset, eval_id, trial = key
        masked = (clean(dataset), clean(eval_id), trial)
        return self._places.number(masked)

    def wants(self, case: EvalCase, trial: int) -> bool:
        """Return whether this trial of a case is to be scored again. Must be called once per trial."""
        number = self._number((case.dataset, case.id, trial))
        if number < 0:
            self.missing += 1
            return False
        self._was_used[number] = 1
        return bool(self._is_graded[number])

    @property
    def without_case(self) -> int:
        """The number of answers that belong to no case; 0 if only some cases are graded."""
        if self._is_part:
            return 0
        return self.answers - self._was_used.count(1)

    async def invoke(self, request: ProviderRequest) -> ProviderResponse:
        return self.answer(request)

    def answer(self, request: ProviderRequest) -> ProviderResponse:
        """Return the stored answer; raise `ProviderError` if it was an error."""
        key = (request.dataset, request.eval_id, request.trial)
        stored = self._read(self._number(key))
        self._open[key] = stored
        if _has_changed(stored.question, request.question):
            self.changed_questions += 1
        if stored.error is not None:
            raise ProviderError(stored.error)
        trace_complete = stored.trace_complete
        if _lacks_trace(stored):
            self.without_trace += 1
            trace_complete = False
        metrics = stored.execution_metrics or ExecutionMetrics()
        return ProviderResponse(
            text=stored.candidate_answer,
            trace=stored.trace,
            token_usage=metrics.token_usage,
            cost_usd=metrics.cost_usd,
            duration_ms=metrics.duration_ms,
            stop_reason=stored.stop_reason,
            file_changes=stored.file_changes,
            trace_complete=trace_complete,
        )

    def finish(self, result: EvalResult) -> EvalResult:
        """Return a new result with everything that was stored about the answer, and what it was graded from."""
        key = (result.dataset, result.eval_id, result.trial or 1)
        stored = self._open.pop(key, None)
        if stored is None:  # the request could not be built, for example because an attached file is gone
            stored = self._read(self._number(key))
            return replace(
                result,
                target=stored.target,
                attempt=stored.attempt,
                trial=stored.trial,
            )

        failure = result.failure
        file_changes = stored.file_changes
        if stored.error is not None:
            failure = stored.failure
            file_changes = None
        elif self.names is not None:
            scores = _merge(stored.evaluator_results, result.evaluator_results)
            result = _rescore(result, scores)
            failure = result.failure

        question = stored.question
        if question is None:
            question = result.question
        return replace(
            result,
            target=stored.target,
            attempt=stored.attempt,
            trial=stored.trial,
            question=question,
            stop_reason=stored.stop_reason,
            note=stored.note,
            file_changes=file_changes,
            trace=stored.trace,
            trace_complete=stored.trace_complete,
            trace_id=stored.trace_id,
            answered_at=stored.answered_at,
            trace_summary=stored.trace_summary,
            execution_metrics=stored.execution_metrics,
            error_details=stored.error_details,
            failure=failure,
            dry_run=stored.dry_run,
            digests=_merge_digests(stored.digests, result.digests),
            graded_from=_graded_from(stored),
        )

    def untouched(self) -> Iterator[tuple[EvalResult, bool]]:
        """Yield the results that stay unchanged because of `only`, and whether a case of the run uses each."""
        if self._only is None:
            return
        for number, is_graded in enumerate(self._is_graded):
            was_used = bool(self._was_used[number])
            if not is_graded or not was_used:
                yield self._read(number), was_used

    def _read(self, number: int) -> EvalResult:
        try:
            raw = self._places.read(number)
            try:
                result: EvalResult = self._decode(raw)
            except msgspec.ValidationError:  # written by an older version, or by another tool
                fields = self._places.form.decoder(dict)(raw)
                result = _with_defaults(fields)
        except (OSError, StopIteration, *DECODE_ERRORS) as error:
            raise ProviderError(f"a result in {self.path.name} cannot be used: {error}") from error
        return result

    def close(self) -> None:
        self._places.close()


def _has_changed(stored: str | None, question: str) -> bool:
    """Return whether a case asks another question than the stored one, in which secrets are masked."""
    if stored is None or stored == question:
        return False
    return stored != clean(question)


def _lacks_trace(stored: EvalResult) -> bool:
    """Return whether there was a trace that was not stored."""
    if stored.trace is not None or stored.trace_summary is None:
        return False
    return stored.trace_summary.event_count > 0


def _merge_digests(stored: Digests | None, new: Digests | None) -> Digests | None:
    """Return the new digests with the stored digest of the target, which was not called again."""
    if stored is None or new is None:
        return new
    return replace(new, target=stored.target)


def _graded_from(stored: EvalResult) -> GradedFrom:
    evaluators = None
    if stored.digests is not None:
        evaluators = stored.digests.evaluators
    return GradedFrom(run_id=stored.run_id, score=stored.score, evaluators=evaluators)


def _rescore(result: EvalResult, scores: tuple[EvaluatorResult, ...]) -> EvalResult:
    """Return the result with these scores."""
    total = combine_scores(scores)
    verdict = verdict_of(total.score)
    if total.verdict == "fail":
        verdict = "fail"
    return replace(
        result,
        score=round(total.score, 12),
        verdict=verdict,
        hits=total.hits,
        misses=total.misses,
        reasoning=total.reasoning or None,
        evaluator_results=scores,
        failure="judge" if total.failed else None,
    )


def _with_defaults(fields: dict[str, Any]) -> EvalResult:
    """Return a result from the known fields of a record that lacks some, or has invalid digests.

    Raise `msgspec.ValidationError` if another field is invalid.
    """
    complete: dict[str, Any] = {
        "timestamp": "",
        "dataset": "",
        "target": "",
        "attempt": 1,
    }
    score = fields.get("score")
    if isinstance(score, int | float):
        complete["verdict"] = verdict_of(score)
    for name, value in fields.items():
        if name in EvalResult.__struct_fields__ and value is not None:
            complete[name] = value
    if "digests" in complete and not _fits(complete["digests"], Digests):
        del complete["digests"]
    return msgspec.convert(complete, EvalResult)


def _fits(value: Any, type_: type) -> bool:
    try:
        msgspec.convert(value, type_)
    except msgspec.ValidationError:
        return False
    return True


def _merge(stored: tuple[EvaluatorResult, ...], new: tuple[EvaluatorResult, ...]) -> tuple[EvaluatorResult, ...]:
    """Return the stored results of evaluators, with new ones replacing those of the same name or added at the end."""
    new_by_name = {result.name: result for result in new}
    merged = [new_by_name.pop(result.name, result) for result in stored]
    return (*merged, *new_by_name.values())
