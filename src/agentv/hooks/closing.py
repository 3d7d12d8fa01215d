"""Run the hooks after an attempt, or after the run."""

from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from agentv.errors import ProviderError
from agentv.hooks.levels import Level
from agentv.hooks.steps import Step

RunStep = Callable[[Level, Step], Awaitable[None]]
"""Runs a step of a level. Raises `ProviderError` if it fails."""


@dataclass(eq=False)
class Closing:
    """The steps of `after_each` or `after_all`. A failing step does not prevent the others from running."""

    left: deque[tuple[Level, Step]]
    """The steps that have not ended."""
    errors: list[str] = field(default_factory=list)
    """The messages of those that failed."""

    @classmethod
    def of(cls, name: str, levels: Sequence[Level]) -> "Closing":
        """Return the steps of the hook with this name, those of the last level first."""
        left = deque[tuple[Level, Step]]()
        for level in reversed(levels):
            for step in level.steps[name]:
                left.append((level, step))
        return cls(left)

    async def run(self, run_step: RunStep) -> None:
        """Run the steps that are left, and remove each when it has ended."""
        while self.left:
            level, step = self.left[0]
            try:
                await run_step(level, step)
            except ProviderError as error:
                self.errors.append(error.message)
            self.left.popleft()

    def problems(self) -> list[str]:
        """Return what to report: the steps that failed, then those that had not ended when the run was stopped."""
        problems = list(self.errors)
        for number, (_, step) in enumerate(self.left):
            if number == 0:  # the step that was running
                problems.append(f"{step} was terminated: the run is being stopped")
            else:
                problems.append(f"{step} was not run: the run is being stopped")
        return problems
