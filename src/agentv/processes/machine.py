"""Limits of the machine: distinguish its failures from those of a target, and raise the limit of open files."""

import errno
import os
import resource
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from agentv.errors import MachineError

NO_ROOM = frozenset((errno.EMFILE, errno.ENFILE, errno.ENOSPC, errno.EDQUOT))
"""Errors of the operating system that are caused by a limit of the machine."""
NO_PROCESS = NO_ROOM | {errno.EAGAIN, errno.ENOMEM}
"""Errors that are caused by a limit of the machine if starting a process raises them."""
STREAMS = 3
"""Standard input, output and error of a child."""
_original_limits: list[tuple[int, int]] = []
"""The limit of open files before this process raised it, if it did."""
_reserved: list[int] = []
"""Descriptors below that limit: an empty file, and those that become copies of the streams of a child."""
_starting = threading.Lock()


def machine_error(error: BaseException) -> MachineError | None:
    """Return the error of the machine that caused another error, or None if another reason did."""
    cause: BaseException | None = error
    seen = 0
    while cause is not None and seen < 20:  # a chain may contain itself
        if isinstance(cause, MachineError):
            return cause
        if isinstance(cause, OSError) and cause.errno in NO_ROOM:
            return MachineError(_text(cause.errno))
        cause = cause.__cause__ or cause.__context__
        seen += 1
    return None


def start_error(error: OSError) -> MachineError | None:
    """Return the error of the machine if a process could not be started because of it, otherwise None."""
    if error.errno in NO_PROCESS:
        return MachineError(_text(error.errno))
    return None


def _text(number: int) -> str:
    return f"the machine has reached a limit: {os.strerror(number)}"


def raise_file_limit() -> None:
    """Raise this process's limit of open files to the maximum. Its children keep the original limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft in (hard, resource.RLIM_INFINITY):
        return
    if not _reserve_descriptors(soft):
        return
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (OSError, ValueError):
        return  # macOS may refuse the hard limit
    _original_limits.append((soft, hard))


def file_limit_of_children() -> int:
    """Return the soft limit of open files of the children of this process."""
    if _original_limits:
        soft, _ = _original_limits[0]
        return soft
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return soft


def keep_file_limit_of_children(soft: int) -> None:
    """Give children this soft limit, which the parent process had before it raised its own."""
    raised, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != raised and _reserve_descriptors(soft):
        _original_limits.append((soft, hard))


@contextmanager
def original_file_limit(descriptors: list[int]) -> Iterator[list[int]]:
    """Restore the original limit of open files while a child starts, which inherits it, and so do its own children.

    Yield the descriptors to pass on to the child: copies below that limit, because no others can be passed on.
    """
    if not _original_limits:
        yield descriptors
        return
    empty, *reserved = _reserved
    copies = reserved[: len(descriptors)]
    with _starting:
        for descriptor, copy in zip(descriptors, copies, strict=True):
            os.dup2(descriptor, copy, inheritable=False)
        raised = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, _original_limits[0])
        try:
            yield copies
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, raised)
            for copy in copies:
                os.dup2(empty, copy, inheritable=False)


def _reserve_descriptors(limit: int) -> bool:
    """Reserve descriptors below the limit; return False if there are too few."""
    try:
        for _ in range(1 + STREAMS):
            _reserved.append(os.open(os.devnull, os.O_RDONLY))
    except OSError:
        return False
    return max(_reserved) < limit
