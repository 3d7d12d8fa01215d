"""Answers that the driver may judge a second time for `--check-judge`. Workers send them along with their results.

A worker does not know which answers the sample of the whole run will contain. It sends those that would be in the
sample if it were the only worker; there are few of them, regardless of the number of cases.
"""

from collections.abc import Sequence

import msgspec

from agentv.evaluators.score import CaseEvaluators
from agentv.files.encode import to_json
from agentv.records import EvalResult, EvaluatorResult, Exchange, ProviderResponse, ResultKey
from agentv.redact import clean
from agentv.run.extensions import Extension, Scope
from agentv.run.jobs import Job

_DECODER = msgspec.json.Decoder(ProviderResponse)


class OfferedAnswers(Extension):
    """Samples answers in a worker, and keeps each until its result is sent."""

    def __init__(self) -> None:
        # Imported here because only a run with --check-judge needs it.
        from agentv.trust.judge_check import AnswerSample

        self._sample = AnswerSample[None]()
        self._encoded: dict[ResultKey, bytes] = {}

    def scope(self, job: Job, evaluators: CaseEvaluators) -> Scope:
        from agentv.trust.extension import AnswerScope

        return AnswerScope(self, job.planned.name)

    def offer(
        self,
        exchange: Exchange,
        target: str,
        results: Sequence[EvaluatorResult],
    ) -> None:
        """Keep an answer, without secrets, if it belongs to the sample."""
        case = exchange.case
        trial = exchange.request.trial
        if not self._sample.add(case, trial, results, None):
            return
        response = msgspec.to_builtins(exchange.response, enc_hook=str)
        key = ResultKey(case.dataset, case.id, target, trial)
        self._encoded[key] = to_json(clean.values(response))

    def take(self, result: EvalResult) -> bytes:
        """Remove and return the encoded answer of a result; empty if it is not in the sample."""
        return self._encoded.pop(result.key, b"")


def decode_answer(encoded: bytes) -> ProviderResponse:
    """Decode an answer that a worker has sent."""
    return _DECODER.decode(encoded)
