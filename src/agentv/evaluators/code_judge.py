"""A program of the user's scores the answer: the case as JSON on stdin, a score as JSON on stdout."""

import asyncio
from contextlib import AbstractContextManager, nullcontext
from typing import Annotated, ClassVar

import msgspec
from msgspec import Meta

from agentv.judges.payload import payload_of
from agentv.judges.program import Script
from agentv.judges.reply import BadJudgement, score_from
from agentv.protocols import Evaluator, EvaluatorContext, JudgeTarget
from agentv.records import Exchange, Json, Score

TIMEOUT_SECONDS = 60.0
Text = Annotated[str, Meta(min_length=1)]


class ProxySettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How often a script may call its judge target."""

    max_calls: Annotated[int, Meta(ge=0)] = 50


class CodeJudge(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Runs a script; settings that we do not know are passed on to it as `config`."""

    passes_on: ClassVar[str] = "config"

    script: Text | Annotated[tuple[Text, ...], Meta(min_length=1)]
    cwd: Text | None = None
    timeout_seconds: Annotated[float, Meta(gt=0)] = TIMEOUT_SECONDS
    target: ProxySettings | None = None
    judge_target: str | None = None
    config: Json | None = None

    def open(self, context: EvaluatorContext) -> Evaluator:
        script = Script(self.script, context.folder / (self.cwd or "."))
        judge = context.judge(self.judge_target) if self.target is not None else None
        return _Script(self, script, judge)


class _Script:
    def __init__(self, settings: CodeJudge, script: Script, judge: JudgeTarget | None):
        self.fingerprint = script.fingerprint
        self._settings, self._script, self._judge = settings, script, judge

    async def evaluate(self, exchange: Exchange) -> Score:
        with self._proxy(exchange) as variables:
            try:
                async with asyncio.timeout(self._settings.timeout_seconds):
                    found = await self._script.run(payload_of(exchange, self._settings.config), variables)
            except TimeoutError:
                raise BadJudgement(f"the script timed out after {self._settings.timeout_seconds:g} s") from None
        return score_from(found)

    def _proxy(self, exchange: Exchange) -> AbstractContextManager[dict[str, str]]:
        """The door to the judge target, if the script has one."""
        if self._judge is None or self._settings.target is None:
            return nullcontext({})
        from agentv.judges.proxy import Proxy, served

        most = self._settings.target.max_calls
        return served(Proxy(self._judge.others(), self._judge.name, most, exchange.request))
