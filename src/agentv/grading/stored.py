"""A results file -> answers for a run that scores them again, and the results that come of it."""

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
    """A result with what tells whose answer it has, and that it has one."""

    candidate_answer: str
    dataset: str = ""
    target: str = ""
    trial: Annotated[int, msgspec.Meta(ge=1)] | None = None


class StoredRun:
    """The answers of a results file, each given to its case once more.

    With `only`, just these results are scored again; the others stay as they are. With `names`, just these evaluators
    score, and the scores of the others stay.
    """

    is_stored = True

    def __init__(self, path: Path, only: Only | None = None, names: Sequence[str] = (), target: str | None = None):
        """Find all answers of the file; raise `ResultsError` with everything that is wrong with it."""
        self.path, self._only, self._target = path, only, target
        self.names = frozenset(names) or None
        self.trials, self.answers, self.is_part = 1, 0, False
        self.targets: dict[str, None] = {}
        self._others: dict[str, None] = {}
        """The targets whose answers are left out."""
        self.missing = self.changed_questions = self.without_trace = 0
        """How many trials of cases have no answer, how many were asked something else, how many lack their trace."""
        self._open: dict[Key, EvalResult] = {}
        hint = "name the target whose answers are meant with --target, or keep one result for each case"
        self._is_graded = bytearray()
        self._places = AnswerPlaces(path, self._keys, hint)
        self.answers = len(self._places)
        self._was_used = bytearray(self.answers)
        if not self.answers:
            raise ResultsError([self._no_answers()])
        self._decode = self._places.form.decoder(EvalResult)
        self.called = f"answers of {path}"

    def _keys(self, on_torn: OnTorn) -> Iterator[tuple[Key, int]]:
        """Yield whose answers there are and where each begins; note what else is known of them on the way."""
        self._is_graded.clear()
        for block in read_result_blocks(self.path, AnswerView, on_torn):
            for view, offset, _ in block.places():
                if self._target is not None and view.target != self._target:
                    self._others[view.target] = None
                    continue
                self._is_graded.append(self._only is None or self._names(view))
                if view.trial is not None:
                    self.trials = max(self.trials, view.trial)
                if view.target not in self.targets:
                    self.targets[view.target] = None
                yield (view.dataset, view.eval_id, view.trial or 1), offset

    def _no_answers(self) -> Problem:
        if self._others:
            known = ", ".join(map(repr, list(self._others)[:NAMED]))
            message = f"no answer in this file is of the target {self._target!r}"
            return Problem(message=message, file=self.path, hint=f"it has answers of {known}")
        return Problem(message="there are no answers in this file", file=self.path, hint=NO_ANSWER)

    def _names(self, view: AnswerView) -> bool:
        """Return whether `only` names this result."""
        return view.failure == "judge" if self._only == "judge-failed" else view.error is not None

    def _number(self, dataset: str, eval_id: str, trial: int) -> int:
        """Return the number of an answer; it is negative if there is none. Secrets in names are masked in the file."""
        found = self._places.exact_number((dataset, eval_id, trial))
        return found if found >= 0 else self._places.number((clean(dataset), clean(eval_id), trial))

    def wants(self, case: EvalCase, trial: int) -> bool:
        """Return whether this trial of a case is to be scored again; it is asked once for each."""
        number = self._number(case.dataset, case.id, trial)
        if number < 0:
            self.missing += 1
            return False
        self._was_used[number] = 1
        return bool(self._is_graded[number])

    @property
    def without_case(self) -> int:
        """How many answers no case has asked for; none, if only some cases are graded."""
        return 0 if self.is_part else self.answers - self._was_used.count(1)

    async def invoke(self, request: ProviderRequest) -> ProviderResponse:
        return self.answer(request)

    def answer(self, request: ProviderRequest) -> ProviderResponse:
        """Return what was answered; raise `ProviderError` if it was an error."""
        stored = self._read(self._number(request.dataset, request.eval_id, request.trial))
        self._open[request.dataset, request.eval_id, request.trial] = stored
        if stored.question not in (None, request.question) and stored.question != clean(request.question):
            self.changed_questions += 1
        if stored.error is not None:
            raise ProviderError(stored.error)
        lacks_trace = stored.trace is None and stored.trace_summary is not None and stored.trace_summary.event_count > 0
        self.without_trace += lacks_trace
        metrics = stored.execution_metrics
        return ProviderResponse(
            text=stored.candidate_answer,
            trace=stored.trace,
            token_usage=metrics.token_usage if metrics else None,
            cost_usd=metrics.cost_usd if metrics else None,
            duration_ms=metrics.duration_ms if metrics else None,
            stop_reason=stored.stop_reason,
            file_changes=stored.file_changes,
            trace_complete=False if lacks_trace else stored.trace_complete,
        )

    def finish(self, result: EvalResult) -> EvalResult:
        """Return a new result with all that was stored of the answer, and what it was graded from."""
        key = result.dataset, result.eval_id, result.trial or 1
        stored = self._open.pop(key, None)
        if stored is None:  # the case cannot be sent any more, as a file of it is gone
            stored = self._read(self._number(*key))
            return replace(result, target=stored.target, attempt=stored.attempt, trial=stored.trial)
        if stored.error is None and self.names is not None:
            result = _rescored(result, _merged(stored.evaluator_results, result.evaluator_results))
        digests, before = result.digests, stored.digests
        if digests is not None and before is not None:
            digests = replace(digests, target=before.target)
        return replace(
            result,
            target=stored.target,
            attempt=stored.attempt,
            trial=stored.trial,
            question=stored.question if stored.question is not None else result.question,
            stop_reason=stored.stop_reason,
            note=stored.note,
            file_changes=stored.file_changes if stored.error is None else None,
            trace=stored.trace,
            trace_complete=stored.trace_complete,
            trace_id=stored.trace_id,
            answered_at=stored.answered_at,
            trace_summary=stored.trace_summary,
            execution_metrics=stored.execution_metrics,
            error_details=stored.error_details,
            failure=result.failure if stored.error is None else stored.failure,
            dry_run=stored.dry_run,
            digests=digests,
            graded_from=GradedFrom(
                run_id=stored.run_id, score=stored.score, evaluators=before.evaluators if before else None
            ),
        )

    def untouched(self) -> Iterator[tuple[EvalResult, bool]]:
        """Yield the results that stay as they are, if `only` names some, and whether a case of the run has asked."""
        if self._only is not None:
            for number, is_graded in enumerate(self._is_graded):
                if not is_graded or not self._was_used[number]:
                    yield self._read(number), bool(self._was_used[number])

    def _read(self, number: int) -> EvalResult:
        try:
            raw = self._places.read(number)
            try:
                found: EvalResult = self._decode(raw)
            except msgspec.ValidationError:  # of an older version, or of another tool
                found = _with_defaults(self._places.form.decoder(dict)(raw))
        except (OSError, StopIteration, *DECODE_ERRORS) as error:
            raise ProviderError(f"a result in {self.path.name} cannot be used: {error}") from error
        return found

    def close(self) -> None:
        self._places.close()


