"""Collect the OpenTelemetry spans of targets while a run calls them."""

import msgspec

from agentv.evaluators.score import CaseEvaluators
from agentv.log import warn
from agentv.records import EvalResult, Exchange, Problem, ProviderRequest, ProviderResponse
from agentv.run.extensions import Extension, Scope
from agentv.run.features import Opening
from agentv.run.jobs import Job
from agentv.telemetry.collector import CaseTraces, Collector


class SpanCollection(Extension):
    """Gives each attempt at a case a trace of its own."""

    runs_on = "worker"

    def __init__(self, collector: Collector):
        self._collector = collector

    @classmethod
    async def join(cls, opening: Opening) -> Extension | None:
        """Start the collector. Raise `ConfigError` if it cannot listen."""
        options = opening.targets.options.collect
        if not options.collect_traces:
            return None
        collector = opening.stack.enter_context(Collector(options))
        for target in opening.targets.open_targets:
            if target.is_batch:
                message = f"target {target.name!r} answers all cases at once, so its traces are not collected"
                warn(Problem(message=message, severity="warning"))
        return cls(collector)

    def scope(self, job: Job, evaluators: CaseEvaluators) -> Scope | None:
        if job.batch is not None:
            return None
        is_late = getattr(job.target.provider, "sends_spans_late", False)
        return _TraceScope(self._collector.case(is_late=is_late))


class _TraceScope(Scope):
    """Collects the traces of all attempts at a case. A failed attempt has a trace, too."""

    def __init__(self, traces: CaseTraces):
        self._traces = traces

    def accepts(self, cached: ProviderResponse) -> bool:
        return self._traces.takes(cached)

    async def enter(self, request: ProviderRequest) -> ProviderRequest:
        return await self._traces.prepare(request)

    async def answered(self, exchange: Exchange) -> Exchange:
        response = await self._traces.complete(exchange.response)
        return msgspec.structs.replace(exchange, response=response)

    async def failed(self, partial: ProviderResponse | None) -> ProviderResponse | None:
        if partial is None:
            return await self._traces.salvage()
        return await self._traces.complete(partial)

    async def leave(self, result: EvalResult | None) -> EvalResult | None:
        self._traces.close()
        if result is None or self._traces.trace_id is None:
            return result
        return msgspec.structs.replace(result, trace_id=self._traces.trace_id)
