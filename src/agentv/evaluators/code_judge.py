"""Scores an answer with the user's own program: it reads the case as JSON from stdin and writes a score to stdout."""

import asyncio
import os
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Annotated, ClassVar

import msgspec
from msgspec import Meta

from agentv.evaluators.judging.payload import build_payload
from agentv.evaluators.judging.program import WORKSPACE, CommandLine, Program, exchange_variables
from agentv.evaluators.judging.reply import BadJudgement, parse_score
from agentv.processes.variables import json_state
from agentv.protocols import Evaluator, EvaluatorContext, EvaluatorSettings, JudgeTarget, WorkspaceUse
from agentv.providers.settings import Text
from agentv.records import Exchange, Json, Score

TIMEOUT_SECONDS = 60.0


class ProxySettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How many times a script may call its judge target."""

    max_calls: Annotated[int, Meta(ge=0)] = 50
    """The largest number of calls for one answer."""


class CodeJudge(EvaluatorSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Run a script. Settings that are not declared here are passed to it as `config`."""

    passes_on: ClassVar[str | None] = "config"

    script: CommandLine
    """The command to run, relative to the eval file's folder."""
    cwd: Text | None = None
    """`workspace`, or a folder relative to the eval file. Defaults to the eval file's folder."""
    timeout_seconds: Annotated[float, Meta(gt=0)] = TIMEOUT_SECONDS
    """Time limit of the script."""
    target: ProxySettings | None = None
    """Lets the script call a judge target."""
    judge_target: str | None = None
    """The target that the script may call. Defaults to the target's judge."""
    config: Json | None = None
    """Data for the script. Unknown settings are added to it."""

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

    def uses_state(self) -> bool:
        return True  # it may read its environment

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
            raise BadJudgement("the script needs the agent's workspace, but the target has none")
        payload = build_payload(exchange, self.settings.config)
        payload["state"] = json_state(exchange.state)
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
        from agentv.evaluators.judging.proxy import Proxy, serve

        proxy = Proxy(
            judges=self.judge.others(),
            default=self.judge.name,
            max_calls=self.max_calls,
            request=exchange.request,
        )
        return serve(proxy)
