"""Shared helpers for tests of evaluators: exchanges, and evaluators built as in a run."""

import asyncio
from pathlib import Path
from typing import Any

from agentv.files.conversion import convert
from agentv.protocols import NamedEvaluator, Provider
from agentv.records import EvalCase, Exchange, Json, Message, ProviderRequest, ProviderResponse, Score


class FakeContext:
    """A context that has a folder and nothing else."""

    def __init__(self, folder: Path = Path()):
        self.folder = folder
        self.code_folders = (folder,)

    def judge(self, name: str | None) -> Provider:
        raise AssertionError("no judge was asked for")

    def evaluator(self, config: Json) -> NamedEvaluator:
        raise AssertionError("no other evaluator was asked for")


def an_exchange(text: str, expected: Any = None, **response: Any) -> Exchange:
    messages = () if expected is None else (Message(role="assistant", content=expected),)
    case = EvalCase("id", "outcome", (Message(role="user", content="q"),), messages)
    request = ProviderRequest(eval_id="id", question="q")
    return Exchange(case=case, request=request, response=ProviderResponse(text=text, **response))


def made(kind: Any, folder: Path = Path(), **settings: Any) -> Any:
    """The evaluator with these settings, written as in a file."""
    found = convert(settings, kind)
    assert not isinstance(found, list), found
    return found.open(FakeContext(folder))


def misfit(kind: Any, **settings: Any) -> str:
    """The problems of settings with wrong types."""
    found = convert(settings, kind)
    assert isinstance(found, list)
    return str(found[0].message)


def score(evaluator: Any, text: str, expected: Any = None, **response: Any) -> Score:
    found: Score = asyncio.run(evaluator.evaluate(an_exchange(text, expected, **response)))
    return found
