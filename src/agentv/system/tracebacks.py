"""An exception in the user's own code -> its last line there, and the traceback without agentv's part of it."""

import os
import site
import sysconfig
import traceback
from pathlib import Path
from typing import NamedTuple

from agentv.system.threads import describe_error

MAX_CHARACTERS = 20_000
"""How long a traceback may be; the middle of a longer one is left out."""
_OURS = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_LIBRARY = tuple(
    {
        *(os.path.abspath(path) + os.sep for name, path in sysconfig.get_paths().items() if name.endswith("lib")),
        *(os.path.abspath(path) + os.sep for path in site.getsitepackages()),
    }
)


class ExplainedError(NamedTuple):
    """What the user's code raised."""

    message: str
    """`agent.py:12 in answer: KeyError: 'x'`, or the exception alone if no line of the user's code is known."""
    details: str | None = None
    """The traceback of the user's code; None if there is none."""


def explain_error(error: BaseException) -> ExplainedError:
    """Return where in the user's code an exception was raised, as one line and as a traceback.

    Paths are relative to the current folder where that is shorter.
    """
    if (
        isinstance(error, RuntimeError)
        and error.__cause__ is not None
        and str(error) == describe_error(error.__cause__)
    ):
        error = error.__cause__  # one that had to be wrapped, such as SystemExit
    try:
        told = traceback.TracebackException.from_exception(error)
        frames = _keep_users_frames(told)
        message = _plain(describe_error(error))
        if not frames:
            return ExplainedError(message)
        own = [frame for frame in frames if not _is_library(frame)]
        last = own[-1] if own else frames[-1]
        place = f"{_short_path(last.filename)}:{last.lineno} in {last.name}"
        return ExplainedError(f"{place}: {message}", _cut(_plain("".join(told.format()))))
    except Exception:  # an exception that cannot even be shown
        return ExplainedError(_plain(describe_error(error)))


def _keep_users_frames(told: traceback.TracebackException) -> list[traceback.FrameSummary]:
    """Take agentv's frames out of an exception and of those that led to it; return what is left, with full paths."""
    frames = [frame for frame in told.stack if not os.path.abspath(frame.filename).startswith(_OURS)]
    while frames and _is_asyncio(frames[0]):
        del frames[0]
    told.stack = traceback.StackSummary.from_list(
        [
            traceback.FrameSummary(_short_path(frame.filename), frame.lineno, frame.name, line=frame.line)
            for frame in frames
        ]
    )
    for other in (told.__cause__, told.__context__, *(getattr(told, "exceptions", None) or ())):
        if other is not None:
            _keep_users_frames(other)
    return frames


def _is_library(frame: traceback.FrameSummary) -> bool:
    return os.path.abspath(frame.filename).startswith(_LIBRARY) or frame.filename.startswith("<")


def _is_asyncio(frame: traceback.FrameSummary) -> bool:
    folder = Path(frame.filename).parent.name
    return _is_library(frame) and (folder in ("asyncio", "concurrent", "futures") or "threading" in frame.filename)


def _short_path(path: str) -> str:
    """Return the path from the current folder, if that is shorter."""
    try:
        relative = os.path.relpath(path)
    except (OSError, ValueError):  # the current folder may be gone
        return path
    return relative if len(relative) < len(path) and not path.startswith("<") else path


def _plain(text: str) -> str:
    """Return the text with `?` for lone surrogates, which UTF-8 cannot encode."""
    return text.encode("utf-8", "replace").decode()


def _cut(text: str) -> str:
    text = text.rstrip("\n")
    if len(text) <= MAX_CHARACTERS:
        return text
    half = MAX_CHARACTERS // 2
    return f"{text[:half]}\n… {len(text) - 2 * half} characters left out …\n{text[-half:]}"
