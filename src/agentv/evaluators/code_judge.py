"""The user's own program scores the answer: the case as JSON on stdin, a score as JSON on stdout."""

import asyncio
import os
from contextlib import AbstractContextManager, nullcontext
from typing import Annotated, ClassVar

import msgspec
from msgspec import Meta

from agentv.judges.payload import build_payload
from agentv.judges.program import WORKSPACE, Program, exchange_variables
from agentv.judges.reply import BadJudgement, parse_score
from agentv.protocols import Evaluator, EvaluatorContext, EvaluatorSettings, JudgeTarget, WorkspaceUse
from agentv.records import Exchange, Json, Score

TIMEOUT_SECONDS = 60.0
Text = Annotated[str, Meta(min_length=1)]


class ProxySettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How often a script may call its judge target."""

    max_calls: Annotated[int, Meta(ge=0)] = 50


class CodeJudge(EvaluatorSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Runs a script; settings that are no fields are passed on to it as `config`."""

    passes_on: ClassVar[str | None] = "config"

    script: Text | Annotated[tuple[Text, ...], Meta(min_length=1)]
    cwd: Text | None = None
    timeout_seconds: Annotated[float, Meta(gt=0)] = TIMEOUT_SECONDS
    target: ProxySettings | None = None
    judge_target: str | None = None
    config: Json | None = None

    def open(self, context: EvaluatorContext) -> Evaluator:
        in_workspace = self.cwd == WORKSPACE
        cwd = context.folder if in_workspace else context.folder / (self.cwd or ".")
        program = Program(self.script, cwd, in_workspace=in_workspace)
        judge = context.judge(self.judge_target) if self.target is not None else None
        return _ProgramJudge(self, program, judge)

    def workspace_use(self) -> WorkspaceUse:
        return WorkspaceUse.NEEDS_IT if self.cwd == WORKSPACE else WorkspaceUse.NAMES_IT


class _ProgramJudge(Evaluator):
    def __init__(self, settings: CodeJudge, program: Program, judge: JudgeTarget | None):
        self._settings, self._program = settings, program
        self.judge = judge
        """The target that the script may ask, up to `max_calls` times."""
        self.max_calls = settings.target.max_calls if settings.target is not None else 0

    def fingerprint(self) -> list[str]:
        return self._program.fingerprint

    async def evaluate(self, exchange: Exchange) -> Score:
        if self._settings.cwd == WORKSPACE and exchange.workspace is None:
            raise BadJudgement("there is no workspace to run the script in")
        payload = build_payload(exchange, self._settings.config)
        with self._proxy(exchange) as proxy:
            variables = exchange_variables(exchange) | {os.fsencode(k): os.fsencode(v) for k, v in proxy.items()}
            try:
                async with asyncio.timeout(self._settings.timeout_seconds):
                    found = await self._program.run(payload, variables, exchange.workspace)
            except TimeoutError:
                raise BadJudgement(f"the script timed out after {self._settings.timeout_seconds:g} s") from None
        return parse_score(found)

    def _proxy(self, exchange: Exchange) -> AbstractContextManager[dict[str, str]]:
        """Return the proxy to the judge target, with the variables that it gives to the script."""
        if self.judge is None:
            return nullcontext({})
        from agentv.judges.proxy import Proxy, serve

        return serve(Proxy(self.judge.others(), self.judge.name, self.max_calls, exchange.request))
