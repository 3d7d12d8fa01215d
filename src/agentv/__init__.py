"""Evaluates AI agents: cases in YAML or JSONL in, scores that can be compared out.

The public names are resolved on first use, so that `agentv --help` pays for none of them.
"""

TYPE_CHECKING = False
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

_HOME = {
    "AgentvError": "agentv.errors",
    **dict.fromkeys(
        ["EvalCase", "EvalResult", "Message", "Problem", "ProviderRequest", "ProviderResponse", "Score"],
        "agentv.records",
    ),
    "collect_warnings": "agentv.notices",
    "compare_results": "agentv.compare.compare",
    **dict.fromkeys(["EvalReport", "evaluate", "plan", "stream"], "agentv.run.api"),
    "load_eval_cases": "agentv.cases.read",
}


def __getattr__(name: str) -> "Any":
    """Return a public name, imported from its module now and not before."""
    if name not in _HOME:
        raise AttributeError(f"module 'agentv' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    """Return the public names, for `dir(agentv)` and completion in editors and shells."""
    return sorted({*globals(), *__all__})
