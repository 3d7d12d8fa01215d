"""An evaluator's wish to ask somebody -> the target that judges, asked within the limits of the run.

Evaluators are made before the targets are known: a line is given to them then, and connected later.
"""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from functools import cache, partial

from agentv.calls.caller import Caller, CallPolicy
from agentv.calls.retry import FailedCall
from agentv.errors import ConfigError, ProviderError, nearest
from agentv.protocols import BatchProvider, Provider
from agentv.providers.settings import LanguageModelSettings, TargetSettings
from agentv.records import EvalCase, ProviderRequest, ProviderResponse

OnRetry = Callable[[str, int, FailedCall], None]


class JudgeCalls:
    """All the calls of judges in a run: they are made as those of targets are."""

    def __init__(self) -> None:
        self._asker = Caller(asyncio.Semaphore(1))
        self._stack: AsyncExitStack | None = None
        self._on_retry: OnRetry = lambda _name, _attempt, _failed: None
        self._entered: set[int] = set()

    def begin(self, caller: Caller, stack: AsyncExitStack, on_retry: OnRetry) -> None:
        """Get ready for a run: who asks, who closes what is opened, and who is told of judges that are asked again."""
        self._asker, self._stack, self._on_retry = caller, stack, on_retry

    async def ask(self, targets: "JudgeTargets | None", name: str, request: ProviderRequest) -> ProviderResponse:
        """Ask a target to judge, within the run's limits."""
        if targets is None:
            raise ProviderError("dry run: no judge was asked")
        try:
            provider, policy = targets.provider(name), targets.policy(name)
        except ConfigError as error:
            raise ProviderError(error.message) from error
        if id(provider) not in self._entered:
            self._entered.add(id(provider))
            if isinstance(provider, AbstractAsyncContextManager) and self._stack is not None:
                await self._stack.enter_async_context(provider)
        _, got = await self._asker.ask(provider, policy, request, partial(self._on_retry, name))
        if isinstance(got, FailedCall):
            may_pass = got.may_pass and not self._asker.backoff(policy).retries  # else it has been asked again
            raise ProviderError(f"the judge {got.error}" if got.failure == "timeout" else got.error, may_pass=may_pass)
        return got


class JudgeRef:
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

    def __init__(
        self,
        settings: Mapping[str, TargetSettings],
        open_: Callable[[str], Provider | BatchProvider],
        manner_of: Callable[[str], CallPolicy],
    ):
        self.settings, self._open = settings, open_
        self.opened: dict[str, Provider] = {}
        self.policy = cache(manner_of)
        """How a target is asked."""

    def provider(self, name: str) -> Provider:
        if name not in self.opened:
            provider = self._open(name)
            if isinstance(provider, BatchProvider):
                hint = "name another target with 'judge_target'"
                raise ConfigError(f"target {name!r} answers in batches, and cannot judge", hint=hint)
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
