"""Run a command template with its values, and read its output.

The command is a script for `/bin/sh`. Values are passed through the environment, see `template`.
"""

import asyncio
import os
import shlex
import signal
import stat
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from agentv.errors import ProviderError
from agentv.processes.child import GRACE_SECONDS, ProcessResult, run_process
from agentv.processes.machine import start_error
from agentv.processes.streams import TAIL_BYTES, Capture, Destination, StreamOutput
from agentv.processes.template import VARIABLE_PREFIX, QuoteContext, build_script, expand_variable, parse_template
from agentv.redact import clean
from agentv.text import truncate

MAX_ANSWER_BYTES = 16 * 1024 * 1024
MAX_VALUE_BYTES = 32 * os.sysconf("SC_PAGESIZE") - 256
"""The maximum size of one argument on Linux, minus some room for the text that a template adds to the value."""
SHOWN_CHARACTERS = 2000
SHOWN_VALUE_CHARACTERS = 200
FILE_PLACEHOLDERS = ("path", "basename")
_SUBJECTS = {
    "PROMPT": "the prompt has",
    "GUIDELINES": "the guidelines have",
    "EVAL_ID": "the id has",
}


class CommandTemplate:
    """A command template that can be run with different values."""

    def __init__(
        self,
        template: str,
        known: Collection[str],
        cwd: Path,
        files_format: str = "{path}",
        environment: Mapping[bytes, bytes] | None = None,
    ):
        self.cwd = cwd
        placeholders = parse_template(template).placeholders
        self.names = frozenset(placeholder.name for placeholder in placeholders).intersection(known)
        self._template = template
        self._files_format = files_format
        self._script = self._build_script(0)
        if environment is None:
            environment = os.environb
        self.environment = dict(environment)

    async def run(
        self,
        values: Mapping[str, str],
        files: Sequence[Path] = (),
        stdout: Destination | None = None,
        place: "tuple[Path, Mapping[bytes, bytes]] | None" = None,
    ) -> ProcessResult:
        """Run the command until it exits; raise `ProviderError` if it cannot be started with these values.

        `place` is a folder and an environment to use instead of the command's own.
        """
        cwd, variables = place or (self.cwd, self.environment)
        environment = dict(variables)
        for name in self.names & values.keys():
            environment[_variable(name)] = _encode_value(name, values[name])
        script = self._script
        if "FILES" in self.names:
            script = self._build_script(len(files))
            for number, path in enumerate(files):
                environment[_variable(f"PATH_{number}")] = os.fsencode(path)
                environment[_variable(f"BASENAME_{number}")] = os.fsencode(path.name)
        return await run_program(shell_in(cwd, script), environment, stdout=stdout)

    def display(self, values: Mapping[str, str]) -> str:
        """Return the command as a person would type it, with long values truncated and secrets masked."""

        def expand(name: str, _context: QuoteContext) -> str:
            shown = truncate(clean(values[name]), SHOWN_VALUE_CHARACTERS)
            return shlex.quote(shown)

        return build_script(self._template, values, expand)

    def _build_script(self, file_count: int) -> bytes:
        def expand(name: str, context: QuoteContext) -> str:
            if name == "FILES":
                return " ".join(self._expand_file(number) for number in range(file_count))
            return expand_variable(name, context)

        return build_script(self._template, self.names, expand).encode()

    def _expand_file(self, number: int) -> str:
        """Return the words of the script that expand to one file."""

        def expand(name: str, context: QuoteContext) -> str:
            return expand_variable(f"{name.upper()}_{number}", context)

        return build_script(self._files_format, FILE_PLACEHOLDERS, expand)


def shell_in(folder: Path, script: str | bytes) -> list[bytes]:
    """Return the arguments that make a shell run a script in a folder."""
    if isinstance(script, str):
        script = os.fsencode(script)
    change_folder = os.fsencode(f"cd -- {shlex.quote(str(folder))} || exit; ")
    return [b"/bin/sh", b"-c", change_folder + script]


