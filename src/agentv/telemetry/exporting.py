"""Send results as OpenTelemetry spans."""

from typing import TYPE_CHECKING

import msgspec

from agentv.providers import ALIASES
from agentv.providers.models.settings import LanguageModelSettings
from agentv.records import EvalResult, ResultKey, TraceEvent
from agentv.redact import clean
from agentv.run.extensions import Extension
from agentv.run.features import Opening
from agentv.run.output import mask_result
from agentv.run.planning.plan import Plan
from agentv.telemetry.result_spans import TargetKind

if TYPE_CHECKING:  # the SDK is an extra, and slow to import
    from agentv.telemetry.export import Exporter

VENDORS = {"openai": "openai", "azure": "azure.ai.openai", "anthropic": "anthropic", "gemini": "gcp.gemini"}
"""The kinds of targets that are language models, and the vendors' names in OpenTelemetry's conventions."""


def _kind(plan: Plan, name: str) -> TargetKind:
    """Return a description of a target, from its settings."""
    settings = next(target.settings for target in plan.targets if target.name == name)
    model = getattr(settings, "model", None) or getattr(settings, "deployment", None)
    provider = getattr(settings, "provider", "")
    is_model = isinstance(settings, LanguageModelSettings) and plan.stand_in is None
    vendor = None
    if is_model:
        vendor = VENDORS.get(ALIASES.get(provider, provider))
    if not isinstance(model, str):
        model = None
    return TargetKind(model, vendor, is_model)


class SpanExport(Extension):
    """Sends each result as spans once it is written, without secrets."""

    def __init__(self, exporter: "Exporter", *, include_trace: bool):
        """`include_trace` says whether results keep their traces; spans are made from the traces in any case."""
        self._exporter = exporter
        self._include_trace = include_trace
        self._traces: dict[ResultKey, tuple[TraceEvent, ...] | None] = {}
        """The traces that results in flight are written without."""

    @classmethod
    async def join(cls, opening: Opening) -> Extension | None:
        """Open the exporter. Raise `ConfigError` without the extra."""
        if opening.options is None or not opening.options.run.otel:
            return None
        from agentv.telemetry.export import Exporter

        names = {target.name for target in opening.plan.targets}
        kinds = {name: _kind(opening.plan, name) for name in names}
        exporter = Exporter(lambda name: kinds.get(name, TargetKind()))
        await opening.stack.enter_async_context(exporter)
        return cls(exporter, include_trace=opening.options.run.include_trace)

    def finish(self, result: EvalResult) -> EvalResult:
        result = msgspec.structs.replace(result, trace_id=self._exporter.stamp(result))
        if self._include_trace:
            return result
        self._traces[result.key] = result.trace
        return msgspec.structs.replace(result, trace=None)

    def written(self, result: EvalResult) -> None:
        trace = self._traces.pop(result.key, result.trace)
        result = msgspec.structs.replace(result, trace=trace)
        try:
            masked = mask_result(result, clean)
        except (ValueError, TypeError, RecursionError) as error:  # regardless of what a trace contains
            self._exporter.lose(error)
        else:
            self._exporter.export(masked)
