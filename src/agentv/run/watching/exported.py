"""Results on their way: written as ever, and then sent as spans, if that is asked for."""

from contextlib import AbstractAsyncContextManager, nullcontext
from typing import TYPE_CHECKING

import msgspec

from agentv.protocols import ResultSink
from agentv.providers import ALIASES
from agentv.providers.models.settings import LanguageModelSettings
from agentv.records import EvalResult
from agentv.redact import clean
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


def export_results(results: ResultSink, exporter: "Exporter | None", *, include_trace: bool) -> ResultSink:
    """Return a sink that gives results to another, and to the exporter, if there is one."""
    return _ExportedResults(results, exporter, include_trace=include_trace) if exporter is not None else results


class _ExportedResults:
    """Gives each result to a sink, and when it is safe there, its spans to the exporter, without secrets."""

    def __init__(self, results: ResultSink, exporter: "Exporter", *, include_trace: bool):
        """`include_trace` says whether the sink is given traces, which the spans are made of in any case."""
        self._results, self._exporter, self._include_trace = results, exporter, include_trace

    def write(self, result: EvalResult) -> None:
        result = msgspec.structs.replace(result, trace_id=self._exporter.stamp(result))
        self._results.write(result if self._include_trace else msgspec.structs.replace(result, trace=None))
        try:
            masked = mask_result(result, clean)
        except (ValueError, TypeError, RecursionError) as error:  # what a trace may hold
            self._exporter.lose(error)
        else:
            self._exporter.export(masked)
