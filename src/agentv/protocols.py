"""The seams: what a provider, an evaluator and a writer are.

To add one is to write one small class with one of these methods; nothing else needs to know of it.
"""

from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from agentv.records import EvalResult, EvaluatorResult, Exchange, Json, ProviderRequest, ProviderResponse, Score


class Provider(Protocol):
    """Answers requests. One instance serves many cases at once.

    One that is an async context manager as well is entered before the first case of a file, and left after the last.
    """

    async def invoke(self, request: ProviderRequest) -> ProviderResponse:
        """The answer; `ProviderError` when there is none."""
        ...


class Answers(Protocol):
    """What a batch answered."""

    def answer(self, eval_id: str) -> ProviderResponse:
        """The answer to one of the requests; `ProviderError` when it cannot be used."""
        ...

    def close(self) -> None: ...


Requests = Callable[[], AsyncIterator[ProviderRequest]]
"""The requests of a batch, which may be too many to hold: gone through one by one, as often as is needed."""


@runtime_checkable
class BatchProvider(Protocol):
    """Answers all the requests of an eval file with one call."""

    @property
    def keeps_output(self) -> bool:
        """Whether the raw output is to be kept even if all goes well."""
        ...

    async def invoke_batch(self, requests: Requests, attempt: int, output: Path) -> Answers:
        """All the answers; `ProviderError` when one is missing. The raw output is `output`, in a folder of its own."""
        ...


@runtime_checkable
class Checked(Protocol):
    """A provider that can tell whether it is ready, without being asked anything."""

    @property
    def check(self) -> "Check | None": ...


class Check(Protocol):
    """Finds out whether a target is ready. Equal checks are made once."""

    async def run(self) -> None:
        """`ProviderError` when it is not."""
        ...


class Evaluator(Protocol):
    """Judges one exchange. Holds no state: one instance serves all cases at once.

    One that never waits for anything may say so with `waits = False`: then it costs no task of its own.
    """

    async def evaluate(self, exchange: Exchange) -> Score: ...


class EvaluatorContext(Protocol):
    """What an evaluator finds when it gets ready for the cases of an eval file.

    The settings of an evaluator are a struct. It is the evaluator itself if `evaluate` is all that it needs; else its
    `open(context)` gives the evaluator, or raises `ConfigError`, before anything is run.
    """

    @property
    def folder(self) -> Path:
        """The eval file's folder, which paths are relative to."""
        ...

    def judge(self, name: str | None) -> "JudgeTarget":
        """The target that judges: the one of this name, else the one that is set up for the case's target."""
        ...

    def warn(self, message: str, hint: str = "") -> None:
        """Tell the user of something in the settings that can be survived."""
        ...

    def evaluator(self, config: Json) -> "NamedEvaluator":
        """Another evaluator, made from its settings."""
        ...


class JudgeTarget(Provider, Protocol):
    """A target that is asked to judge."""

    @property
    def name(self) -> str: ...

    @property
    def settings(self) -> Any:
        """How the target is set up, if that is known."""
        ...

    def others(self) -> Mapping[str, Provider]:
        """All the targets that could be asked, by name."""
        ...


class NamedEvaluator(Protocol):
    """An evaluator at work under its own name."""

    @property
    def name(self) -> str: ...

    @property
    def weight(self) -> float: ...

    async def result(self, exchange: Exchange) -> EvaluatorResult:
        """Its score; one that breaks scores 0 and says why."""
        ...


class ResultSink(Protocol):
    """Takes results. What it has taken is safe."""

    def write(self, result: EvalResult) -> None: ...
