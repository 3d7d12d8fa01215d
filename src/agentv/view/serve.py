"""Starts the viewer, tells where it is, opens a browser, and serves until somebody ends it."""

import contextlib
import html
import os
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

from agentv.processes.interrupts import cleanup
from agentv.view.check import OnProblems, checked
from agentv.view.files import Catalog
from agentv.view.review import ReviewDefaults, ReviewDesk
from agentv.view.routes import Site
from agentv.view.server import HOST, Server

_DISPLAYS = ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")


@contextmanager
def serving(
    named: Sequence[Path],
    port: int = 0,
    desk: ReviewDesk | None = None,
    *,
    opens_review: bool = False,
    on_problems: OnProblems = lambda _: None,
) -> Iterator[str]:
    """Serve the results in these files and folders inside this block; the value is the address, with its token.

    Raise `AgentvError` if there are none, or the port is taken, or, with `opens_review`, if nothing can be labelled,
    and `ResultsError` if a line of a named file is no result. Of a large file, `on_problems` is told that inside the
    block, from another thread.
    """
    catalog, desk = Catalog(named), desk or ReviewDesk(ReviewDefaults())
    if opens_review:
        desk.check(catalog.reviewed)
    files = [] if opens_review else catalog.named_files
    with closing(Site(catalog, desk)) as site, checked(files, site.is_running, on_problems):
        server = Server(port, site.answer)
        server.start()
        only = catalog.only
        place = "review" if opens_review else f"run/{only.id}" if only else ""
        try:
            yield f"http://{HOST}:{server.server_port}/{place}?token={server.guard.token}"
        finally:
            server.stop()


@contextmanager
def opened_browser(address: str, open_address: Callable[[str], bool] | None = None) -> Iterator[bool]:
    """Open a browser at the address; the value is whether there is one.

    Other users of the machine see the command lines of all processes. So the browser is given a file that only this
    user can read, which leads to the address; the file is gone when the block ends.
    """
    if open_address is None and not _has_display():
        yield False
        return
    descriptor, name = tempfile.mkstemp(prefix="agentv-view-", suffix=".html")  # mode 0600
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        target = html.escape(address)
        file.write(f'<!doctype html><meta charset="utf-8"><meta http-equiv="refresh" content="0; url={target}">\n')
        file.write(f'<title>agentv</title><p><a href="{target}">agentv</a></p>\n')
    path = Path(name)
    with cleanup(lambda: path.unlink(missing_ok=True)):
        try:
            yield _open(open_address or _open_with_system, path.as_uri())
        finally:
            path.unlink(missing_ok=True)


def _open(open_address: Callable[[str], bool], address: str) -> bool:
    with contextlib.suppress(Exception):  # no browser must end a viewer
        return open_address(address)
    return False


def _has_display() -> bool:
    """Whether a browser would have a screen; text browsers would take the terminal."""
    return sys.platform in ("darwin", "win32") or any(os.environ.get(name) for name in _DISPLAYS)


def _open_with_system(address: str) -> bool:
    import webbrowser

    return webbrowser.open(address)


def end_with_stdin(end: Callable[[], None]) -> None:
    """Call `end` when stdin is closed: the process that has started us is gone, or has had enough."""

    def watch() -> None:
        with contextlib.suppress(OSError, ValueError):
            while os.read(0, 4096):
                pass
        end()

    threading.Thread(target=watch, name="agentv-view-parent", daemon=True).start()
