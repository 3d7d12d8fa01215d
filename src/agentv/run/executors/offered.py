"""Answers that the driver may want to have judged again, for `--check-judge`: who has judged them sends them along.

A worker cannot know which answers of the whole run are taken. It sends those that would be if there were no other
worker, which are few, however many it gives.
"""

from collections.abc import Sequence

import msgspec

from agentv.evaluators.judge_check import AnswerSample
from agentv.records import EvalResult, EvaluatorResult, Exchange, ProviderResponse, ResultKey
from agentv.redact import clean

_ENCODE = msgspec.json.Encoder(enc_hook=str).encode
_DECODE = msgspec.json.Decoder(ProviderResponse).decode


class OfferedAnswers:
    """Picks answers in a worker, and keeps each until its result is sent."""

    def __init__(self) -> None:
        self._sample = AnswerSample[None]()
        self._picked: dict[ResultKey, bytes] = {}

    def offer(self, exchange: Exchange, target: str, results: Sequence[EvaluatorResult]) -> None:
        """Keep an answer, if it is one of those that are taken; without secrets, as all that is sent."""
        trial = exchange.request.trial
        if self._sample.add(exchange.case, trial, results, None):
            plain = msgspec.to_builtins(exchange.response, enc_hook=str)
            key = ResultKey(exchange.case.dataset, exchange.case.id, target, trial)
            self._picked[key] = _ENCODE(clean.values(plain))

    def take(self, result: EvalResult) -> bytes:
        """Return the answer of a result as it is sent; empty if it is not taken."""
        return self._picked.pop(result.key, b"")


def decode_answer(sent: bytes) -> ProviderResponse:
    """Return an answer that a worker has sent."""
    return _DECODE(sent)
