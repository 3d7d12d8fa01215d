"""Evaluate AI agents: run cases from YAML or JSONL files, score the answers and compare the results.

The public names are imported on first use, which keeps `agentv --help` fast.
"""

import sys

TYPE_CHECKING = False  # type checkers take it for true; importing `typing` for it would be slow
if TYPE_CHECKING:
    from typing import Any

    from agentv.api.compare import compare_results, judge_agreement
    from agentv.api.evaluate import evaluate, evaluate_sync
    from agentv.api.report import EvalReport, load_results
    from agentv.api.rows import cases_from
    from agentv.api.stream import plan, stream
    from agentv.cases.read import load_eval_cases
    from agentv.errors import AgentvError
    from agentv.evaluators.functions import evaluator
    from agentv.log import collect_warnings
    from agentv.records import EvalCase, EvalResult, Message, Problem, ProviderRequest, ProviderResponse, Score

SOURCE_VERSION = "0.2.0"
"""The version of the next release. A build adds the commits since the last tag: `0.2.0.dev12+gfdff03c` has 12."""

WINDOWS_MESSAGE = """agentv runs on Linux and macOS, not on Windows
hint: install and run it in WSL, the Windows Subsystem for Linux: 'wsl --install' sets it up"""

try:
    from agentv._version import __version__  # written by the build
except ImportError:
    __version__ = SOURCE_VERSION

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
    "cases_from",
    "collect_warnings",
    "compare_results",
    "evaluate",
    "evaluate_sync",
    "evaluator",
    "judge_agreement",
    "load_eval_cases",
    "load_results",
    "plan",
    "stream",
]

_MODULES = {
    "AgentvError": "agentv.errors",
    "EvalCase": "agentv.records",
    "EvalReport": "agentv.api.report",
    "EvalResult": "agentv.records",
    "Message": "agentv.records",
    "Problem": "agentv.records",
    "ProviderRequest": "agentv.records",
    "ProviderResponse": "agentv.records",
    "Score": "agentv.records",
    "cases_from": "agentv.api.rows",
    "collect_warnings": "agentv.log",
    "compare_results": "agentv.api.compare",
    "evaluate": "agentv.api.evaluate",
    "evaluate_sync": "agentv.api.evaluate",
    "evaluator": "agentv.evaluators.functions",
    "judge_agreement": "agentv.api.compare",
    "load_eval_cases": "agentv.cases.read",
    "load_results": "agentv.api.report",
    "plan": "agentv.api.stream",
    "stream": "agentv.api.stream",
}
"""The module that defines each public name."""


def __getattr__(name: str) -> "Any":
    """Import and return a public name. Raise `AttributeError` for any other name, and `ImportError` on Windows."""
    if name not in _MODULES:
        raise AttributeError(f"module 'agentv' has no attribute {name!r}")
    if sys.platform == "win32":
        raise ImportError(WINDOWS_MESSAGE)
    from importlib import import_module

    module = import_module(_MODULES[name])
    return getattr(module, name)


def __dir__() -> list[str]:
    """Return the public names, for `dir(agentv)` and for completion in editors and shells."""
    return sorted({*globals(), *__all__})
