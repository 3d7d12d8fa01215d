"""A target that is a shell command: one process per case, or one process for all cases."""

import itertools
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar, Literal, NamedTuple, Self

import msgspec
from msgspec import Meta

from agentv.errors import ProviderError
from agentv.files.compact_sets import HashSet
from agentv.files.conversion import Misfit
from agentv.files.dumps import safe_name
from agentv.files.encode import to_json
from agentv.files.folders import existing_folder
from agentv.files.temporary import keep_folder, make_folder, remove_folder
from agentv.files.wire import answer_from
from agentv.log import info
from agentv.placeholders import STATE
from agentv.processes.child import ProcessResult
from agentv.processes.command import (
    FILE_PLACEHOLDERS,
    MAX_ANSWER_BYTES,
    CommandTemplate,
    complete_output,
    expect_success,
    output_tail,
    read_output_file,
)
from agentv.processes.streams import TAIL_BYTES, Capture, StreamOutput
from agentv.processes.template import QuoteContext, find_problems, parse_template
from agentv.processes.variables import STATE_VARIABLE
from agentv.protocols import BatchProvider, Check, Provider, Requests
from agentv.providers.cli.batch_output import BatchOutput, read_output
from agentv.providers.cli.healthcheck import PLACEHOLDER_VALUES, CommandHealthcheck, HttpHealthcheck
from agentv.providers.settings import NOT_IN_CACHE_KEY, Flag, Seconds, Text
from agentv.providers.trace_context import with_variables
from agentv.providers.workspaces.settings import WorkspaceSettings
from agentv.providers.workspaces.workspace import Workspaces
from agentv.records import Media, Message, ProviderRequest, ProviderResponse
from agentv.redact import clean
from agentv.text import join_names

FOREIGN = ("PROMPT", "GUIDELINES", "EVAL_ID", "FILES")
"""The placeholders whose values come from eval files, which others may have written."""
SINGLE = (*FOREIGN, "ATTEMPT", "OUTPUT_FILE", "PROMPT_FILE")
BATCH = (*SINGLE, "BATCH_FILE")
OF_ONE_CASE = ("PROMPT", "GUIDELINES", "PROMPT_FILE")
OutputFormat = Literal["auto", "text"]
OnMissing = Literal["fail_batch", "fail_case"]
CHECK_SECONDS = 10.0
MAX_LISTED = 20
MAX_LISTED_CHARACTERS = 1_000_000
"""The maximum total size of the lists of missing ids in the results of one batch."""


class HttpCheck(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="type", tag="http"):
    """The target is ready when this address answers."""

    url: Text
    """The address to request."""
    timeout_seconds: Seconds | None = None
    """Time limit of the check."""


class CommandCheck(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
    tag_field="type",
    tag="command",
):
    """The target is ready when this command succeeds."""

    command_template: Text
    """The command to run."""
    cwd: Text | None = None
    """The working directory."""
    timeout_seconds: Seconds | None = None
    """Time limit of the check."""