def _rescored(result: EvalResult, scores: tuple[EvaluatorResult, ...]) -> EvalResult:
    """Return the result with these scores."""
    total = combine_scores(scores)
    return replace(
        result,
        score=round(total.score, 12),
        verdict="fail" if total.verdict == "fail" else verdict_of(total.score),
        hits=total.hits,
        misses=total.misses,
        reasoning=total.reasoning or None,
        evaluator_results=scores,
        failure="judge" if total.failed else None,
    )


def _with_defaults(fields: dict[str, Any]) -> EvalResult:
    defaults = {"timestamp": "", "dataset": "", "target": "", "attempt": 1}
    score = fields.get("score")
    names = EvalResult.__struct_fields__
    known = {name: value for name, value in fields.items() if name in names and value is not None}
    verdict = {"verdict": verdict_of(score)} if isinstance(score, int | float) else {}
    if "digests" in known and not _fits(known["digests"], Digests):
        del known["digests"]
    return msgspec.convert(defaults | verdict | known, EvalResult)


def _fits(value: Any, type_: type) -> bool:
    try:
        msgspec.convert(value, type_)
    except msgspec.ValidationError:
        return False
    return True


def _merged(before: tuple[EvaluatorResult, ...], now: tuple[EvaluatorResult, ...]) -> tuple[EvaluatorResult, ...]:
    """Return the results of evaluators, with new ones in the place of those of the same name, or at the end."""
    new = {part.name: part for part in now}
    kept = [new.pop(part.name, part) for part in before]
    return (*kept, *new.values())
