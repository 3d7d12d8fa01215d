"""Starts the viewer and opens a browser."""

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
from agentv.processes.loopback_server import HOST
from agentv.trust.review import ReviewDefaults
from agentv.view.check import OnProblems, checked
from agentv.view.files import Catalog, ResultsFile
from agentv.view.review import ReviewStore
from agentv.view.routes import Site
from agentv.view.server import ViewerServer

_DISPLAYS = ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")


@contextmanager
def serving(
    named: Sequence[Path],
    port: int = 0,
    reviews: ReviewStore | None = None,
    *,
    opens_review: bool = False,
    on_problems: OnProblems = lambda _: None,
) -> Iterator[str]:
    """Serve the results in these files and folders during this block; the value is the address with the token.

    Raise `AgentvError` if there are no results, if the port is taken or, with `opens_review`, if there is nothing to
    label. Raise `ResultsError` if a given file has an invalid line. The problems of a large file are passed to
    `on_problems` later, from another thread.
    """
    catalog = Catalog(named)
    reviews = reviews or ReviewStore(ReviewDefaults())
    files: list[ResultsFile] = []
    if opens_review:
        # Reads the files to their end, which reports invalid lines as well.
        reviews.check(catalog.reviewed)
    else:
        files = catalog.named_files
    with closing(Site(catalog, reviews)) as site, checked(files, site.is_running, on_problems):
        server = ViewerServer(port, site.answer)
        server.start("agentv-view")
        path = _first_page(catalog, opens_review=opens_review)
        try:
            yield f"http://{HOST}:{server.server_port}/{path}#token={server.guard.token}"
        finally:
            server.disconnect()


def _first_page(catalog: Catalog, *, opens_review: bool) -> str:
    """Return the path of the page to open: the review, the only run, or the list of runs."""
    if opens_review:
        return "review"
    only = catalog.only
    if only is not None:
        return f"run/{only.id}"
    return ""


@contextmanager
def opened_browser(address: str, open_address: Callable[[str], bool] | None = None) -> Iterator[bool]:
    """Open a browser at the address; the value is whether that was possible.

    The command lines of all processes are visible to other users of the machine, and the address contains the token.
    So the browser opens a file that only this user can read, and that redirects to the address. The file is removed
    when the block ends.
    """
    if open_address is None and not _has_display():
        yield False
        return
    # `mkstemp` creates the file with mode 0600.
    descriptor, name = tempfile.mkstemp(prefix="agentv-view-", suffix=".html")
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
    # A browser that cannot be started must not stop the viewer.
    with contextlib.suppress(Exception):
        return open_address(address)
    return False


def _has_display() -> bool:
    """Return whether there is a display. Without one, a text browser would take over the terminal."""
    if sys.platform in ("darwin", "win32"):
        return True
    return any(os.environ.get(name) for name in _DISPLAYS)


def _open_with_system(address: str) -> bool:
    import webbrowser

    return webbrowser.open(address)


def end_with_stdin(end: Callable[[], None]) -> None:
    """Call `end` when stdin is closed, by the parent process or because that process has ended."""

    def watch() -> None:
        with contextlib.suppress(OSError, ValueError):
            while os.read(0, 4096):
                pass
        end()

    thread = threading.Thread(
        target=watch,
        name="agentv-view-parent",
        daemon=True,
    )
    thread.start()
