"""A command scores the answer by how it ends: the tests of what an agent wrote, a linter, a build.

The answer is on its stdin; what else it may need to know is in its environment. Nothing of a case is part of the
command itself, so that no answer and no id is ever run by a shell.
"""

import asyncio
from typing import Annotated, Any, ClassVar, Literal

import msgspec
from msgspec import Meta

from agentv.errors import SettingError
from agentv.judges.program import MAX_OUTPUT_BYTES, WORKSPACE, Program, exchange_variables, output_captures
from agentv.judges.reply import BadJudgement, finite_number, parse_score
from agentv.processes.child import ProcessResult
from agentv.processes.command import (
    SHOWN_CHARACTERS,
    complete_output,
    describe_exit,
    expect_success,
    output_tail,
    shorten,
)
from agentv.processes.streams import Output
from agentv.protocols import Evaluator, EvaluatorContext, EvaluatorSettings, WorkspaceUse
from agentv.records import Exchange, Score
from agentv.redact import clean

TIMEOUT_SECONDS = 300.0
SHOWN_COMMAND = 60
CANNOT_RUN, NOT_FOUND, SIGNALS = 126, 127, 128
"""The exit codes of a shell that say nothing of the answer; those above the last are of signals."""
Text = Annotated[str, Meta(min_length=1)]


class Command(EvaluatorSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Runs a command in the workspace; exit code 0 is a score of 1, any other is 0."""

    command: Text | Annotated[tuple[Text, ...], Meta(min_length=1)]
    cwd: Text | None = None
    timeout_seconds: Annotated[float, Meta(gt=0)] = TIMEOUT_SECONDS
    score_from: Literal["exit_code", "stdout"] = "exit_code"
    negate: bool = False

    def open(self, context: EvaluatorContext) -> Evaluator:
        if isinstance(self.command, str) and not self.command.strip():
            raise SettingError("command: it is empty", "command", hint="write what is to be run: pytest -q")
        if self.negate and self.score_from == "stdout":
            hint = "negate turns exit codes around; let the command write another score"
            raise SettingError("negate: the score is read from stdout", "negate", hint=hint)
        in_workspace = self.cwd in (None, WORKSPACE)
        cwd = context.folder if in_workspace else context.folder / (self.cwd or ".")
        return _CommandJudge(self, Program(self.command, cwd, ("command",), in_workspace=in_workspace))

    def workspace_use(self) -> WorkspaceUse:
        if self.cwd is None:
            return WorkspaceUse.RUNS_IN_IT
        return WorkspaceUse.NEEDS_IT if self.cwd == WORKSPACE else WorkspaceUse.NAMES_IT


class _CommandJudge(Evaluator):
    waits: ClassVar[bool] = True

    def __init__(self, settings: Command, program: Program):
        self._settings, self._program = settings, program
        command = settings.command
        self._shown = repr(shorten(clean(command if isinstance(command, str) else " ".join(command)), SHOWN_COMMAND))

    def fingerprint(self) -> list[str]:
        return self._program.fingerprint

    async def evaluate(self, exchange: Exchange) -> Score:
        if self._settings.cwd == WORKSPACE and exchange.workspace is None:
            raise BadJudgement("there is no workspace to run the command in")
        answer = exchange.response.text.encode("utf-8", "replace")
        variables, streams = exchange_variables(exchange), output_captures()
        limit = asyncio.timeout(self._settings.timeout_seconds)
        try:
            async with limit:
                finished = await self._program.finish(answer, variables, exchange.workspace, streams)
        except TimeoutError:
            if not limit.expired():
                raise
            said = _both_tails(*(stream.output() for stream in streams), silence="")
            miss = f"{self._shown} did not end within {self._settings.timeout_seconds:g} s{said}"
            return Score(score=0.0, misses=(miss,), failed=self._settings.negate)
        if self._settings.score_from == "stdout":
            return _written_score(finished)
        return self._exit_score(finished)

    def _exit_score(self, finished: ProcessResult) -> Score:
        if not finished.code:
            point = f"{self._shown} succeeded"
        else:
            point = f"{self._shown} {describe_exit(finished.code)}{_both_tails(finished.stdout, finished.stderr)}"
        if self._settings.negate and _is_no_verdict(finished.code):
            return Score(score=0.0, misses=(point,), failed=True)  # which is not what was to be refuted
        if (finished.code == 0) is not self._settings.negate:
            return Score(score=1.0, hits=(point,))
        return Score(score=0.0, misses=(point,))


def _is_no_verdict(code: int) -> bool:
    """Return whether a command was not found, could not be run, or was ended by a signal."""
    return code < 0 or code in (CANNOT_RUN, NOT_FOUND) or code > SIGNALS


def _both_tails(*streams: Output, silence: str = ", and said nothing") -> str:
    """Return the ends of what a command wrote, stdout first: tests tell there what went wrong."""
    tails = [output_tail(ProcessResult(0, stream, stream)) for stream in streams if stream.tail.strip()]
    text = "\n".join(tail.removeprefix(": ") for tail in tails)
    if len(text) > SHOWN_CHARACTERS:
        text = f"…{text[-SHOWN_CHARACTERS:]}"
    return f": {text}" if text else silence


def _written_score(finished: ProcessResult) -> Score:
    """Return the score that a command wrote to stdout, or to its last line; raise `BadJudgement` if there is none."""
    expect_success(finished)
    text = complete_output(finished.stdout, MAX_OUTPUT_BYTES).strip()
    for part in (text, text.rpartition(b"\n")[2]):
        found = _decode(part)
        if isinstance(found, dict):
            return parse_score(found)
        if isinstance(found, int | float) and not isinstance(found, bool):
            return Score(score=finite_number(found))
    said = output_tail(finished._replace(stderr=finished.stdout))
    raise BadJudgement(f"the command wrote no number and no JSON object with a score{said}")


def _decode(data: bytes) -> Any:
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, RecursionError, ValueError):
        return None