class CliSettings(WorkspaceSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A command that answers on standard output or in {OUTPUT_FILE}."""

    reads_files: ClassVar[bool] = True
    answers_batches: ClassVar[bool] = True

    command_template: Annotated[
        Text,
        Meta(description="The command, with {PROMPT} and other placeholders."),
    ]
    timeout_seconds: Annotated[
        Seconds | None,
        Meta(description="Time limit per case, or for the batch."),
        NOT_IN_CACHE_KEY,
    ] = None
    files_format: Annotated[
        Text | None,
        Meta(description="Format of each file in {FILES}: {path}, {basename}."),
    ] = None
    output_format: Annotated[
        OutputFormat | None,
        Meta(description="text: the output is the answer, even if it is a JSON object."),
    ] = None
    batch_on_missing: Annotated[
        OnMissing | None,
        Meta(description="Whether a missing or duplicate record fails the whole batch or only its case."),
        NOT_IN_CACHE_KEY,
    ] = None
    keep_temp_files: Annotated[
        Flag | None,
        Meta(description="Keep prompt and output files for inspection."),
    ] = None
    verbose: Annotated[
        Flag | None,
        Meta(description="Print each command before it runs."),
    ] = None
    healthcheck: Annotated[
        HttpCheck | CommandCheck | None,
        Meta(description="Checked once before the first case."),
    ] = None

    def validate(self) -> Iterator[Misfit]:
        yield from super().validate()
        if self.provider_batching is True and self.workspace_template is not None:
            yield Misfit(
                ("workspace_template",),
                "provider_batching is set as well",
                "one call answers all cases, but each case has its own workspace: remove one of the two",
            )
        if self.batch_on_missing is not None and not self.provider_batching:
            yield Misfit(
                ("batch_on_missing",),
                "the target does not answer in batches",
                "set provider_batching: true, or remove batch_on_missing",
            )
        if self.provider_batching is True and self.output_format == "text":
            yield Misfit(
                ("output_format",),
                "the output of a batch is JSONL",
                "remove output_format: the 'text' of a record is always used verbatim",
            )
        yield from _check_template(("command_template",), self.command_template, self._known_placeholders)
        if self.files_format:
            yield from _check_template(("files_format",), self.files_format, FILE_PLACEHOLDERS, FILE_PLACEHOLDERS)
        yield from self._validate_healthcheck()
        yield from self._validate_placeholders()

    def _validate_healthcheck(self) -> Iterator[Misfit]:
        match self.healthcheck:
            case HttpCheck(url=url) if not url.startswith(("http://", "https://", "${{")):
                yield Misfit(
                    ("healthcheck", "url"),
                    "not an http or https address",
                    "use http://… or https://…",
                )
            case CommandCheck(command_template=template):
                steps = ("healthcheck", "command_template")
                yield from _check_template(steps, template, tuple(PLACEHOLDER_VALUES))

    def _validate_placeholders(self) -> Iterator[Misfit]:
        """Yield placeholders of the command that are known but misused."""
        for placeholder in parse_template(self.command_template).placeholders:
            if placeholder.name == "FILES" and placeholder.context is not QuoteContext.PLAIN:
                yield Misfit(
                    ("command_template",),
                    "{FILES} is inside quotes",
                    "it expands to one word per file: move it outside the quotes",
                )
            if placeholder.name in OF_ONE_CASE and self.provider_batching is True:
                yield Misfit(
                    ("command_template",),
                    f"{{{placeholder.name}}} is empty in a batch",
                    "use {BATCH_FILE}, which contains the cases",
                    "warning",
                )

    @property
    def _known_placeholders(self) -> tuple[str, ...]:
        return BATCH if self.provider_batching else SINGLE

    def _placeholder_names(self) -> set[str]:
        placeholders = parse_template(self.command_template).placeholders
        return {placeholder.name for placeholder in placeholders}

    def takes_guidelines(self, folder: Path, targets_file: Path | None) -> bool:
        if self.provider_batching:
            return True  # they are in {BATCH_FILE}; without it, the command gets no prompts either
        return "GUIDELINES" in self._placeholder_names()

    def uses(self, folder: Path, targets_file: Path | None) -> frozenset[str]:
        if STATE_VARIABLE in self.command_template:
            return frozenset((STATE,))
        return frozenset()

    def check_media(self, media: Sequence[Media]) -> Misfit | None:
        names = self._placeholder_names()
        if "FILES" in names or (self.provider_batching and "BATCH_FILE" in names):
            return None
        message = f"{media[0].value} is an image or a PDF, but the command has no {{FILES}} to pass it"
        return Misfit((), message, "add {FILES} where the command takes file paths")

    def open(self, folder: Path) -> Provider | BatchProvider:
        workspaces = self.workspaces(folder)
        cwd = existing_folder(folder, self.cwd, "cwd")
        command = CommandTemplate(
            self.command_template,
            self._known_placeholders,
            cwd,
            self.files_format or "{path}",
            workspaces.environment,
        )
        check = self._check(folder, cwd)
        if self.provider_batching:
            return CliBatch(self, command, check)
        return Cli(self, command, check, workspaces)

    def _check(self, folder: Path, cwd: Path) -> Check | None:
        match self.healthcheck:
            case HttpCheck(url=url, timeout_seconds=seconds):
                return HttpHealthcheck(url, float(seconds or CHECK_SECONDS))
            case CommandCheck(command_template=template, cwd=own_cwd, timeout_seconds=seconds):
                if own_cwd:
                    cwd = existing_folder(folder, own_cwd, "healthcheck.cwd")
                return CommandHealthcheck(
                    template,
                    cwd,
                    float(seconds or CHECK_SECONDS),
                    tuple(self.environment().items()),
                )
        return None


def _check_template(
    steps: tuple[str, ...],
    template: str,
    known: Sequence[str],
    foreign: Sequence[str] = FOREIGN,
) -> Iterator[Misfit]:
    """Yield the problems of a template; the values of `foreign` placeholders must not be run as code."""
    for message, hint in find_problems(template, known, foreign):
        yield Misfit(steps, message, hint)


class Cli:
    """Runs the command for each request. It may be entered several times; the last exit removes its files."""

    def __init__(
        self,
        settings: CliSettings,
        command: CommandTemplate,
        check: Check | None,
        workspaces: Workspaces,
    ):
        self._settings = settings
        self._command = command
        self.check = check
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
            info(f"target {self._settings.name!r}: its temporary files are kept in {self._temporary}")
        else:
            remove_folder(self._temporary)
        self._temporary = None

    def _temporary_stem(self, request: ProviderRequest) -> str:
        """Return the path of a request's temporary files, without a suffix."""
        if self._temporary is None:
            self._temporary = self._new_folder()
        number = next(self._request_numbers)
        return f"{self._temporary}/{number}-{safe_name(request.eval_id)}"

    def _new_folder(self) -> Path:
        if not self._settings.keep_temp_files:
            return make_folder()
        folder = make_folder(Path(tempfile.gettempdir()))
        keep_folder(folder)
        return folder

    async def invoke(self, request: ProviderRequest) -> ProviderResponse:
        stem = self._temporary_stem(request)
        values = {
            "PROMPT": request.prompt,
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
        names = self._command.names
        if "PROMPT_FILE" in names:
            Path(values["PROMPT_FILE"]).write_bytes(request.prompt.encode())
        if self._settings.verbose:
            info(f"{request.eval_id}: running {self._command.display(values)}")
        if "OUTPUT_FILE" in names:
            finished = await self._run(request, values, Capture())
            expect_success(finished)
            return self._response(read_output_file(values["OUTPUT_FILE"], finished))
        finished = await self._run(request, values, Capture(MAX_ANSWER_BYTES))
        expect_success(finished)
        return self._response(complete_output(finished.stdout))

    def _response(self, output: bytes) -> ProviderResponse:
        if self._settings.output_format == "text":
            return ProviderResponse(text=output.decode("utf-8", "replace"))
        return answer_from(output)

    async def _run(self, request: ProviderRequest, values: dict[str, str], capture: Capture) -> ProcessResult:
        """Run the command in its folder, or in the workspace of the request."""
        if not self.workspaces.are_fresh:
            environment = with_variables(self._command.environment, request)
            place = (self._command.cwd, environment)
            return await self._command.run(values, request.input_files, capture, place)
        async with self.workspaces.folder(request) as workspace:
            variables = self.workspaces.variables(request.eval_id, workspace)
            place = (workspace, with_variables(variables, request))
            return await self._command.run(values, request.input_files, capture, place)


def _remove(path: str) -> None:
    """Remove a file that the command may have replaced by a folder, or removed itself."""
    try:
        os.unlink(path)
    except FileNotFoundError:
        return
    except OSError:
        shutil.rmtree(path, ignore_errors=True)


@dataclass(eq=False)
class CliBatch:
    """Runs the command once for all requests."""

    _settings: CliSettings
    _command: CommandTemplate
    check: Check | None

    @property
    def keeps_output(self) -> bool:
        return bool(self._settings.keep_temp_files)

    async def invoke_batch(self, requests: Requests, attempt: int, output: Path) -> BatchOutput:
        batch = output.with_name("requests.jsonl")
        prompt = output.with_name("prompt.txt")
        reads_batch = "BATCH_FILE" in self._command.names
        content = await _write_requests(requests, batch if reads_batch else None)
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
            info(f"batch: running {self._command.display(values)}")
        prompt.touch()
        finished = await self._run(values, tuple(content.files), output)
        expect_success(finished)
        if not os.path.lexists(output):
            raise ProviderError(f"the command succeeded but wrote no {{OUTPUT_FILE}}{output_tail(finished)}")
        is_tolerant = self._settings.batch_on_missing == "fail_case"
        answers = await read_output(output, content.ids, content.cases, is_tolerant=is_tolerant)
        if len(answers) < content.cases and not is_tolerant:
            answers.close()
            raise await _missing_answers(requests, answers, content.cases, output)
        if self._settings.keep_temp_files:
            info(f"target {self._settings.name!r}: the files of its batch are kept in {output.parent}")
        return answers

    async def _run(self, values: dict[str, str], files: tuple[Path, ...], output: Path) -> ProcessResult:
        """Run the command. Its answers are in the file `output` afterwards."""
        if "OUTPUT_FILE" in self._command.names:
            return await self._command.run(values, files)
        with output.open("w+b") as file:
            finished = await self._command.run(values, files, file.fileno())
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - TAIL_BYTES))
            written = StreamOutput(tail=file.read())
            return finished._replace(stdout=written)


