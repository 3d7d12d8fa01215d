"""The protocols that providers, evaluators and result sinks implement.

To add one, write a small class with these methods and register it. No other code has to change.
"""

import enum
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar, Protocol, cast, runtime_checkable

import msgspec

from agentv.errors import ProviderError, SettingError
from agentv.placeholders import Steps
from agentv.records import (
    EvalCase,
    EvalResult,
    EvaluatorResult,
    Exchange,
    Json,
    ProviderRequest,
    ProviderResponse,
    Score,
)


class Provider(Protocol):
    """Answer requests. One instance serves many cases concurrently.

    A provider that is also an async context manager is entered once when a run starts, and exited when it ends. A
    provider with an attribute `waits` that is False never waits for anything: it is called without a time limit.
    """

    async def invoke(self, request: ProviderRequest) -> ProviderResponse:
        """Return the answer. Raise `ProviderError` if there is none."""
        ...


def attach_outcome(cancelled: BaseException, outcome: ProviderResponse | ProviderError) -> None:
    """Attach the outcome of a cancelled call to its exception. It is used if the call was cancelled by a timeout.

    The outcome is either an answer that was already complete, or an error with the partial response.
    """
    cancelled.__dict__["agentv_outcome"] = outcome


def attached_outcome(cancelled: BaseException | None) -> ProviderResponse | ProviderError | None:
    """Return the outcome that `attach_outcome` attached to an exception, or None."""
    return getattr(cancelled, "agentv_outcome", None)


class Answers(Protocol):
    """The answers of a batch."""

    def answer(self, eval_id: str) -> ProviderResponse:
        """Return the answer to one of the requests. Raise `ProviderError` if it is unusable."""
        ...

    def close(self) -> None: ...


Requests = Callable[[], AsyncIterator[ProviderRequest]]
"""Return an iterator over the requests of a batch, which may not fit in memory. May be called several times."""


@runtime_checkable
class BatchProvider(Protocol):
    """Answer all requests of an eval file with one call."""

    @property
    def keeps_output(self) -> bool:
        """Whether to keep the raw output even if the batch succeeds."""
        ...

    async def invoke_batch(self, requests: Requests, attempt: int, output: Path) -> Answers:
        """Return all answers. Raise `ProviderError` if one is missing.

        The raw output is written to `output`, a file in a folder of its own.
        """
        ...


@runtime_checkable
class Checked(Protocol):
    """A provider that can check whether it is ready without answering a request."""

    @property
    def check(self) -> "Check | None": ...


@runtime_checkable
class Previewed(Protocol):
    """A provider that can show the data it sends, where that is more than the request."""

    def preview(self, request: ProviderRequest) -> Json:
        """Return the data that is sent for a request."""
        ...


class Check(Protocol):
    """Check whether a target is ready. Equal checks run only once."""

    async def run(self) -> None:
        """Raise `ProviderError` if the target is not ready."""
        ...


@runtime_checkable
class Evaluator(Protocol):
    """Score one exchange. Evaluators are stateless: one instance serves all cases concurrently.

    A subclass inherits `waits` and `fingerprint`, and has to implement `evaluate` only.
    """

    waits: ClassVar[bool] = True
    """Whether `evaluate` may wait for something. If it never does, it runs without a task of its own."""

    async def evaluate(self, exchange: Exchange) -> Score:
        """Return the score of an answer. An exception marks this evaluator as failed; the run continues."""
        ...

    def fingerprint(self) -> Any:
        """Return what affects the scores in addition to the settings, such as the text of a prompt, or None."""
        return None


class WorkspaceUse(enum.Enum):
    """How an evaluator uses the workspace of an agent."""

    NONE = "none"
    NAMES_IT = "it receives the path, if there is one"
    RUNS_IN_IT = "it runs in it, if there is one"
    NEEDS_IT = "it cannot do without one"


class EvaluatorSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of the settings of an evaluator type. `type`, `name` and `weight` are not part of them.

    A subclass either has an `evaluate` method and is the evaluator itself, or overrides `open` to return one.
    """

    templates: ClassVar[tuple[Steps, ...]] = ()
    """The settings whose variables are not replaced before `open`: prompts, and settings of nested evaluators."""

    passes_on: ClassVar[str | None] = None
    """The field that collects unknown settings. If None, unknown settings are errors."""

    asks_model: ClassVar[bool] = False
    """Whether a language model computes the score. A dry run then skips the call."""

    imports_code: ClassVar[bool] = False
    """Whether `open` runs the user's code. If so, `agentv validate` calls `check` instead."""

    waits: ClassVar[bool] = True
    """See `Evaluator.waits`."""

    def open(self, context: "EvaluatorContext") -> Evaluator:
        """Return the evaluator. Raise `ConfigError` if the settings are invalid. Called before any case runs."""
        return cast(Evaluator, self)

    def needs_reference(self) -> bool:
        """Return whether the evaluator can score only cases that have a reference answer."""
        return False

    def unmet(self, case: EvalCase) -> Iterable[SettingError]:
        """Return the settings that do not fit a case. `agentv validate` reports those that fit none of the cases."""
        return ()

    def workspace_use(self) -> WorkspaceUse:
        """Return how the evaluator uses the folder that the agent worked in."""
        return WorkspaceUse.NONE

    def uses_state(self) -> bool:
        """Return whether the score may depend on what the hooks of the attempt returned."""
        return False

    @classmethod
    def negated_miss(cls, hit: str) -> str:
        """Return the miss of an evaluator with `negate` for a hit. Override it if hits are not free texts."""
        return f"must not be met: {hit}"

    def check(self, context: "EvaluatorContext") -> None:
        """Raise `ConfigError` if `open` would, as far as this can be checked without running the user's code."""

    def fingerprint(self) -> Any:
        """See `Evaluator.fingerprint`."""
        return None


class EvaluatorContext(Protocol):
    """The services available to an evaluator when it is opened for the cases of an eval file."""

    @property
    def folder(self) -> Path:
        """The folder of the eval file. Relative paths start there."""
        ...

    @property
    def code_folders(self) -> tuple[Path, ...]:
        """The folders to search for Python code: those of the eval file and the targets file, and the current one."""
        ...

    def judge(self, name: str | None) -> "JudgeTarget":
        """Return the target with this name, or the judge of the case's target if the name is None."""
        ...

    def variable(self, name: str) -> Any:
        """Return the value of a placeholder such as `vars.city`. Raise `UnknownName` if the case has none."""
        ...

    def warn(self, message: str, hint: str = "", at: tuple[str | int, ...] = ()) -> None:
        """Warn the user about a setting. `at` is the path of the setting inside the settings."""
        ...

    def evaluator(self, config: Json) -> "NamedEvaluator":
        """Build another evaluator from its settings and return it."""
        ...


class JudgeTarget(Provider, Protocol):
    """A target that is used as a judge."""

    @property
    def name(self) -> str: ...

    @property
    def settings(self) -> Any:
        """The settings of the target, or None if they are not known."""
        ...

    def others(self) -> Mapping[str, Provider]:
        """Return all available targets by name."""
        ...


class NamedEvaluator(Protocol):
    """An evaluator with its name and weight."""

    @property
    def name(self) -> str: ...

    @property
    def weight(self) -> float: ...

    async def result(self, exchange: Exchange) -> EvaluatorResult:
        """Score an exchange and return the result. If the evaluator fails, the result has score 0 and the reason."""
        ...


class AnswersToGrade(Provider, Protocol):
    """Stored answers to score again. They replace the answers of all targets."""

    @property
    def names(self) -> frozenset[str] | None:
        """The names of the evaluators to run, or None for all."""
        ...

    @property
    def missing(self) -> int:
        """The number of requested trials that have no stored answer."""
        ...

    @property
    def without_case(self) -> int:
        """The number of stored answers that belong to no case of the run."""
        ...

    def wants(self, case: EvalCase, trial: int) -> bool:
        """Return whether to score this trial of a case. Called once per trial."""
        ...

    def answer(self, request: ProviderRequest) -> ProviderResponse:
        """Return what `invoke` returns, synchronously."""
        ...

    def compare_metadata(self, case: EvalCase, answer: ProviderResponse) -> None:
        """Count an answer that is scored with other metadata than its case has now."""
        ...

    def why_unjudged(self, request: ProviderRequest) -> str:
        """Return why the stored answer cannot be judged; empty if it can."""
        ...

    def merge(self, request: ProviderRequest, new: tuple[EvaluatorResult, ...]) -> tuple[EvaluatorResult, ...]:
        """Return the stored results of evaluators, with new ones replacing those of the same name."""
        ...

    def finish(self, result: EvalResult) -> EvalResult:
        """Return the new result with all stored data of the answer added."""
        ...

    def untouched(self) -> Iterator[tuple[EvalResult, bool]]:
        """Yield the results that are kept unchanged, each with whether it belongs to a case of the run."""
        ...


class ResultSink(Protocol):
    """Receive results. A result is stored safely when `write` returns."""

    def write(self, result: EvalResult) -> None: ...
