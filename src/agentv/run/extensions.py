"""The extension points of a run: what a feature may do before a case starts, around each attempt, and to its result.

A feature joins a run by an `Extension` in the run's one list. The run itself knows none of them.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, ClassVar, Literal

from agentv.evaluators.score import CaseEvaluators
from agentv.records import EvalResult, Exchange, ProviderRequest, ProviderResponse
from agentv.run.jobs import Job
from agentv.run.outcome import Outcome
from agentv.run.targets import OpenTarget

if TYPE_CHECKING:  # these modules import this one
    from agentv.run.features import Opening
    from agentv.run.report import RunReport
    from agentv.run.run import Run

StoppedBy = str
"""`budget`, `errors`, or the reason of an extension of another package."""
Ask = Callable[[ProviderRequest], Awaitable[ProviderResponse]]
"""One call of a target."""


class Scope:
    """What surrounds the attempts at one case, such as a workspace or the collection of its spans.

    `enter` is called before each attempt, `leave` after it. Every method does nothing unless a feature overrides it.
    """

    def accepts(self, cached: ProviderResponse) -> bool:
        """Return whether a cached answer may be used instead of calling the target."""
        return True

    async def enter(self, request: ProviderRequest) -> ProviderRequest:
        """Return the request to send in this attempt. Raise `ProviderError` if it cannot be prepared."""
        return request

    async def answered(self, exchange: Exchange) -> Exchange:
        """Return the exchange with what is known only after the call. Called once, for the answer that is scored."""
        return exchange

    async def failed(self, partial: ProviderResponse | None) -> ProviderResponse | None:
        """Return what is known of an attempt that failed: what the target answered until then, if anything.

        Called once per failed attempt, also if it is repeated.
        """
        return partial

    async def leave(self, result: EvalResult | None) -> EvalResult | None:
        """Clean up. Called once after each attempt, and once if an answer was found without any.

        Return the result of the case, which may be another one. It is None if the attempt is repeated or cancelled.
        """
        return result


class Extension:
    """What a feature does around a run. Every method does nothing unless a feature overrides it."""

    runs_on: ClassVar[Literal["driver", "worker"]] = "driver"
    """Where it runs if the run has a cluster: in this process, or in each worker, where the cases run."""
    stopped_by: StoppedBy = ""
    """Why no further case may start; empty as long as cases may."""
    deadline: float | None = None
    """The time of the event loop at which the cases in flight are cancelled, and no other case starts."""
    open_cases: int = 0
    """How many cases may be open at once, if that is more than the workers of the run."""

    @classmethod
    async def join(cls, opening: "Opening") -> "Extension | None":  # noqa: ARG003 - for those that override it
        """Return the extension for a run that is about to open, or None if it has no part in it.

        Raise `AgentvError` if the run cannot start. Nothing has run or been written then.
        """
        return cls()

    async def prepare(self, run: "Run") -> None:
        """Prepare for the run, before any extension is started. Raise `AgentvError` if no case may be sent."""

    async def start(self, run: "Run", tasks: asyncio.TaskGroup) -> None:
        """Prepare for the first case. `tasks` is where background tasks belong; they end with the run."""

    def answers_later(self, target: OpenTarget) -> Awaitable[object] | None:
        """Return what to wait for before cases of a target start, or None if they can start at once."""
        return None

    async def admit(self, job: Job) -> bool:
        """Return whether a case may start. May wait; False means that no further case starts."""
        return True

    async def ask_judge(self, target: OpenTarget, request: ProviderRequest, ask: Ask) -> ProviderResponse:
        """Return the reply of a target that judges. `ask` calls it. Raise `ProviderError` without a reply."""
        return await ask(request)

    def known_outcome(self, job: Job, request: ProviderRequest) -> Outcome | None:
        """Return the answer to a case that exists already, so that its target is not called."""
        return None

    def scope(self, job: Job, evaluators: CaseEvaluators) -> Scope | None:
        """Return the scope that surrounds the attempts at a case, or None."""
        return None

    def finish(self, result: EvalResult) -> EvalResult:
        """Return the result to write, which may be another one."""
        return result

    def written(self, result: EvalResult) -> None:
        """Process a result that was written to disk."""

    def cancelled(self, job: Job, costs: Sequence[float | None]) -> None:
        """Record a case that was cancelled before it had a result. An unknown cost is None."""

    async def end(self, run: "Run") -> None:
        """Called after the last case, unless the run was interrupted or failed."""

    def interrupted(self) -> None:
        """Called when a signal stops the run. Whatever the extension still does must be quick."""

    def add_to(self, report: "RunReport") -> "RunReport":
        """Return the report of the run with the findings of this feature added."""
        return report