class _BatchContent(NamedTuple):
    """The ids, the number of cases and the files of a batch."""

    ids: HashSet
    cases: int
    files: dict[Path, None]
    """An ordered set."""


class BatchRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One line of {BATCH_FILE}."""

    id: str
    question: str
    guidelines: str
    input_files: tuple[str, ...]
    chat_prompt: tuple[Message, ...]


async def _write_requests(requests: Requests, path: Path | None) -> _BatchContent:
    """Return the content of a batch, and write its requests to `path` if the command reads them."""
    ids = HashSet()
    cases = 0
    files: dict[Path, None] = {}
    with path.open("wb") if path else nullcontext() as file:
        async for request in requests():
            ids.add(request.eval_id)
            cases += 1
            files.update(dict.fromkeys(request.input_files))
            if file:
                file.write(to_json(_batch_request(request)) + b"\n")
    return _BatchContent(ids, cases, files)


def _batch_request(request: ProviderRequest) -> BatchRequest:
    return BatchRequest(
        id=request.eval_id,
        question=request.question,
        guidelines=request.guidelines,
        input_files=tuple(os.fsencode(path).decode("utf-8", "replace") for path in request.input_files),
        chat_prompt=request.chat_prompt,
    )


async def _missing_answers(
    requests: Requests,
    answers: BatchOutput,
    count: int,
    output: Path,
) -> ProviderError:
    """Return the error that lists the ids without an answer.

    It is part of every result of the batch: a list that would be too long for that is written to a file of its own.
    """
    ids = [request.eval_id async for request in requests() if request.eval_id not in answers]
    listed = ", ".join(ids)
    if len(ids) > MAX_LISTED and len(listed) * count > MAX_LISTED_CHARACTERS:
        path = output.with_name("missing.txt")
        path.write_text(clean("\n".join(ids) + "\n"), encoding="utf-8")
        listed = f"{join_names(ids, MAX_LISTED)}, see {path}"
    message = f"the output of the batch has no record for {len(ids)} of {count} cases: {listed}"
    return ProviderError(message + answers.others.text)
