"""The API for packages that add a provider, an evaluator, an importer or a run extension to agentv.

These names are stable; the modules that define them may change.
"""

from agentv.errors import AgentvError, ConfigError, ProviderError, SettingError
from agentv.importers.importer import Answer, Becomes, Importer, ImportFailure, ImportOptions, Row, Tally
from agentv.importers.sample import Sample
from agentv.protocols import (
    Answers,
    BatchProvider,
    Check,
    Evaluator,
    EvaluatorContext,
    EvaluatorSettings,
    JudgeTarget,
    NamedEvaluator,
    Provider,
    Requests,
    WorkspaceUse,
    attach_outcome,
)
from agentv.providers.models.settings import LanguageModelSettings
from agentv.providers.settings import (
    IN_CACHE_KEY,
    NOT_IN_CACHE_KEY,
    SECRET,
    Amount,
    Count,
    Flag,
    Number,
    RetrySettings,
    Seconds,
    Secret,
    TargetSettings,
    Text,
)
from agentv.records import (
    EvalCase,
    EvalResult,
    Exchange,
    Media,
    Message,
    ProviderRequest,
    ProviderResponse,
    Score,
    TokenUsage,
    ToolCall,
    TraceEvent,
)
from agentv.run.extensions import Extension, Scope
from agentv.run.features import Opening
from agentv.run.jobs import Job
from agentv.run.run import Run

__all__ = [
    "IN_CACHE_KEY",
    "NOT_IN_CACHE_KEY",
    "SECRET",
    "AgentvError",
    "Amount",
    "Answer",
    "Answers",
    "BatchProvider",
    "Becomes",
    "Check",
    "ConfigError",
    "Count",
    "EvalCase",
    "EvalResult",
    "Evaluator",
    "EvaluatorContext",
    "EvaluatorSettings",
    "Exchange",
    "Extension",
    "Flag",
    "ImportFailure",
    "ImportOptions",
    "Importer",
    "Job",
    "JudgeTarget",
    "LanguageModelSettings",
    "Media",
    "Message",
    "NamedEvaluator",
    "Number",
    "Opening",
    "Provider",
    "ProviderError",
    "ProviderRequest",
    "ProviderResponse",
    "Requests",
    "RetrySettings",
    "Row",
    "Run",
    "Sample",
    "Scope",
    "Score",
    "Seconds",
    "Secret",
    "SettingError",
    "Tally",
    "TargetSettings",
    "Text",
    "TokenUsage",
    "ToolCall",
    "TraceEvent",
    "WorkspaceUse",
    "attach_outcome",
]
