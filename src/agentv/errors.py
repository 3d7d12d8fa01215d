"""All exceptions that are shown to users, and helpers for their messages."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:  # `agentv --help` loads this module: keep its imports cheap
    from collections.abc import Iterable, Sequence
    from pathlib import Path
    from typing import Self

    from agentv.records import Problem, ProviderResponse

INTERNAL_ERROR = 70
"""The exit code after an unexpected error in agentv itself, as in sysexits.h."""


class AgentvError(Exception):
    """A problem that the user can fix. The command line prints it without a traceback."""

    def __init__(
        self,
        message: str,
        *,
        file: Path | None = None,
        line: int | None = None,
        column: int | None = None,
        hint: str = "",
    ):
        super().__init__(message)
        self.message = message
        self.file = file
        self.line = line
        self.column = column
        self.hint = hint
        if hint:
            self.add_note(f"hint: {hint}")

    def __str__(self) -> str:
        return placed(self.message, self.file, self.line, self.column)

    @classmethod
    def of(cls, problem: Problem) -> Self:
        """Return the exception for a problem that cannot be ignored."""
        return cls(
            problem.message,
            file=problem.file,
            line=problem.line,
            column=problem.column,
            hint=problem.hint,
        )


class EvalFileError(AgentvError):
    """An eval file or its sidecar is invalid."""


class ConfigError(AgentvError):
    """A targets file, a config file or a setting is invalid."""


class SettingError(ConfigError):
    """A setting is invalid. `steps` is its path inside the settings that are being opened."""

    def __init__(self, message: str, *steps: str | int, hint: str = ""):
        super().__init__(message, hint=hint)
        self.steps = steps


class MissingProgram(SettingError):
    """A program is not installed on this machine. It may be on the machine where it will run."""


class ProviderError(AgentvError):
    """A target gave no answer. Only the case at hand fails.

    Attributes:
        may_pass: Whether a retry may succeed.
        status: The HTTP status code, if the target is an HTTP server.
        retry_after: How many seconds the server asks to wait before a retry.
        details: The traceback of the user's own code.
        partial: The part of the response that was received before the failure.
    """

    def __init__(  # noqa: PLR0913  # all that may be known of a failure
        self,
        message: str,
        *,
        may_pass: bool = False,
        hint: str = "",
        status: int | None = None,
        retry_after: float | None = None,
        details: str | None = None,
        partial: ProviderResponse | None = None,
    ):
        super().__init__(message, hint=hint)
        self.may_pass = may_pass
        self.status = status
        self.retry_after = retry_after
        self.details = details
        self.partial = partial


class MachineError(ProviderError):
    """The machine has no descriptor, process, thread or temporary space left. Neither the target nor a judge failed."""


class InternalError(AgentvError):
    """An unexpected exception, which is a bug in agentv. It is the cause of this error."""

    def __init__(self, error: BaseException):
        super().__init__(
            f"internal error: {type(error).__name__}: {error}",
            hint="this is a bug in agentv; --verbose prints the traceback",
        )
        self.__cause__ = error


class OutputError(AgentvError):
    """An output of a command cannot be written."""


class SeveralProblems(AgentvError):
    """One or more problems, listed in `problems`. The message includes all of them."""

    def __init__(self, problems: Sequence[Problem]):
        first = problems[0]
        super().__init__(
            first.message,
            file=first.file,
            line=first.line,
            column=first.column,
            hint=first.hint,
        )
        self.problems = problems

    def __str__(self) -> str:
        lines = [placed(problem.message, problem.file, problem.line, problem.column) for problem in self.problems]
        if len(lines) == 1:
            return lines[0]
        return "\n".join([f"{len(lines)} problems:", *lines])


class ResultsError(SeveralProblems):
    """Results files are invalid or do not belong together."""


class PlanFailed(SeveralProblems):
    """A run cannot start."""


class NothingToRun(AgentvError):
    """A run has no cases to run. This is not a failure."""


class AttachmentError(AgentvError):
    """A file that a case refers to cannot be read. Only that case fails."""


def placed(message: str, file: Path | None, line: int | None, column: int | None = None) -> str:
    """Return the message prefixed with its location, in the form `evals/a.yaml:5:3: message`."""
    if file is None:
        if line:
            return f"Line {line}: {message}"
        return message
    if not line:
        return f"{file}: {message}"
    if column:
        return f"{file}:{line}:{column}: {message}"
    return f"{file}:{line}: {message}"


def nearest(word: str, known: Iterable[str], plural_noun: str = "") -> str:
    """Return a hint that suggests the known word closest to `word`, or lists all of them.

    `plural_noun` says what they are: "available targets: a, b".
    """
    names = sorted(known)
    close = closest(word, names)
    if close:
        return f"did you mean {close!r}?"
    available = f"available {plural_noun}".rstrip()
    return f"{available}: {', '.join(names)}"


def closest(word: str, known: Iterable[str], cutoff: float = 0.7) -> str | None:
    """Return the known word that `word` is probably a typo of, or None.

    `cutoff` is the minimum similarity, from 0 to 1 (identical).
    """
    from difflib import get_close_matches

    matches = get_close_matches(word, list(known), n=1, cutoff=cutoff)
    if not matches:
        return None
    return matches[0]
