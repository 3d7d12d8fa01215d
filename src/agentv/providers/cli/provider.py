"""A command: one process for each case, or one for all of them."""

import itertools
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, ClassVar, NamedTuple, Self

import msgspec
from msgspec import Meta

from agentv.errors import ProviderError
from agentv.formats.conversion import Misfit
from agentv.formats.wire import answer_from
from agentv.notices import say
from agentv.processes.child import ProcessResult
from agentv.processes.command import (
    FILE_PLACEHOLDERS,
    MAX_ANSWER_BYTES,
    Command,
    complete_output,
    expect_success,
    output_tail,
    read_output_file,
)
from agentv.processes.streams import TAIL_BYTES, Capture, Output
from agentv.processes.template import QuoteContext, find_problems, parse_template
from agentv.protocols import BatchProvider, Check, Provider, Requests
from agentv.providers.cli.batch_output import BatchOutput, read_output
from agentv.providers.cli.healthcheck import PLACEHOLDER_VALUES, CommandHealthcheck, HttpHealthcheck
from agentv.providers.settings import NOT_IN_CACHE_KEY, Flag, Seconds, Text
from agentv.providers.workspaces.settings import WorkspaceSettings
from agentv.providers.workspaces.workspace import Workspaces
from agentv.records import Media, Message, ProviderRequest, ProviderResponse
from agentv.redact import clean
from agentv.system.compact_sets import HashSet
from agentv.system.dumps import safe_name
from agentv.system.folders import existing_folder
from agentv.system.temporary import keep_folder, make_folder, remove_folder
from agentv.telemetry.context import with_variables

FOREIGN = ("PROMPT", "GUIDELINES", "EVAL_ID", "FILES")
"""The placeholders whose values somebody else has written."""
SINGLE = (*FOREIGN, "ATTEMPT", "OUTPUT_FILE", "PROMPT_FILE")
BATCH = (*SINGLE, "BATCH_FILE")
OF_ONE_CASE = ("PROMPT", "GUIDELINES", "PROMPT_FILE")
CHECK_SECONDS = 10.0
MAX_LISTED_CHARACTERS = 1_000_000
"""How many characters the lists of missing ids may come to in the results of one batch."""


class HttpCheck(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="type", tag="http"):
    """The target is ready when this address answers."""

    url: Text
    timeout_seconds: Seconds | None = None


class CommandCheck(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="type", tag="command"
):
    """The target is ready when this command succeeds."""

    command_template: Text
    cwd: Text | None = None
    timeout_seconds: Seconds | None = None


