"""Explains exceptions in the user's own code: the line that raised, and a traceback without agentv's frames."""

import os
import site
import sysconfig
import traceback
from pathlib import Path
from typing import NamedTuple

from agentv.processes.threads import describe_error
from agentv.redact import clean
from agentv.text import replace_surrogates

MAX_CHARACTERS = 20_000
"""The maximum length of a traceback. The middle of a longer one is omitted."""
_OURS = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


def _library_folders() -> tuple[str, ...]:
    """Return the folders of the standard library and of installed packages, each with a final separator."""
    folders = set(site.getsitepackages())
    for name, path in sysconfig.get_paths().items():
        if name.endswith("lib"):
            folders.add(path)
    return tuple({os.path.abspath(folder) + os.sep for folder in folders})


_LIBRARY = _library_folders()


class ExplainedError(NamedTuple):
    """An exception that the user's code raised."""

    message: str
    """For example `agent.py:12 in answer: KeyError: 'x'`; the exception alone if the line is unknown."""
    details: str | None = None
    """The traceback of the user's code; None if there is none."""


def explain_error(error: BaseException) -> ExplainedError:
    """Return where in the user's code an exception was raised, as one line and as a traceback.

    Paths are relative to the current folder where that is shorter.
    """
    error = _unwrapped(error)
    try:
        return _explain(error)
    except Exception:
        # The exception cannot even be formatted.
        return ExplainedError(replace_surrogates(describe_error(error)))


def _unwrapped(error: BaseException) -> BaseException:
    """Return the exception inside a `RuntimeError` that `run_in_thread` made of it, such as SystemExit."""
    cause = error.__cause__
    if not isinstance(error, RuntimeError) or cause is None:
        return error
    if str(error) == describe_error(cause):
        return cause
    return error


def _explain(error: BaseException) -> ExplainedError:
    formatted = traceback.TracebackException.from_exception(error)
    _mask_messages(formatted)
    frames = _keep_users_frames(formatted)
    message = replace_surrogates(describe_error(error))
    if isinstance(error, SyntaxError) and _is_in_file(error):
        # Its text contains its location, which is not that of the frame that imports the file.
        message = f"{_short_path(error.filename or '')}:{error.lineno}: {type(error).__name__}: {error.msg}"
    elif frames:
        last = _last_users_frame(frames)
        message = f"{_short_path(last.filename)}:{last.lineno} in {last.name}: {message}"
    if not frames:
        return ExplainedError(message)
    details = "".join(formatted.format())
    return ExplainedError(
        message=message,
        details=_truncate(replace_surrogates(details)),
    )


def _is_in_file(error: SyntaxError) -> bool:
    """Return whether a syntax error is in a file, not in a text that was parsed, such as an answer."""
    return bool(error.lineno) and not (error.filename or "<").startswith("<")


def _last_users_frame(frames: list[traceback.FrameSummary]) -> traceback.FrameSummary:
    """Return the last frame outside of libraries; the last one of all if there is none."""
    for frame in reversed(frames):
        if not _is_library(frame):
            return frame
    return frames[-1]


def _keep_users_frames(formatted: traceback.TracebackException) -> list[traceback.FrameSummary]:
    """Remove agentv's frames from an exception and its causes; return the other frames, with full paths."""
    frames = [frame for frame in formatted.stack if not os.path.abspath(frame.filename).startswith(_OURS)]
    while frames and _is_asyncio(frames[0]):
        del frames[0]
    formatted.stack = traceback.StackSummary.from_list([_with_short_path(frame) for frame in frames])
    for other in _others(formatted):
        _keep_users_frames(other)
    return frames


def _others(formatted: traceback.TracebackException) -> list[traceback.TracebackException]:
    """Return the causes of an exception and the members of a group."""
    group = getattr(formatted, "exceptions", None) or ()
    others = (formatted.__cause__, formatted.__context__, *group)
    return [other for other in others if other is not None]


def _mask_messages(formatted: traceback.TracebackException) -> None:
    """Mask secrets before the lines of messages are indented, as in a group: one of several lines is not recognized."""
    message = getattr(formatted, "_str", None)
    if isinstance(message, str):
        formatted._str = clean(message)  # type: ignore[attr-defined]
    notes = getattr(formatted, "__notes__", None)
    if isinstance(notes, list):
        formatted.__notes__ = [clean(note) if isinstance(note, str) else note for note in notes]
    for other in _others(formatted):
        _mask_messages(other)


def _with_short_path(frame: traceback.FrameSummary) -> traceback.FrameSummary:
    return traceback.FrameSummary(
        _short_path(frame.filename),
        frame.lineno,
        frame.name,
        line=frame.line,
    )


def _is_library(frame: traceback.FrameSummary) -> bool:
    # Frames such as `<string>` or `<frozen importlib>` have no file.
    if frame.filename.startswith("<"):
        return True
    return os.path.abspath(frame.filename).startswith(_LIBRARY)


def _is_asyncio(frame: traceback.FrameSummary) -> bool:
    if not _is_library(frame):
        return False
    folder = Path(frame.filename).parent.name
    return folder in ("asyncio", "concurrent", "futures") or "threading" in frame.filename


def _short_path(path: str) -> str:
    """Return the path relative to the current folder, if that is shorter."""
    if path.startswith("<"):
        return path
    try:
        relative = os.path.relpath(path)
    except (OSError, ValueError):
        # The current folder may have been removed.
        return path
    if len(relative) < len(path):
        return relative
    return path


def _truncate(text: str) -> str:
    """Return the text, without its middle if it is too long. Secrets are masked before they could be cut."""
    text = clean(text).rstrip("\n")
    if len(text) <= MAX_CHARACTERS:
        return text
    half = MAX_CHARACTERS // 2
    omitted = len(text) - 2 * half
    return f"{text[:half]}\n… {omitted} characters omitted …\n{text[-half:]}"
