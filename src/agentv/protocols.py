"""The seams: what a provider, an evaluator and a writer are.

To add one is to write one small class with one of these methods; nothing else needs to know of it.
"""

import enum
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar, Protocol, cast, runtime_checkable

import msgspec

from agentv.errors import ProviderError
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
    """Answers requests. One instance serves many cases at once.

    One that is an async context manager as well is entered once when a run starts, and left when it ends.
    """

    async def invoke(self, request: ProviderRequest) -> ProviderResponse:
        """The answer; `ProviderError` when there is none."""
        ...


def attach_outcome(cancelled: BaseException, outcome: ProviderResponse | ProviderError) -> None:
    """Let a provider that is cancelled say how its call would have ended; this counts if time was up.

    That is an answer that was complete already, or an error with what is known.
    """
    cancelled.__dict__["agentv_outcome"] = outcome


def attached_outcome(cancelled: BaseException | None) -> ProviderResponse | ProviderError | None:
    """Return what `attach_outcome` attached to an exception."""
    return getattr(cancelled, "agentv_outcome", None)


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


@runtime_checkable
class Previewed(Protocol):
    """A provider that can show what it sends, where that is more than a request has."""

    def preview(self, request: ProviderRequest) -> Json:
        """What is sent for a request, by the names of its parts."""
        ...


class Check(Protocol):
    """Finds out whether a target is ready. Equal checks are made once."""

    async def run(self) -> None:
        """`ProviderError` when it is not."""
        ...


@runtime_checkable
class Evaluator(Protocol):
    """Scores one exchange. It holds no state: one instance serves all cases at once.

    A class that inherits from this one gets `waits` and `fingerprint`, and has to write `evaluate` only.
    """

    waits: ClassVar[bool] = True
    """Whether `evaluate` may wait for something. One that never does needs no task of its own."""

    async def evaluate(self, exchange: Exchange) -> Score:
        """Return the score of an answer. An exception is a failure of this evaluator, not of the run."""
        ...

    def fingerprint(self) -> Any:
        """Return what decides the scores besides the settings, such as a prompt's text; None if nothing does."""
        return None


class WorkspaceUse(enum.Enum):
    """What an evaluator does with the workspace of an agent."""

    NONE = "none"
    NAMES_IT = "it is told its path, if there is one"
    RUNS_IN_IT = "it runs in it, if there is one"
    NEEDS_IT = "it cannot do without one"


class EvaluatorSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The settings of one type of evaluator, besides `type`, `name` and `weight`.

    A subclass that has `evaluate` is the evaluator itself; any other has `open`, which returns the evaluator.
    """

    passes_on: ClassVar[str | None] = None
    """The field that takes the settings that are no fields; without one they are errors."""

    asks_model: ClassVar[bool] = False
    """Whether the score is a language model's: a dry run then asks nobody."""

    imports_code: ClassVar[bool] = False
    """Whether `open` runs the user's code: `agentv validate` then calls `check` instead."""

    waits: ClassVar[bool] = True
    """The same as in `Evaluator`."""

    def open(self, context: "EvaluatorContext") -> Evaluator:
        """Return the evaluator; raise `ConfigError` if the settings cannot be used. Called before anything is run."""
        return cast(Evaluator, self)

    def needs_reference(self) -> bool:
        """Return whether only cases that have a reference answer can be scored."""
        return False

    def workspace_use(self) -> WorkspaceUse:
        """Return what the evaluator does with the folder that an agent has worked in."""
        return WorkspaceUse.NONE

    def check(self, context: "EvaluatorContext") -> None:
        """Raise `ConfigError` if `open` would, as far as that can be told without running the user's code."""

    def fingerprint(self) -> Any:
        """The same as in `Evaluator`."""
        return None


class EvaluatorContext(Protocol):
    """What an evaluator may use when it is opened for the cases of an eval file."""

    @property
    def folder(self) -> Path:
        """The eval file's folder, which paths are relative to."""
        ...

    @property
    def code_folders(self) -> tuple[Path, ...]:
        """The folders in which Python code is looked for: the eval file's, the targets file's, the current one."""
        ...

    def judge(self, name: str | None) -> "JudgeTarget":
        """Return the target of this name; without a name, the judge of the case's target."""
        ...

    def warn(self, message: str, hint: str = "", at: tuple[str | int, ...] = ()) -> None:
        """Tell the user of something in the settings that is no error; `at` are the steps to the setting."""
        ...

    def evaluator(self, config: Json) -> "NamedEvaluator":
        """Return another evaluator, built from its settings."""
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
        """Return all the targets that can be asked, by name."""
        ...


class NamedEvaluator(Protocol):
    """An evaluator with its name and its weight."""

    @property
    def name(self) -> str: ...

    @property
    def weight(self) -> float: ...

    async def result(self, exchange: Exchange) -> EvaluatorResult:
        """Return its result; an evaluator that fails scores 0 and says why."""
        ...


class AnswersToGrade(Provider, Protocol):
    """Answers that are there already, and are scored again: they stand in for every target."""

    @property
    def names(self) -> frozenset[str] | None:
        """The evaluators that score; all of them if this is None."""
        ...

    @property
    def missing(self) -> int:
        """How many trials of cases, of those that were asked for, have no answer."""
        ...

    @property
    def without_case(self) -> int:
        """How many answers no case has asked for."""
        ...

    def wants(self, case: EvalCase, trial: int) -> bool:
        """Return whether this trial of a case is to be scored; it is asked once for each."""
        ...

    def answer(self, request: ProviderRequest) -> ProviderResponse:
        """Do at once what `invoke` does: nobody has to be waited for."""
        ...

    def finish(self, result: EvalResult) -> EvalResult:
        """Return a new result with all that was stored of the answer."""
        ...

    def untouched(self) -> Iterator[tuple[EvalResult, bool]]:
        """Yield the results that stay as they are, and whether a case of the run has asked for each."""
        ...


class ResultSink(Protocol):
    """Takes results. What it has taken is safe."""

    def write(self, result: EvalResult) -> None: ...
