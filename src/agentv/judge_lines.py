"""An evaluator's wish to ask somebody -> the target that judges, asked within the limits of the run.

Evaluators are made before the targets are known: a line is given to them then, and connected later.
"""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack

from agentv.errors import ConfigError, ProviderError, nearest
from agentv.protocols import BatchProvider, Provider
from agentv.providers.settings import LanguageModelSettings, TargetSettings
from agentv.records import EvalCase, ProviderRequest, ProviderResponse

JUDGE_SECONDS = 600.0


class JudgeCalls:
    """All the calls of judges in a run: they share its slots and its time limit."""

    def __init__(self) -> None:
        self._slots = asyncio.Semaphore(1)
        self._seconds = JUDGE_SECONDS
        self._stack: AsyncExitStack | None = None
        self._entered: set[int] = set()

    def begin(self, slots: asyncio.Semaphore, seconds: float | None, stack: AsyncExitStack) -> None:
        """Get ready for a run: its slots, its time limit, and who closes what is opened."""
        self._slots, self._seconds, self._stack = slots, seconds or JUDGE_SECONDS, stack

    async def ask(self, targets: "JudgeTargets | None", name: str, request: ProviderRequest) -> ProviderResponse:
        """Ask a target to judge, within the run's limits."""
        if targets is None:
            raise ProviderError("dry run: no judge was asked")
        try:
            provider = targets.provider(name)
        except ConfigError as error:
            raise ProviderError(error.message) from error
        async with self._slots:
            if id(provider) not in self._entered:
                self._entered.add(id(provider))
                if isinstance(provider, AbstractAsyncContextManager) and self._stack is not None:
                    await self._stack.enter_async_context(provider)
            try:
                async with asyncio.timeout(self._seconds):
                    return await provider.invoke(request)
            except TimeoutError:
                raise ProviderError(f"the judge timed out after {self._seconds:g} s", may_pass=True) from None


class JudgeLine:
    """The way to a target that judges: the one that an evaluator names, else the one that the case's target names."""

    def __init__(self, calls: JudgeCalls, case: EvalCase, target: str, asked: str | None):
        self.asked, self._calls, self._case, self._target = asked, calls, case, target
        self.name = asked or ""
        self._targets: JudgeTargets | None = None

    def connect(self, targets: "JudgeTargets") -> None:
        """Find out who judges; `ConfigError` if there is nobody."""
        self._targets = targets
        own = targets.settings.get(self._target)
        name = self.asked or (own.judge_target if own else None)
        if name is None and isinstance(own, LanguageModelSettings):
            name = self._target
        if name is None:
            hint = "name a target that judges with 'judge_target', in the target or in the evaluator"
            asked = self._case.evaluators or self._case.rubrics
            unasked = "" if asked else "; 'llm_judge' is meant when no evaluators are set up"
            raise self._error(f"nobody is set up to judge the answers of target {self._target!r}{unasked}", hint)
        if name not in targets.settings:
            raise self._error(f"judge_target: unknown target {name!r}", nearest(name, targets.settings))
        self.name = name
        try:
            targets.provider(name)
        except ConfigError as error:
            raise error if error.file else self._error(error.message, error.hint) from error

    @property
    def settings(self) -> TargetSettings | None:
        """Those of the target that judges, once that is known."""
        return self._targets.settings.get(self.name) if self._targets else None

    async def invoke(self, request: ProviderRequest) -> ProviderResponse:
        return await self._calls.ask(self._targets, self.name, request)

    def others(self) -> Mapping[str, Provider]:
        return self._targets.all(self._calls) if self._targets else {}

    def _error(self, message: str, hint: str) -> ConfigError:
        return ConfigError(
            f"case {self._case.id!r}: {message}", file=self._case.file.path, line=self._case.line, hint=hint
        )


class JudgeTargets:
    """The targets of an eval file, opened when they are needed."""

    def __init__(self, settings: Mapping[str, TargetSettings], open_: Callable[[str], Provider | BatchProvider]):
        self.settings, self._open = settings, open_
        self.opened: dict[str, Provider] = {}

    def provider(self, name: str) -> Provider:
        if name not in self.opened:
            provider = self._open(name)
            if isinstance(provider, BatchProvider):
                raise ConfigError(f"target {name!r} answers in batches, and cannot judge")
            self.opened[name] = provider
        return self.opened[name]

    def all(self, calls: JudgeCalls) -> dict[str, Provider]:
        return {name: _Other(calls, self, name) for name in self.settings}


class _Other:
    """A target that a script may call as well."""

    def __init__(self, calls: JudgeCalls, targets: JudgeTargets, name: str):
        self._calls, self._targets, self._name = calls, targets, name

    async def invoke(self, request: ProviderRequest) -> ProviderResponse:
        return await self._calls.ask(self._targets, self._name, request)
