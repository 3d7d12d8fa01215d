"""A command template and its values -> how the command ended, and what it said.

The command is a script for `/bin/sh`. Values reach it through the environment, see `shell`.
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
from agentv.processes import template as shell
from agentv.processes.child import TAIL_BYTES, Finished, Keep, Output, Stream, run_process
from agentv.redact import clean

MAX_ANSWER_BYTES = 16 * 1024 * 1024
MAX_VALUE_BYTES = 32 * os.sysconf("SC_PAGESIZE") - 256
"""What one argument of a command can hold on Linux, with some room for what a template puts around it."""
SHOWN_CHARACTERS = 2000
_IN_WORDS = {"PROMPT": "the prompt has", "GUIDELINES": "the guidelines have", "EVAL_ID": "the id has"}
OF_A_FILE = ("path", "basename")


class Command:
    """A command template, to be run with one set of values after another."""

    def __init__(self, template: str, known: Collection[str], cwd: Path, files_format: str = "{path}"):
        self.cwd = cwd
        self.names = frozenset(slot.name for slot in shell.scan(template).slots).intersection(known)
        self._template, self._files_format = template, files_format
        self._script = self._written(0)
        self._environment = dict(os.environb)

    async def run(
        self, values: Mapping[str, str], files: Sequence[Path] = (), stdout: Stream | None = None
    ) -> Finished:
        """Run the command to its end; `ProviderError` when it cannot be started with these values."""
        environment = dict(self._environment)
        for name in self.names & values.keys():
            environment[_variable(name)] = _value(name, values[name])
        script = self._script
        if "FILES" in self.names:
            script = self._written(len(files))
            for number, path in enumerate(files):
                environment[_variable(f"PATH_{number}")] = os.fsencode(path)
                environment[_variable(f"BASENAME_{number}")] = os.fsencode(path.name)
        return await run_told([b"/bin/sh", b"-c", script], environment, stdout=stdout)

    def shown(self, values: Mapping[str, str]) -> str:
        """The command as a person would type it; long values are cut."""
        return shell.script(self._template, values, lambda name, _: shlex.quote(cut(clean(values[name]), 200)))

    def _written(self, files: int) -> bytes:
        """The script for so many files."""

        def expansion(name: str, place: shell.Place) -> str:
            return " ".join(map(self._file, range(files))) if name == "FILES" else shell.expanded(name, place)

        start = f"cd -- {shlex.quote(str(self.cwd))} || exit; "
        return os.fsencode(start) + shell.script(self._template, self.names, expansion).encode()

    def _file(self, number: int) -> str:
        """The words that stand for one file."""
        return shell.script(
            self._files_format, OF_A_FILE, lambda name, place: shell.expanded(f"{name.upper()}_{number}", place)
        )


async def run_told(
    argv: list[bytes], environment: Mapping[bytes, bytes], *, stdin: int | None = None, stdout: Stream | None = None
) -> Finished:
    """Run a program to its end; `ProviderError` when it cannot be started.

    Cancelled, the error has a note of what the program had said by then.
    """
    stderr = Keep()
    try:
        return await run_process(argv, environment, stdin=stdin, stdout=stdout, stderr=stderr)
    except asyncio.CancelledError as error:
        if (text := said(Finished(0, Output(), stderr.kept()))).startswith(":"):
            error.add_note(text)  # which is of use when time was up
        raise
    except OSError as error:
        may_pass = error.errno in (errno.EAGAIN, errno.EMFILE, errno.ENFILE, errno.ENOMEM)
        raise ProviderError(f"the command cannot be started: {error.strerror}", may_pass=may_pass) from error


def _variable(name: str) -> bytes:
    return f"{shell.VARIABLES}{name}".encode()


def _value(name: str, text: str) -> bytes:
    """What goes into the environment for a placeholder, if it can."""
    value = text.encode("utf-8", "surrogateescape")
    what = _IN_WORDS.get(name, f"{{{name}}} has")
    hint = ": use {PROMPT_FILE} in command_template" if name == "PROMPT" else ""
    if b"\0" in value:
        raise ProviderError(f"{what} a NUL character, which an argument cannot hold{hint}")
    if len(value) > MAX_VALUE_BYTES:
        raise ProviderError(f"{what} {len(value)} bytes, and an argument holds at most {MAX_VALUE_BYTES}{hint}")
    return value


def expect_success(finished: Finished) -> None:
    """`ProviderError` for a command that failed: how, and the end of what it said."""
    if finished.code:
        hint = "; use {PROMPT_FILE}" if b"rgument list too long" in finished.stderr.tail else ""
        raise ProviderError(f"the command {ended(finished.code)}{said(finished)}{hint}")


def said(finished: Finished) -> str:
    """The end of what a command said on stderr, or else on stdout, to be put behind what is wrong.

    Secrets are masked before anything is cut, since half of one would not be recognised; where the tail itself may
    begin with half of one, so much is left out.
    """
    for tail in (finished.stderr.tail, finished.stdout.tail):
        masked = clean(tail.decode("utf-8", "replace"))
        if text := masked[0 if len(tail) < TAIL_BYTES else clean.longest :].strip():
            return f": {text}" if len(text) <= SHOWN_CHARACTERS else f": …{text[-SHOWN_CHARACTERS:]}"
    return ", and said nothing"


def ended(code: int) -> str:
    """How a command ended that did not succeed, in words."""
    if code < 0:
        return f"was killed by {_signal(-code) or f'signal {-code}'}"
    meaning = _EXIT_CODES.get(code) or (code > 128 and _signal(code - 128))
    return f"failed with exit code {code} ({meaning})" if meaning else f"failed with exit code {code}"


_EXIT_CODES = {126: "something that it names cannot be executed", 127: "something that it names was not found"}


def _signal(number: int) -> str:
    """The name of a signal, if there is one of that number."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return ""


def whole(output: Output, most: int = MAX_ANSWER_BYTES) -> bytes:
    """What a command wrote to stdout, if that was not too much."""
    if not output.is_whole:
        raise ProviderError(f"the command answered with more than {most >> 20} MiB")
    return output.data


def content(path: str, finished: Finished) -> bytes:
    """What a command wrote to its output file, if it did and it was not too much."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # a pipe must not hold us up
    except FileNotFoundError:
        raise ProviderError(f"the command succeeded but wrote no {{OUTPUT_FILE}}{said(finished)}") from None
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


def cut(text: str, most: int) -> str:
    """A text, or the beginning of it if it is too long."""
    return text if len(text) <= most else f"{text[:most]}…"
