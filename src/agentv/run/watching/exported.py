"""Send results as OpenTelemetry spans."""

from contextlib import AbstractAsyncContextManager, nullcontext
from typing import TYPE_CHECKING

import msgspec

from agentv.providers import ALIASES
from agentv.providers.models.settings import LanguageModelSettings
from agentv.records import EvalResult, ResultKey, TraceEvent
from agentv.redact import clean
from agentv.run.extensions import Extension
from agentv.run.output import mask_result
from agentv.run.plan import Plan
from agentv.telemetry.result_spans import TargetKind

if TYPE_CHECKING:  # the SDK is an extra, and slow to import
    from agentv.telemetry.export import Exporter

VENDORS = {"openai": "openai", "azure": "azure.ai.openai", "anthropic": "anthropic", "gemini": "gcp.gemini"}
"""The kinds of targets that are language models, and the vendors' names in OpenTelemetry's conventions."""


def open_exporter(plan: Plan, *, is_wanted: bool) -> AbstractAsyncContextManager["Exporter | None"]:
    """Return what sends results as spans, to be entered; nothing does if that is not wanted.

    Raise `ConfigError` without the extra.
    """
    if not is_wanted:
        return nullcontext()
    from agentv.telemetry.export import Exporter

    kinds = {name: _kind(plan, name) for name in {target.name for target in plan.targets}}
    return Exporter(lambda name: kinds.get(name, TargetKind()))


def _kind(plan: Plan, name: str) -> TargetKind:
    """Return what a target is, by its settings."""
    settings = next(target.settings for target in plan.targets if target.name == name)
    model = getattr(settings, "model", None) or getattr(settings, "deployment", None)
    provider = getattr(settings, "provider", "")
    is_model = isinstance(settings, LanguageModelSettings) and plan.stand_in is None
    vendor = VENDORS.get(ALIASES.get(provider, provider)) if is_model else None
    return TargetKind(str(model) if isinstance(model, str) else None, vendor, is_model)


class SpanExport(Extension):
    """Sends each result as spans once it is written, without secrets."""

    def __init__(self, exporter: "Exporter", *, include_trace: bool):
        """`include_trace` says whether results keep their traces; spans are made from the traces in any case."""
        self._exporter = exporter
        self._include_trace = include_trace
        self._traces: dict[ResultKey, tuple[TraceEvent, ...] | None] = {}
        """The traces that results in flight are written without."""

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
        except (ValueError, TypeError, RecursionError) as error:  # whatever a trace contains
            self._exporter.lose(error)
        else:
            self._exporter.export(masked)
