"""Scores an answer with the user's own program: it reads the case as JSON from stdin and writes a score to stdout."""

import asyncio
import os
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Annotated, ClassVar

import msgspec
from msgspec import Meta

from agentv.judges.payload import build_payload
from agentv.judges.program import WORKSPACE, CommandLine, Program, exchange_variables
from agentv.judges.reply import BadJudgement, parse_score
from agentv.protocols import Evaluator, EvaluatorContext, EvaluatorSettings, JudgeTarget, WorkspaceUse
from agentv.providers.settings import Text
from agentv.records import Exchange, Json, Score

TIMEOUT_SECONDS = 60.0


class ProxySettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How many times a script may call its judge target."""

    max_calls: Annotated[int, Meta(ge=0)] = 50


class CodeJudge(EvaluatorSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Run a script. Settings that are not declared here are passed to it as `config`."""

    passes_on: ClassVar[str | None] = "config"

    script: CommandLine
    cwd: Text | None = None
    timeout_seconds: Annotated[float, Meta(gt=0)] = TIMEOUT_SECONDS
    target: ProxySettings | None = None
    judge_target: str | None = None
    config: Json | None = None

    def open(self, context: EvaluatorContext) -> Evaluator:
        if self.cwd == WORKSPACE:
            program = Program(self.script, context.folder, in_workspace=True)
        else:
            cwd = context.folder / (self.cwd or ".")
            program = Program(self.script, cwd)
        judge = None
        max_calls = 0
        if self.target is not None:
            judge = context.judge(self.judge_target)
            max_calls = self.target.max_calls
        return _ProgramJudge(self, program, judge, max_calls)

    def workspace_use(self) -> WorkspaceUse:
        if self.cwd == WORKSPACE:
            return WorkspaceUse.NEEDS_IT
        return WorkspaceUse.NAMES_IT


@dataclass(frozen=True)
class _ProgramJudge(Evaluator):
    """Runs the script for each answer."""

    settings: CodeJudge
    program: Program
    judge: JudgeTarget | None
    """The target that the script may call, up to `max_calls` times."""
    max_calls: int

    def fingerprint(self) -> list[str]:
        return self.program.fingerprint

    async def evaluate(self, exchange: Exchange) -> Score:
        if self.settings.cwd == WORKSPACE and exchange.workspace is None:
            raise BadJudgement("there is no workspace to run the script in")
        payload = build_payload(exchange, self.settings.config)
        seconds = self.settings.timeout_seconds
        with self._proxy(exchange) as proxy_variables:
            variables = exchange_variables(exchange)
            for name, value in proxy_variables.items():
                variables[os.fsencode(name)] = os.fsencode(value)
            try:
                async with asyncio.timeout(seconds):
                    written = await self.program.run(payload, variables, exchange.workspace)
            except TimeoutError:
                raise BadJudgement(f"the script timed out after {seconds:g} s") from None
        return parse_score(written)

    def _proxy(self, exchange: Exchange) -> AbstractContextManager[dict[str, str]]:
        """Serve the judge target to the script; the context is the environment variables for the script."""
        if self.judge is None:
            return nullcontext({})
        # Imported here: few scripts call a target, and the modules of an HTTP server are slow to import.
        from agentv.judges.proxy import Proxy, serve

        proxy = Proxy(
            judges=self.judge.others(),
            default=self.judge.name,
            max_calls=self.max_calls,
            request=exchange.request,
        )
        return serve(proxy)
