"""Scores an answer by the exit code of a command: the tests of what an agent wrote, a linter, a build.

The command reads the answer from stdin and everything else from its environment. Nothing of a case is inserted into
the command itself, so that a shell never runs text from an answer or an id.
"""

import asyncio
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import msgspec
from msgspec import Meta

from agentv.errors import SettingError
from agentv.evaluators.checks.matching import CheckSettings, score_point
from agentv.evaluators.judging.program import (
    MAX_OUTPUT_BYTES,
    WORKSPACE,
    CommandLine,
    Program,
    exchange_variables,
    output_captures,
    stdout_tail,
)
from agentv.evaluators.judging.reply import BadJudgement, failed_score, parse_score, score_number
from agentv.processes.child import ProcessResult
from agentv.processes.command import SHOWN_CHARACTERS, complete_output, describe_exit, expect_success, output_tail
from agentv.processes.streams import StreamOutput
from agentv.protocols import Evaluator, EvaluatorContext, WorkspaceUse
from agentv.providers.settings import Text
from agentv.records import Exchange, Score
from agentv.redact import clean
from agentv.text import truncate

TIMEOUT_SECONDS = 300.0
SHOWN_COMMAND = 60
CANNOT_RUN = 126
NOT_FOUND = 127
SIGNALS = 128
"""A shell adds the number of the signal that ended the command."""


class Command(CheckSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Run a command in the workspace. Exit code 0 scores 1, any other exit code scores 0."""

    command: CommandLine
    """The command to run."""
    cwd: Text | None = None
    """`workspace`, or a folder relative to the eval file. Defaults to the workspace if there is one."""
    timeout_seconds: Annotated[float, Meta(gt=0)] = TIMEOUT_SECONDS
    """Time limit of the command."""
    score_from: Literal["exit_code", "stdout"] = "exit_code"
    """Whether the exit code or the output is the score."""
    negate: bool = False
    """Pass if the exit code is not 0."""

    def open(self, context: EvaluatorContext) -> Evaluator:
        if isinstance(self.command, str) and not self.command.strip():
            raise SettingError(
                "'command' is empty", "command", hint="set it to the command to run, for example: pytest -q"
            )
        if self.negate and self.score_from == "stdout":
            hint = "'negate' inverts exit codes only; have the command write the inverted score"
            raise SettingError("'negate' cannot be combined with a score from stdout", "negate", hint=hint)
        if self.cwd is None or self.cwd == WORKSPACE:
            program = Program(
                self.command,
                context.folder,
                at=("command",),
                in_workspace=True,
            )
        else:
            cwd = context.folder / self.cwd
            program = Program(self.command, cwd, at=("command",))
        return _CommandJudge(self, program, _shown_command(self.command))

    def uses_state(self) -> bool:
        return True  # it may read its environment

    def workspace_use(self) -> WorkspaceUse:
        if self.cwd is None:
            return WorkspaceUse.RUNS_IN_IT
        if self.cwd == WORKSPACE:
            return WorkspaceUse.NEEDS_IT
        return WorkspaceUse.NAMES_IT


@dataclass(frozen=True)
class _CommandJudge(Evaluator):
    """Runs the command for each answer."""

    waits: ClassVar[bool] = True

    settings: Command
    program: Program
    shown_command: str

    def fingerprint(self) -> list[str]:
        return self.program.fingerprint

    async def evaluate(self, exchange: Exchange) -> Score:
        if self.settings.cwd == WORKSPACE and exchange.workspace is None:
            raise BadJudgement("the command needs the agent's workspace, but the target has none")
        answer = exchange.response.text.encode("utf-8", "replace")
        variables = exchange_variables(exchange)
        streams = output_captures()
        limit = asyncio.timeout(self.settings.timeout_seconds)
        try:
            async with limit:
                finished = await self.program.finish(
                    answer,
                    variables,
                    exchange.workspace,
                    streams,
                )
        except TimeoutError:
            if not limit.expired():
                raise
            outputs = [stream.output() for stream in streams]
            return self._timeout_score(outputs)
        if self.settings.score_from == "stdout":
            return _written_score(finished)
        return self._exit_score(finished)

    def _timeout_score(self, outputs: list[StreamOutput]) -> Score:
        seconds = self.settings.timeout_seconds
        miss = f"{self.shown_command} timed out after {seconds:g} s"
        written = _tails(outputs)
        if written:
            miss += f": {written}"
        # A command that did not finish proves nothing, so a negated one fails, too.
        return Score(
            score=0.0,
            misses=(miss,),
            failed=self.settings.negate,
        )

    def _exit_score(self, finished: ProcessResult) -> Score:
        negate = self.settings.negate
        point = self._describe(finished)
        if negate and _is_no_verdict(finished.code):
            return failed_score(point)
        has_succeeded = finished.code == 0
        return score_point(has_succeeded is not negate, point)

    def _describe(self, finished: ProcessResult) -> str:
        """Return how the command ended and, if it failed, the end of its output."""
        if finished.code == 0:
            return f"{self.shown_command} succeeded"
        point = f"{self.shown_command} {describe_exit(finished.code)}"
        written = _tails([finished.stdout, finished.stderr])
        if written:
            return f"{point}: {written}"
        return f"{point} without output"


def _shown_command(command: CommandLine) -> str:
    """Return the command for messages: with secrets masked, truncated and quoted."""
    if not isinstance(command, str):
        command = " ".join(command)
    masked = clean(command)
    return repr(truncate(masked, SHOWN_COMMAND))


def _is_no_verdict(code: int) -> bool:
    """Return whether a command was not found, could not be run, or was ended by a signal.

    Such an exit code says nothing about the answer.
    """
    return code < 0 or code in (CANNOT_RUN, NOT_FOUND) or code > SIGNALS


def _tails(outputs: list[StreamOutput]) -> str:
    """Return the end of each output; empty if nothing was written. Put stdout first: tests report failures there."""
    tails = []
    for output in outputs:
        if output.tail.strip():
            tail = output_tail(ProcessResult(0, output, output))
            tails.append(tail.removeprefix(": "))
    text = "\n".join(tails)
    if len(text) > SHOWN_CHARACTERS:
        return f"…{text[-SHOWN_CHARACTERS:]}"
    return text


def _written_score(finished: ProcessResult) -> Score:
    """Return the score that a command wrote to stdout, as all of it or as its last line.

    Raise `BadJudgement` if there is none, `ProviderError` if the command failed.
    """
    expect_success(finished)
    text = complete_output(finished.stdout, MAX_OUTPUT_BYTES).strip()
    last_line = text.rpartition(b"\n")[2]
    for part in (text, last_line):
        found = _decode(part)
        if isinstance(found, dict):
            return parse_score(found)
        if isinstance(found, int | float) and not isinstance(found, bool):
            return Score(score=score_number(found))
    if not text:
        raise BadJudgement("the command wrote nothing to stdout: expected a number or a JSON object with a score")
    written = stdout_tail(finished)
    raise BadJudgement(f"the command wrote neither a number nor a JSON object with a score{written}")


def _decode(data: bytes) -> Any:
    """Return the value of JSON data; None if it is not valid."""
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, RecursionError, ValueError):
        return None
