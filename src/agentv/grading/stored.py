"""Provide the answers of a results file to a run that re-scores them, and build the new results."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec.structs import replace

from agentv.cases.request import prepend_guidelines
from agentv.errors import ProviderError, ResultsError
from agentv.files.dropped import DroppedParts
from agentv.files.encode import to_json
from agentv.files.messages import read_messages
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
    ResultKey,
)
from agentv.redact import MASK, clean
from agentv.results.answer_digest import stored_digest
from agentv.results.answers import AnswerOffsets, OnTruncated, lacks_calls, usable_metadata
from agentv.results.formats import DECODE_ERRORS
from agentv.results.read import read_result_blocks
from agentv.results.views import ResultRow, read_verdict
from agentv.text import join_names

Only = Literal["judge-failed", "error"]
NAMED = 20
NO_ANSWER = "pass a results file of 'agentv eval', or import answers with 'agentv import'"


class AnswerRow(ResultRow, frozen=True, gc=False, kw_only=True):
    """A result that must have an answer."""

    candidate_answer: str


class StoredRun:
    """The answers of a results file, to be scored again. It replaces the targets of a run.

    With `only`, just these results are scored again, and the others stay unchanged. With `names`, just these evaluators
    score, and the scores of the others are kept. With `is_part`, only some cases are graded.
    """

    is_stored = True
    waits = False

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
        self.allow_masked = False
        """Whether answers are scored although secrets are masked in them."""

        self.trials = 1
        self.targets: dict[str, None] = {}
        self._other_targets: dict[str, None] = {}
        """The targets whose answers are excluded."""
        self.missing = 0
        """The number of trials without an answer."""
        self.changed_questions = 0
        """The number of answers to a question that has changed since."""
        self.changed_metadata = 0
        """The number of answers to cases whose metadata has changed since."""
        self.without_trace = 0
        """The number of answers whose trace was not stored."""
        self._open: dict[ResultKey, EvalResult] = {}
        """The stored results that are being scored again."""

        # Finding the answers fills `_is_graded`, `trials` and the targets.
        self._is_graded = bytearray()
        hint = "select the target with --target, or keep one result per case"
        self._places = AnswerOffsets(path, self._keys, hint)
        self.answers = len(self._places)
        self._was_used = bytearray(self.answers)
        if not self.answers:
            raise ResultsError([self._no_answers()])
        self._decode = self._places.form.decoder(EvalResult)

    def _keys(self, on_truncated: OnTruncated) -> Iterator[tuple[ResultKey, int]]:
        """Yield the key and the offset of each answer, and collect the trials and targets of the file.

        `AnswerOffsets` may call this more than once.
        """
        self._is_graded.clear()
        for block in read_result_blocks(self.path, AnswerRow, on_truncated):
            for view, offset, _ in block.places():
                if self._target is not None and view.target != self._target:
                    self._other_targets[view.target] = None
                    continue
                self._is_graded.append(self._is_selected(view))
                if view.trial is not None:
                    self.trials = max(self.trials, view.trial)
                if view.target not in self.targets:
                    self.targets[view.target] = None
                # the stored target is not part of the key: its answers may be graded for a target of another name
                yield view.trial_key, offset

    def _is_selected(self, view: AnswerRow) -> bool:
        """Return whether `only` selects this result."""
        if self._only is None:
            return True
        if self._only == "judge-failed":
            return view.failure == "judge"
        return view.error is not None

    def _no_answers(self) -> Problem:
        if not self._other_targets:
            return Problem(message="the file contains no answers", file=self.path, hint=NO_ANSWER)
        names = list(self._other_targets)[:NAMED]
        return Problem(
            message=f"the file contains no answers of target {self._target!r}",
            file=self.path,
            hint=f"it contains answers of {', '.join(map(repr, names))}",
        )

    def _number(self, key: ResultKey) -> int:
        """Return the number of an answer; negative if there is none."""
        number = self._places.exact_number(key)
        if number >= 0:
            return number
        # Secrets in names are masked in the file.
        masked = ResultKey.of_any_target(clean(key.dataset), clean(key.eval_id), key.trial)
        return self._places.number(masked)

    def wants(self, case: EvalCase, trial: int) -> bool:
        """Return whether this trial of a case must be re-scored. Call it once per trial."""
        number = self._number(ResultKey.of_any_target(case.dataset, case.id, trial))
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
        key = ResultKey.of_any_target(request.dataset, request.eval_id, request.trial)
        stored = self._read(self._number(key))
        self._open[key] = stored
        if _has_changed(stored, request):
            self.changed_questions += 1
        if stored.error is not None:
            raise ProviderError(stored.error)
        metrics = stored.execution_metrics or ExecutionMetrics()
        response = ProviderResponse(
            text=stored.candidate_answer,
            output_messages=stored.output_messages,
            trace=stored.trace,
            token_usage=metrics.token_usage,
            cost_usd=metrics.cost_usd,
            duration_ms=metrics.duration_ms,
            stop_reason=stored.stop_reason,
            file_changes=stored.file_changes,
            trace_complete=stored.trace_complete,
            metadata=stored.response_metadata,
            case_metadata=usable_metadata(stored.metadata, stored.masked),
            dropped=stored.dropped,
        )
        if _lacks_trace(stored, response):
            self.without_trace += 1
            response = replace(response, trace_complete=False)
        return response

    def compare_metadata(self, case: EvalCase, answer: ProviderResponse) -> None:
        """Count an answer that is scored with the stored metadata although its case has other metadata now."""
        if answer.case_metadata is None:
            return
        current = to_json(clean.values(case.metadata))
        if msgspec.json.decode(current) != answer.case_metadata:
            self.changed_metadata += 1

    def why_unjudged(self, request: ProviderRequest) -> str:
        """Return why the stored answer cannot be judged: it is masked, unless that is accepted."""
        key = ResultKey.of_any_target(request.dataset, request.eval_id, request.trial)
        stored = self._open[key]
        if self.allow_masked or not stored.masked or MASK not in stored.candidate_answer:
            return ""
        names = join_names(stored.masked, NAMED)
        return f"the stored answer is masked because it contained the value of {names} (see --allow-masked)"

    def merge(self, request: ProviderRequest, new: tuple[EvaluatorResult, ...]) -> tuple[EvaluatorResult, ...]:
        """Return the stored results of evaluators. New results replace those of the same name; others are appended."""
        key = ResultKey.of_any_target(request.dataset, request.eval_id, request.trial)
        stored = self._open[key].evaluator_results
        new_by_name = {result.name: result for result in new}
        merged = [new_by_name.pop(result.name, result) for result in stored]
        return (*merged, *new_by_name.values())

    def finish(self, result: EvalResult) -> EvalResult:
        """Return a new result with the stored data of the answer and a reference to the original result."""
        key = ResultKey.of_any_target(result.dataset, result.eval_id, result.trial or 1)
        stored = self._open.pop(key, None)
        if stored is None:  # the request could not be built, for example because an attached file no longer exists
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

        question = stored.question
        if question is None:
            question = result.question
        return replace(
            result,
            target=stored.target,
            attempt=stored.attempt,
            trial=stored.trial,
            question=question,
            answer_digest=_answer_digest(stored),
            stop_reason=stored.stop_reason,
            note=stored.note,
            file_changes=file_changes,
            trace=stored.trace,
            trace_complete=stored.trace_complete,
            output_messages=stored.output_messages,
            response_metadata=stored.response_metadata,
            dropped=stored.dropped,
            trace_id=stored.trace_id,
            answered_at=stored.answered_at,
            trace_summary=stored.trace_summary,
            execution_metrics=stored.execution_metrics,
            error_details=stored.error_details,
            failure=failure,
            dry_run=stored.dry_run,
            masked=stored.masked,
            digests=_merge_digests(stored.digests, result.digests),
            graded_from=_graded_from(stored),
        )

    def untouched(self) -> Iterator[tuple[EvalResult, bool]]:
        """Yield each result that `only` leaves unchanged, and whether its case is part of the run."""
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


def _has_changed(stored: EvalResult, request: ProviderRequest) -> bool:
    """Return whether the question of a case differs from the stored one, in which secrets are masked.

    Whether a stored question starts with the guidelines depends on the target that answered it.
    """
    question = stored.question
    if question is None or question == request.question:
        return False
    if stored.masked and MASK in question:
        return False  # it cannot be compared: the secret may have changed or been removed
    prompt = prepend_guidelines(request).prompt
    return question not in (clean(request.question), prompt, clean(prompt))


def _lacks_trace(stored: EvalResult, response: ProviderResponse) -> bool:
    """Return whether the answer had a trace that was not stored and that its messages cannot replace."""
    summary = stored.trace_summary
    if stored.trace is not None or summary is None or not summary.event_count:
        return False
    if stored.output_messages is None:
        return True
    return lacks_calls(response, summary.tool_calls_by_name)


def _answer_digest(stored: EvalResult) -> str | None:
    """Return the digest of a stored answer, so that its labels keep working, or None without an answer."""
    if stored.answer_digest is not None or stored.error is not None:
        return stored.answer_digest
    tool_counts: Mapping[str, int] = {}
    if stored.trace_summary is not None:
        tool_counts = stored.trace_summary.tool_calls_by_name
    return stored_digest(stored.candidate_answer, stored.file_changes, tool_counts)


def _merge_digests(stored: Digests | None, new: Digests | None) -> Digests | None:
    """Return the new digests with the stored ones of the target and the request: the target was not called again."""
    if stored is None or new is None:
        return new
    return replace(
        new,
        request=stored.request,
        target=stored.target,
        settings=stored.settings,
        files=stored.files,
        format=stored.format,
    )


def _graded_from(stored: EvalResult) -> GradedFrom:
    evaluators = None
    if stored.digests is not None:
        evaluators = stored.digests.evaluators
    return GradedFrom(run_id=stored.run_id, score=stored.score, evaluators=evaluators)


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
        complete["verdict"] = read_verdict(None, score)
    for name, value in fields.items():
        if name in EvalResult.__struct_fields__ and value is not None:
            complete[name] = value
    if "digests" in complete and not _fits(complete["digests"], Digests):
        del complete["digests"]
    if "output_messages" in complete:  # another tool may have written them in the shape of a vendor
        dropped = DroppedParts()
        complete["output_messages"] = read_messages(complete["output_messages"], dropped)
        complete["dropped"] = dropped.records()
        if dropped.has("tool_calls"):
            complete["trace_complete"] = False
    return msgspec.convert(complete, EvalResult)


def _fits(value: Any, type_: type) -> bool:
    try:
        msgspec.convert(value, type_)
    except msgspec.ValidationError:
        return False
    return True
