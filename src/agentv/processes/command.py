"""A command template and its values -> how the command ended, and what it wrote.

The command is a script for `/bin/sh`. Values reach it through the environment, see `template`.
"""

import asyncio
import errno
import os
import shlex
import signal
import stat
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from agentv.errors import ProviderError
from agentv.processes.child import ProcessResult, run_process
from agentv.processes.streams import TAIL_BYTES, Capture, Destination, Output
from agentv.processes.template import VARIABLE_PREFIX, QuoteContext, build_script, expand_variable, parse_template
from agentv.redact import clean

MAX_ANSWER_BYTES = 16 * 1024 * 1024
MAX_VALUE_BYTES = 32 * os.sysconf("SC_PAGESIZE") - 256
"""What one argument of a command can hold on Linux, with some room for what a template puts around it."""
SHOWN_CHARACTERS = 2000
FILE_PLACEHOLDERS = ("path", "basename")
_SUBJECTS = {"PROMPT": "the prompt has", "GUIDELINES": "the guidelines have", "EVAL_ID": "the id has"}


class Command:
    """A command template, to be run with one set of values after another."""

    def __init__(
        self,
        template: str,
        known: Collection[str],
        cwd: Path,
        files_format: str = "{path}",
        environment: Mapping[bytes, bytes] | None = None,
    ):
        self.cwd = cwd
        self.names = frozenset(found.name for found in parse_template(template).placeholders).intersection(known)
        self._template, self._files_format = template, files_format
        self._script = self._build_script(0)
        self.environment = dict(os.environb if environment is None else environment)

    async def run(
        self,
        values: Mapping[str, str],
        files: Sequence[Path] = (),
        stdout: Destination | None = None,
        place: "tuple[Path, Mapping[bytes, bytes]] | None" = None,
    ) -> ProcessResult:
        """Run the command to its end; raise `ProviderError` if it cannot be started with these values.

        `place` are another folder than its usual one, and another environment.
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
        """Return the command as a person would type it; long values are cut, secrets masked."""
        return build_script(self._template, values, lambda name, _: shlex.quote(shorten(clean(values[name]), 200)))

    def _build_script(self, file_count: int) -> bytes:
        def expand(name: str, context: QuoteContext) -> str:
            return (
                " ".join(map(self._expand_file, range(file_count)))
                if name == "FILES"
                else expand_variable(name, context)
            )

        return build_script(self._template, self.names, expand).encode()

    def _expand_file(self, number: int) -> str:
        """Return the words that stand for one file."""

        def expand(name: str, context: QuoteContext) -> str:
            return expand_variable(f"{name.upper()}_{number}", context)

        return build_script(self._files_format, FILE_PLACEHOLDERS, expand)


def shell_in(folder: Path, script: str | bytes) -> list[bytes]:
    """Return the arguments with which a shell runs a script in a folder."""
    start = os.fsencode(f"cd -- {shlex.quote(str(folder))} || exit; ")
    return [b"/bin/sh", b"-c", start + (script if isinstance(script, bytes) else os.fsencode(script))]


async def run_program(
    argv: list[bytes],
    environment: Mapping[bytes, bytes],
    *,
    stdin: int | None = None,
    stdout: Destination | None = None,
) -> ProcessResult:
    """Run a program to its end; raise `ProviderError` if it cannot be started.

    When cancelled, the error has a note with the end of what the program had written to stderr by then.
    """
    stderr = Capture()
    try:
        return await run_process(argv, environment, stdin=stdin, stdout=stdout, stderr=stderr)
    except asyncio.CancelledError as error:
        if (text := output_tail(ProcessResult(0, Output(), stderr.output()))).startswith(":"):
            error.add_note(text)  # which is of use when time was up
        raise
    except OSError as error:
        may_pass = error.errno in (errno.EAGAIN, errno.EMFILE, errno.ENFILE, errno.ENOMEM)
        raise ProviderError(f"the command cannot be started: {error.strerror}", may_pass=may_pass) from error


def _variable(name: str) -> bytes:
    return f"{VARIABLE_PREFIX}{name}".encode()


def _encode_value(name: str, text: str) -> bytes:
    """Return the value of a placeholder for the environment; raise `ProviderError` if that cannot hold it."""
    value = text.encode("utf-8", "surrogateescape")
    subject = _SUBJECTS.get(name, f"{{{name}}} has")
    hint = ": use {PROMPT_FILE} in command_template" if name == "PROMPT" else ""
    if b"\0" in value:
        raise ProviderError(f"{subject} a NUL character, which an argument cannot hold{hint}")
    if len(value) > MAX_VALUE_BYTES:
        raise ProviderError(f"{subject} {len(value)} bytes, and an argument holds at most {MAX_VALUE_BYTES}{hint}")
    return value


def expect_success(finished: ProcessResult) -> None:
    """Raise `ProviderError` if a command failed: it tells how, and the end of the output."""
    if finished.code:
        hint = "; use {PROMPT_FILE}" if b"rgument list too long" in finished.stderr.tail else ""
        raise ProviderError(f"the command {describe_exit(finished.code)}{output_tail(finished)}{hint}")


def output_tail(finished: ProcessResult) -> str:
    """Return the end of stderr, or else of stdout, to be put behind a message.

    Secrets are masked before anything is shorten, since half of one would not be recognised; where the tail itself may
    begin with half of one, so much is left out.
    """
    for tail in (finished.stderr.tail, finished.stdout.tail):
        masked = clean(tail.decode("utf-8", "replace"))
        if text := masked[0 if len(tail) < TAIL_BYTES else clean.longest :].strip():
            return f": {text}" if len(text) <= SHOWN_CHARACTERS else f": …{text[-SHOWN_CHARACTERS:]}"
    return ", and said nothing"


def describe_exit(code: int) -> str:
    """Return how a command ended that did not succeed."""
    if code < 0:
        return f"was killed by {_signal_name(-code) or f'signal {-code}'}"
    meaning = _EXIT_CODES.get(code) or (code > 128 and _signal_name(code - 128))
    return f"failed with exit code {code} ({meaning})" if meaning else f"failed with exit code {code}"


_EXIT_CODES = {126: "something that it names cannot be executed", 127: "something that it names was not found"}


def _signal_name(number: int) -> str:
    """Return the name of a signal, empty if there is none of that number."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return ""


def complete_output(output: Output, most: int = MAX_ANSWER_BYTES) -> bytes:
    """Return the data of an output; raise `ProviderError` if it is not complete."""
    if not output.is_complete:
        raise ProviderError(f"the command answered with more than {most >> 20} MiB")
    return output.data


def read_output_file(path: str, finished: ProcessResult) -> bytes:
    """Return what a command wrote to its output file; raise `ProviderError` if there is none or it is too long."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # a pipe must not hold us up
    except FileNotFoundError:
        raise ProviderError(f"the command succeeded but wrote no {{OUTPUT_FILE}}{output_tail(finished)}") from None
    except OSError as error:
        raise ProviderError(f"what the command wrote to {{OUTPUT_FILE}} cannot be read: {error.strerror}") from error
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise ProviderError("the command made something of {OUTPUT_FILE} that is no file")
        if status.st_size > MAX_ANSWER_BYTES:
            raise ProviderError(f"the command wrote more than {MAX_ANSWER_BYTES >> 20} MiB to {{OUTPUT_FILE}}")
        return os.read(descriptor, status.st_size)
    finally:
        os.close(descriptor)


def shorten(text: str, most: int) -> str:
    """Return a text, or its beginning and an ellipsis if it is too long."""
    return text if len(text) <= most else f"{text[:most]}…"
