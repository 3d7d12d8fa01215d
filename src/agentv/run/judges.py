"""The judges of a run: targets that evaluators ask to judge an answer."""

from collections.abc import Mapping, Sequence
from functools import partial

from agentv.calls.caller import Caller
from agentv.calls.retry import FailedCall
from agentv.errors import ConfigError, ProviderError
from agentv.evaluators.judging.metering import JudgeMeter, judge_meter
from agentv.evaluators.judging.target import JudgeRef, NoJudge
from agentv.protocols import JudgeTarget, Provider
from agentv.providers.settings import TargetSettings
from agentv.records import EvalCase, ProviderRequest, ProviderResponse
from agentv.run.extensions import Ask, Extension
from agentv.run.planning.plan import Plan, PlannedFile, file_finder
from agentv.run.progress import Progress
from agentv.run.targets import OpenTarget, OpenTargets


class RunJudges:
    """Gives the evaluators of a run the targets that judge."""

    def __init__(  # noqa: PLR0913 - most of them are optional
        self,
        plan: Plan,
        targets: OpenTargets,
        progress: Progress,
        *,
        extensions: Sequence[Extension] = (),
        caller: Caller | None = None,
        meter: JudgeMeter | None = None,
    ):
        """`caller` makes the calls; the default is that of the targets.

        `meter` counts them; the default is that of the case.
        """
        self._plan = plan
        self._targets = targets
        self._progress = progress
        self._extensions = extensions
        self._caller = caller or targets.caller
        self._meter = meter
        self._file_of = file_finder(plan)

    def judge(self, case: EvalCase, target: str, name: str | None) -> JudgeTarget:
        """Return the judge of a case: the one that its evaluator names, otherwise its target's."""
        if self._plan.dry_run:
            return NoJudge(name or "")
        file = self._file_of(case)
        ref = JudgeRef(target, name)
        return _Judge(self, file, file.judges[ref])

    async def ask(
        self,
        file: PlannedFile,
        name: str,
        request: ProviderRequest,
    ) -> ProviderResponse:
        """Return the reply of a target that judges. Raise `ProviderError` if there is none."""
        try:
            target = self._targets.judge_target(file, name)
        except ConfigError as error:
            raise ProviderError(error.message) from error
        await self._targets.enter(target)
        ask: Ask = partial(self._call, target)
        for extension in self._extensions:
            ask = partial(_through, extension, target, ask)
        return await ask(request)

    async def _call(self, target: OpenTarget, request: ProviderRequest) -> ProviderResponse:
        provider = target.provider
        meter = self._meter or judge_meter.get()
        if meter is not None:
            provider = meter.wrap(target.name, provider)
        on_retry = partial(self._on_retry, target.name)
        got = await self._caller.call(provider, target.policy, request, on_retry)
        if not isinstance(got, FailedCall):
            return got
        error = got.error
        if got.failure == "timeout":
            error = f"the judge {error}"
        # Another attempt may succeed, unless the call has been repeated already.
        backoff = self._caller.backoff(target.policy)
        may_pass = got.may_pass and not backoff.retries
        raise ProviderError(error, may_pass=may_pass)

    def _on_retry(self, name: str, attempt: int, failed: FailedCall) -> None:
        what = f"judge {name}"
        if failed.is_inner:
            what = f"{what}, inner request"
        self._progress.retried(what, attempt, failed.error)


async def _through(
    extension: Extension,
    target: OpenTarget,
    ask: Ask,
    request: ProviderRequest,
) -> ProviderResponse:
    return await extension.ask_judge(target, request, ask)


class _Judge:
    """A target that evaluators of an eval file call as a judge."""

    def __init__(self, judges: RunJudges, file: PlannedFile, name: str):
        self._judges = judges
        self._file = file
        self.name = name
        self.settings: TargetSettings = file.settings[name]

    async def invoke(self, request: ProviderRequest) -> ProviderResponse:
        return await self._judges.ask(self._file, self.name, request)

    def others(self) -> Mapping[str, Provider]:
        found: dict[str, Provider] = {}
        for name in self._file.settings:
            found[name] = _Judge(self._judges, self._file, name)
        return found
