"""The extension points of a run: what a feature may do before a case starts, around each attempt, and to its result.

A feature joins a run through an `Extension` in the run's list. The code that runs cases knows none of them;
`features.py` decides which of them join.
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
    """The context of the attempts at one case, such as a workspace or the collection of spans.

    `enter` is called before each attempt, `leave` after it. Every method does nothing unless a feature overrides it.
    """

    def accepts(self, cached: ProviderResponse) -> bool:
        """Return whether a cached answer may be used instead of calling the target."""
        return True

    async def enter(self, request: ProviderRequest) -> ProviderRequest:
        """Return the request to send in this attempt. Raise `ProviderError` if it cannot be prepared."""
        return request

    async def answered(self, exchange: Exchange) -> Exchange:
        """Return the exchange with data from after the call. Called once, for the answer that is scored."""
        return exchange

    async def failed(self, partial: ProviderResponse | None) -> ProviderResponse | None:
        """Return the partial response of a failed attempt, if there is one.

        Called once per failed attempt, even if it is repeated.
        """
        return partial

    async def leave(self, result: EvalResult | None) -> EvalResult | None:
        """Clean up. Called once after each attempt, and once if an answer was found without an attempt.

        Return the result of the case, changed or not. It is None if the attempt is repeated or cancelled.
        """
        return result


class Extension:
    """What a feature does during a run. By default, every method does nothing."""

    runs_on: ClassVar[Literal["driver", "worker"]] = "driver"
    """Where the extension runs with `--cluster`: in this process, or in each worker, where the cases run."""
    stopped_by: StoppedBy = ""
    """Why no further case may start; empty while cases may start."""
    deadline: float | None = None
    """The event loop time after which cases in flight are cancelled and no case starts."""
    open_cases: int = 0
    """The number of cases that may be open at once, if it is greater than the number of workers."""

    @classmethod
    async def join(cls, opening: "Opening") -> "Extension | None":  # noqa: ARG003 - for those that override it
        """Return the extension for a run that is about to open, or None if it does not take part in it.

        Raise `AgentvError` if the run cannot start. At this point, nothing has run or been written.
        """
        return cls()

    async def prepare(self, run: "Run") -> None:
        """Prepare for the run, before any extension is started. Raise `AgentvError` if no case may be sent."""

    async def start(self, run: "Run", tasks: asyncio.TaskGroup) -> None:
        """Prepare for the first case. Create background tasks in `tasks`; they end with the run."""

    def answers_later(self, target: OpenTarget) -> Awaitable[object] | None:
        """Return an awaitable that delays the cases of a target, or None if they can start immediately."""
        return None

    async def admit(self, job: Job) -> bool:
        """Return whether a case may start. May wait; False means that no further case starts."""
        return True

    async def ask_judge(self, target: OpenTarget, request: ProviderRequest, ask: Ask) -> ProviderResponse:
        """Return the reply of a judge, which `ask` calls. Raise `ProviderError` if there is no reply."""
        return await ask(request)

    def known_outcome(self, job: Job, request: ProviderRequest) -> Outcome | None:
        """Return the outcome of a case if it already exists, to avoid calling the target."""
        return None

    def scope(self, job: Job, evaluators: CaseEvaluators) -> Scope | None:
        """Return the scope that wraps the attempts at a case, or None."""
        return None

    def finish(self, result: EvalResult) -> EvalResult:
        """Return the result to write, changed or not."""
        return result

    def written(self, result: EvalResult) -> None:
        """Process a result that was written to disk."""

    def cancelled(self, job: Job, costs: Sequence[float | None]) -> None:
        """Record a case that was cancelled before it had a result. An unknown cost is None."""

    async def end(self, run: "Run") -> None:
        """Called after the last case, unless the run was interrupted or failed."""

    def interrupted(self) -> None:
        """Called when a signal stops the run. The extension must finish quickly."""

    def add_to(self, report: "RunReport") -> "RunReport":
        """Return the report of the run with the findings of this feature added."""
        return report
