"""Evaluate AI agents: run cases from YAML or JSONL files, score the answers and compare the results.

The public names are imported on first use, which keeps `agentv --help` fast.
"""

TYPE_CHECKING = False  # type checkers take it for true; importing `typing` for it would be slow
if TYPE_CHECKING:
    from typing import Any

    from agentv.cases.read import load_eval_cases
    from agentv.compare.compare import compare_results
    from agentv.errors import AgentvError
    from agentv.notices import collect_warnings
    from agentv.records import EvalCase, EvalResult, Message, Problem, ProviderRequest, ProviderResponse, Score
    from agentv.run.api import EvalReport, evaluate, plan, stream

__version__ = "0.1.0"

__all__ = [
    "AgentvError",
    "EvalCase",
    "EvalReport",
    "EvalResult",
    "Message",
    "Problem",
    "ProviderRequest",
    "ProviderResponse",
    "Score",
    "__version__",
    "collect_warnings",
    "compare_results",
    "evaluate",
    "load_eval_cases",
    "plan",
    "stream",
]

_MODULES = {
    "AgentvError": "agentv.errors",
    "EvalCase": "agentv.records",
    "EvalReport": "agentv.run.api",
    "EvalResult": "agentv.records",
    "Message": "agentv.records",
    "Problem": "agentv.records",
    "ProviderRequest": "agentv.records",
    "ProviderResponse": "agentv.records",
    "Score": "agentv.records",
    "collect_warnings": "agentv.notices",
    "compare_results": "agentv.compare.compare",
    "evaluate": "agentv.run.api",
    "load_eval_cases": "agentv.cases.read",
    "plan": "agentv.run.api",
    "stream": "agentv.run.api",
}
"""The module that defines each public name."""


def __getattr__(name: str) -> "Any":
    """Import and return a public name. Raise `AttributeError` for any other name."""
    if name not in _MODULES:
        raise AttributeError(f"module 'agentv' has no attribute {name!r}")
    from importlib import import_module

    module = import_module(_MODULES[name])
    return getattr(module, name)


def __dir__() -> list[str]:
    """Return the public names, for `dir(agentv)` and for completion in editors and shells."""
    return sorted({*globals(), *__all__})
