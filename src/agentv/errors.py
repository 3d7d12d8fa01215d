"""Every exception that a user may see, and the words they share."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:  # this module is loaded by `agentv --help`, which should not pay for these
    from collections.abc import Iterable, Sequence
    from pathlib import Path
    from typing import Self

    from agentv.records import Problem, ProviderResponse


class AgentvError(Exception):
    """A problem that the user can mend: shown as text, without a traceback."""

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
        self.message, self.file, self.line, self.column, self.hint = message, file, line, column, hint
        if hint:
            self.add_note(f"hint: {hint}")

    def __str__(self) -> str:
        return placed(self.message, self.file, self.line)

    @classmethod
    def of(cls, problem: Problem) -> Self:
        """The exception that a problem becomes when nobody can go on with it."""
        place = problem.line, problem.column
        return cls(problem.message, file=problem.file, line=place[0], column=place[1], hint=problem.hint)


class EvalFileError(AgentvError):
    """An eval file, or the sidecar beside it, cannot be used as it stands."""


class ConfigError(AgentvError):
    """A targets file, a config file or a setting cannot be used as it stands."""


class SettingError(ConfigError):
    """A setting cannot be used; `steps` lead to it from the settings that are being opened."""

    def __init__(self, message: str, *steps: str | int, hint: str = ""):
        super().__init__(message, hint=hint)
        self.steps = steps


class ProviderError(AgentvError):
    """A target gave no answer: an error of that case alone. `may_pass` says that a second try may help.

    `status` is what an HTTP server answered with, `retry_after` how many seconds it wants to be left alone, `details`
    the traceback of the user's own code, `partial` what the target had said, done and cost by then.
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
        self.may_pass, self.status, self.retry_after, self.details = may_pass, status, retry_after, details
        self.partial = partial


class OutputError(AgentvError):
    """What a run produces cannot be written."""


class SeveralProblems(AgentvError):
    """Several things are wrong: `problems` is all of them, and the text names each."""

    def __init__(self, problems: Sequence[Problem]):
        first = problems[0]
        super().__init__(first.message, file=first.file, line=first.line, column=first.column, hint=first.hint)
        self.problems = problems

    def __str__(self) -> str:
        lines = [placed(problem.message, problem.file, problem.line) for problem in self.problems]
        return lines[0] if len(lines) == 1 else "\n".join([f"{len(lines)} problems:", *lines])


class ResultsError(SeveralProblems):
    """Results files cannot be compared as they stand."""


class PlanFailed(SeveralProblems):
    """A run cannot start."""


class NothingToRun(AgentvError):
    """A run has no case to run, which is fine."""


class AttachmentError(AgentvError):
    """A file that a case refers to cannot be read: an error of that case alone."""


def placed(message: str, file: Path | None, line: int | None) -> str:
    """The message with its place in front: `evals/a.jsonl: Line 5: message`."""
    place = [str(file)] if file else []
    if line:
        place.append(f"Line {line}")
    return ": ".join([*place, message])


def nearest(word: str, known: Iterable[str]) -> str:
    """A hint that names the known word most like `word`, or lists them all."""
    names = sorted(known)
    close = closest(word, names)
    return f"did you mean {close!r}?" if close else f"known are {', '.join(names)}"


def closest(word: str, known: Iterable[str], cutoff: float = 0.7) -> str | None:
    """The known word that `word` is probably a slip of; `cutoff` is how alike they must be, 1 being the same."""
    from difflib import get_close_matches

    return next(iter(get_close_matches(word, list(known), n=1, cutoff=cutoff)), None)
