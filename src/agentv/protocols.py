"""The seams: what a provider, an evaluator and a writer are.

To add one is to write one small class with one of these methods; nothing else needs to know of it.
"""

from typing import Protocol

from agentv.records import EvalResult, Exchange, ProviderRequest, ProviderResponse, Score


class Provider(Protocol):
    """Answers requests. One instance serves many cases at once."""

    async def invoke(self, request: ProviderRequest) -> ProviderResponse:
        """The answer; `ProviderError` when there is none."""
        ...


class Evaluator(Protocol):
    """Judges one exchange. Holds no state: one instance serves all cases at once."""

    async def evaluate(self, exchange: Exchange) -> Score: ...


class ResultSink(Protocol):
    """Takes results. What it has taken is safe."""

    def write(self, result: EvalResult) -> None: ...