class CliSettings(WorkspaceSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A command that answers on standard output or in {OUTPUT_FILE}."""

    reads_files: ClassVar[bool] = True
    answers_batches: ClassVar[bool] = True

    command_template: Annotated[Text, Meta(description="The command, with {PROMPT} and other placeholders.")]
    timeout_seconds: Annotated[
        Seconds | None, Meta(description="How long one case may take, or the batch."), NOT_IN_CACHE_KEY
    ] = None
    files_format: Annotated[Text | None, Meta(description="How {FILES} shows each file: {path}, {basename}.")] = None
    keep_temp_files: Annotated[Flag | None, Meta(description="Keep prompt and output files for a look.")] = None
    verbose: Annotated[Flag | None, Meta(description="Say what is run.")] = None
    healthcheck: Annotated[HttpCheck | CommandCheck | None, Meta(description="Tried once before the first case.")] = (
        None
    )

    def validate(self) -> Iterator[Misfit]:
        yield from super().validate()
        if self.provider_batching is True and self.workspace_template is not None:
            hint = "one call answers all cases, and each case has a workspace of its own: take out one of the two"
            yield Misfit(("workspace_template",), "provider_batching is given as well", hint)
        known = BATCH if self.provider_batching else SINGLE
        yield from _check_template(("command_template",), self.command_template, known)
        if self.files_format:
            yield from _check_template(("files_format",), self.files_format, FILE_PLACEHOLDERS, FILE_PLACEHOLDERS)
        if isinstance(self.healthcheck, HttpCheck) and not self.healthcheck.url.startswith(
            ("http://", "https://", "${{")
        ):
            yield Misfit(("healthcheck", "url"), "no address of http or https", "write http://… or https://…")
        if isinstance(self.healthcheck, CommandCheck):
            steps = ("healthcheck", "command_template")
            yield from _check_template(steps, self.healthcheck.command_template, tuple(PLACEHOLDER_VALUES))
        for placeholder in parse_template(self.command_template).placeholders:
            if placeholder.name == "FILES" and placeholder.context is not QuoteContext.PLAIN:
                hint = "it becomes a word for each file: write it outside of quotes"
                yield Misfit(("command_template",), "{FILES} stands in quotes", hint)
            if placeholder.name in OF_ONE_CASE and self.provider_batching is True:
                message, hint = f"{{{placeholder.name}}} is empty in a batch", "{BATCH_FILE} has the cases"
                yield Misfit(("command_template",), message, hint, "warning")

    def check_media(self, media: Sequence[Media]) -> Misfit | None:
        names = {placeholder.name for placeholder in parse_template(self.command_template).placeholders}
        if names.intersection(("FILES", "BATCH_FILE") if self.provider_batching else ("FILES",)):
            return None
        message = f"{media[0].value} is an image or a PDF, and the command has no {{FILES}} that could name it"
        return Misfit((), message, "write {FILES} where the command takes the paths of files")

    def open(self, folder: Path) -> Provider | BatchProvider:
        known = BATCH if self.provider_batching else SINGLE
        workspaces = self.workspaces(folder)
        cwd = existing_folder(folder, self.cwd, "cwd")
        command = Command(self.command_template, known, cwd, self.files_format or "{path}", workspaces.environment)
        check = self._check(folder, cwd)
        return CliBatch(self, command, check) if self.provider_batching else Cli(self, command, check, workspaces)

    def _check(self, folder: Path, cwd: Path) -> Check | None:
        match self.healthcheck:
            case HttpCheck(url=url, timeout_seconds=seconds):
                return HttpHealthcheck(url, float(seconds or CHECK_SECONDS))
            case CommandCheck(command_template=template, timeout_seconds=seconds) as check:
                where = existing_folder(folder, check.cwd, "healthcheck.cwd") if check.cwd else cwd
                return CommandHealthcheck(
                    template, where, float(seconds or CHECK_SECONDS), tuple(self.environment().items())
                )
        return None


def _check_template(
    steps: tuple[str, ...], template: str, known: Sequence[str], foreign: Sequence[str] = FOREIGN
) -> Iterator[Misfit]:
    for message, hint in find_problems(template, known, foreign):
        yield Misfit(steps, message, hint)


class _CommandProvider:
    """What both ways to run a command have in common."""

    def __init__(self, settings: CliSettings, command: Command, check: Check | None):
        self._settings, self._command, self.check = settings, command, check


class Cli(_CommandProvider):
    """Runs the command for each request. It may be entered several times; the last to leave removes its files."""

    def __init__(self, settings: CliSettings, command: Command, check: Check | None, workspaces: Workspaces):
        super().__init__(settings, command, check)
        self.workspaces = workspaces
        self._users = 0
        self._request_numbers = itertools.count(1)
        self._temporary: Path | None = None

    async def __aenter__(self) -> Self:
        self._users += 1
        return self

    async def __aexit__(self, *_: object) -> None:
        self._users -= 1
        if self._users or self._temporary is None:
            return
        if self._settings.keep_temp_files:
            say(f"target {self._settings.name!r}: its temporary files are kept in {self._temporary}")
        else:
            remove_folder(self._temporary)
        self._temporary = None

    def _temporary_stem(self, request: ProviderRequest) -> str:
        """Return the path of a request's temporary files, without a suffix."""
        if self._temporary is None:
            self._temporary = self._new_folder()
        return f"{self._temporary}/{next(self._request_numbers)}-{safe_name(request.eval_id)}"

    def _new_folder(self) -> Path:
        if not self._settings.keep_temp_files:
            return make_folder()
        folder = make_folder(Path(tempfile.gettempdir()))
        keep_folder(folder)
        return folder

    async def invoke(self, request: ProviderRequest) -> ProviderResponse:
        stem = self._temporary_stem(request)
        values = {
            "PROMPT": request.question,
            "GUIDELINES": request.guidelines,
            "EVAL_ID": request.eval_id,
            "ATTEMPT": str(request.attempt),
            "OUTPUT_FILE": f"{stem}.output",
            "PROMPT_FILE": f"{stem}.prompt",
        }
        try:
            return await self._answer(request, values)
        finally:
            if not self._settings.keep_temp_files:
                for name in self._command.names & {"OUTPUT_FILE", "PROMPT_FILE"}:
                    _remove(values[name])

    async def _answer(self, request: ProviderRequest, values: dict[str, str]) -> ProviderResponse:
        if "PROMPT_FILE" in self._command.names:
            Path(values["PROMPT_FILE"]).write_bytes(request.question.encode())
        if self._settings.verbose:
            say(f"{request.eval_id}: running {self._command.display(values)}")
        in_file = "OUTPUT_FILE" in self._command.names
        capture = Capture(0 if in_file else MAX_ANSWER_BYTES)
        if self.workspaces.are_fresh:
            async with self.workspaces.folder(request) as workspace:
                variables = self.workspaces.variables(request.eval_id, workspace)
                place = workspace, with_variables(variables, request.telemetry)
                finished = await self._command.run(values, request.input_files, capture, place)
        else:
            own = self._command.cwd, with_variables(self._command.environment, request.telemetry)
            finished = await self._command.run(values, request.input_files, capture, own)
        expect_success(finished)
        data = read_output_file(values["OUTPUT_FILE"], finished) if in_file else complete_output(finished.stdout)
        return answer_from(data)


def _remove(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        return
    except OSError:
        shutil.rmtree(path, ignore_errors=True)


class CliBatch(_CommandProvider):
    """Runs the command once for all requests."""

    @property
    def keeps_output(self) -> bool:
        return bool(self._settings.keep_temp_files)

    async def invoke_batch(self, requests: Requests, attempt: int, output: Path) -> BatchOutput:
        batch, prompt = output.with_name("requests.jsonl"), output.with_name("prompt.txt")
        batch_content = await _write_requests(requests, batch if "BATCH_FILE" in self._command.names else None)
        values = {
            "PROMPT": "",
            "GUIDELINES": "",
            "EVAL_ID": "batch",
            "ATTEMPT": str(attempt),
            "OUTPUT_FILE": str(output),
            "PROMPT_FILE": str(prompt),
            "BATCH_FILE": str(batch),
        }
        if self._settings.verbose:
            say(f"batch: running {self._command.display(values)}")
        prompt.touch()
        finished = await self._run(values, tuple(batch_content.files), output)
        expect_success(finished)
        if not os.path.lexists(output):
            raise ProviderError(f"the command succeeded but wrote no {{OUTPUT_FILE}}{output_tail(finished)}")
        answers = await read_output(output, batch_content.ids, batch_content.cases)
        if len(answers) < batch_content.cases:
            answers.close()
            raise await _missing_answers(requests, answers, batch_content.cases, output)
        if self._settings.keep_temp_files:
            say(f"target {self._settings.name!r}: the files of its batch are kept in {output.parent}")
        return answers

    async def _run(self, values: dict[str, str], files: tuple[Path, ...], output: Path) -> ProcessResult:
        """Run the command; its answers are in the file `output` then."""
        if "OUTPUT_FILE" in self._command.names:
            return await self._command.run(values, files)
        with output.open("w+b") as file:
            finished = await self._command.run(values, files, file.fileno())
            file.seek(max(0, file.seek(0, os.SEEK_END) - TAIL_BYTES))
            return finished._replace(stdout=Output(tail=file.read()))


class _BatchContent(NamedTuple):
    """What a batch asks: which ids, how many cases, and with which files."""

    ids: HashSet
    cases: int
    files: dict[Path, None]


class BatchRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One line of {BATCH_FILE}."""

    id: str
    question: str
    guidelines: str
    input_files: tuple[str, ...]
    chat_prompt: tuple[Message, ...]


_ENCODE = msgspec.json.Encoder(enc_hook=str).encode


async def _write_requests(requests: Requests, path: Path | None) -> _BatchContent:
    """Return what a batch asks; write the requests to a file if the command reads one."""
    ids, cases = HashSet(), 0
    files: dict[Path, None] = {}
    with path.open("wb") if path else nullcontext() as file:
        async for request in requests():
            ids.add(request.eval_id)
            cases += 1
            files.update(dict.fromkeys(request.input_files))
            if file:
                file.write(_ENCODE(_batch_request(request)) + b"\n")
    return _BatchContent(ids, cases, files)


def _batch_request(request: ProviderRequest) -> BatchRequest:
    return BatchRequest(
        id=request.eval_id,
        question=request.question,
        guidelines=request.guidelines,
        input_files=tuple(os.fsencode(path).decode("utf-8", "replace") for path in request.input_files),
        chat_prompt=request.chat_prompt,
    )


async def _missing_answers(requests: Requests, answers: BatchOutput, count: int, output: Path) -> ProviderError:
    """Return the error that lists the ids without an answer.

    It stands in every result of the batch, so that a list too long for that goes into a file of its own.
    """
    ids = [request.eval_id async for request in requests() if request.eval_id not in answers]
    listed = ", ".join(ids)
    if len(ids) > 20 and len(listed) * count > MAX_LISTED_CHARACTERS:
        path = output.with_name("missing.txt")
        path.write_text(clean("\n".join(ids) + "\n"), encoding="utf-8")
        listed = f"{', '.join(ids[:20])} and {len(ids) - 20} more, see {path}"
    return ProviderError(f"the output of the batch has no record for {len(ids)} of {count} cases: {listed}")