async def run_program(
    argv: list[bytes],
    environment: Mapping[bytes, bytes],
    *,
    stdin: int | None = None,
    stdout: Destination | None = None,
    grace: float = GRACE_SECONDS,
) -> ProcessResult:
    """Run a program to its end; raise `ProviderError` if it cannot be started.

    When cancelled, the error has a note with the end of stderr so far.
    """
    stderr = Capture()
    try:
        return await run_process(
            argv,
            environment,
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            grace=grace,
        )
    except asyncio.CancelledError as error:
        tail = output_tail(ProcessResult(0, StreamOutput(), stderr.output()))
        if tail.startswith(":"):
            error.add_note(tail)  # shown in the message of a timeout
        raise
    except OSError as error:
        machine = start_error(error)
        if machine is not None:
            raise machine from error
        raise ProviderError(f"the command cannot be started: {error.strerror}") from error


def _variable(name: str) -> bytes:
    return f"{VARIABLE_PREFIX}{name}".encode()


def _encode_value(name: str, text: str) -> bytes:
    """Encode the value of a placeholder for the environment; raise `ProviderError` if an argument cannot hold it."""
    value = text.encode("utf-8", "surrogateescape")
    subject = _SUBJECTS.get(name, f"{{{name}}} has")
    hint = ""
    if name == "PROMPT":
        hint = ": use {PROMPT_FILE} in command_template"
    if b"\0" in value:
        raise ProviderError(f"{subject} a NUL character, which a command-line argument cannot contain{hint}")
    if len(value) > MAX_VALUE_BYTES:
        raise ProviderError(f"{subject} {len(value)} bytes, more than the {MAX_VALUE_BYTES} of an argument{hint}")
    return value


def expect_success(finished: ProcessResult) -> None:
    """Raise `ProviderError` with the reason and the end of the output if a command failed."""
    if not finished.code:
        return
    hint = ""
    if b"rgument list too long" in finished.stderr.tail:
        hint = "; use {PROMPT_FILE}"
    raise ProviderError(f"the command {describe_exit(finished.code)}{output_tail(finished)}{hint}")


def output_tail(finished: ProcessResult) -> str:
    """Return the end of stderr, or else of stdout, as the suffix of a message.

    Secrets are masked before the text is truncated, because a part of a secret would not be recognized.
    """
    for tail in (finished.stderr.tail, finished.stdout.tail):
        text = clean(tail.decode("utf-8", "replace"))
        if len(tail) >= TAIL_BYTES:
            # The tail may begin in the middle of a secret, so its length is removed.
            text = text[clean.longest :]
        text = text.strip()
        if len(text) > SHOWN_CHARACTERS:
            return f": …{text[-SHOWN_CHARACTERS:]}"
        if text:
            return f": {text}"
    return ", without any output"


def describe_exit(code: int) -> str:
    """Describe how a command that did not succeed ended."""
    if code < 0:
        name = _signal_name(-code) or f"signal {-code}"
        return f"was killed by {name}"
    meaning = _EXIT_CODES.get(code, "")
    if code > 128:
        # A shell reports a child that was killed by signal N as 128 + N.
        meaning = _signal_name(code - 128)
    if meaning:
        return f"failed with exit code {code} ({meaning})"
    return f"failed with exit code {code}"


_EXIT_CODES = {
    126: "command not executable",
    127: "command not found",
}


def _signal_name(number: int) -> str:
    """Return the name of a signal; empty if the number is unknown."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return ""


def complete_output(output: StreamOutput, most: int = MAX_ANSWER_BYTES) -> bytes:
    """Return the data of an output; raise `ProviderError` if it was truncated."""
    if not output.is_complete:
        raise ProviderError(f"the command answered with more than {most >> 20} MiB")
    return output.data


def read_output_file(path: str, finished: ProcessResult) -> bytes:
    """Return the content of a command's output file; raise `ProviderError` if there is none or it is too long."""
    try:
        # Without O_NONBLOCK, opening a named pipe would wait for a writer.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        raise ProviderError(f"the command succeeded but wrote no {{OUTPUT_FILE}}{output_tail(finished)}") from None
    except OSError as error:
        raise ProviderError(f"{{OUTPUT_FILE}} cannot be read: {error.strerror}") from error
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise ProviderError("the command created {OUTPUT_FILE}, but it is not a regular file")
        if status.st_size > MAX_ANSWER_BYTES:
            raise ProviderError(f"the command wrote more than {MAX_ANSWER_BYTES >> 20} MiB to {{OUTPUT_FILE}}")
        return os.read(descriptor, status.st_size)
    finally:
        os.close(descriptor)
