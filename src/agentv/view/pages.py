"""The pages of the viewer and their assets. Assets are listed by name; no path is ever resolved."""

import html
from functools import cache
from importlib.resources import files
from typing import Final

from agentv.report.page.bundle import STYLES, asset, join_modules, join_styles
from agentv.view.server import HttpAnswer

SCRIPTS: Final = ("view.js", "review.js")
STYLE: Final = "view.css"
ICON: Final = "icon.svg"
VIEW_STYLES: Final = (
    "live.css",
    "runs.css",
    "trend.css",
    "review.css",
)
"""The stylesheets of the viewer itself, in the order of the cascade. They follow those of a report."""
TYPES: Final = {
    "js": "text/javascript; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "svg": "image/svg+xml; charset=utf-8",
}


def asset_names() -> tuple[str, ...]:
    """Return the names of all assets."""
    return (*SCRIPTS, STYLE, ICON)


@cache
def asset_answer(name: str) -> HttpAnswer:
    """Return the answer with an asset; the name must be one of `asset_names`."""
    text = _asset_text(name)
    _, _, suffix = name.rpartition(".")
    return HttpAnswer(text.encode(), TYPES[suffix])


def _asset_text(name: str) -> str:
    if name in SCRIPTS:
        return join_modules(name, source)
    if name == STYLE:
        return join_styles((*STYLES, *VIEW_STYLES), source)
    return source(name)


def source(name: str) -> str:
    """Return a file of the viewer or, if the viewer has none of this name, of a report."""
    own = files("agentv.view").joinpath("assets", name)
    if own.is_file():
        return own.read_text("utf-8")
    return asset(name)


@cache
def page(kind: str, title: str, script: str = "view.js") -> HttpAnswer:
    """Return a page of the viewer: an empty shell without data. Its script reads the address and fetches the data."""
    text = f"""<!doctype html>
<html lang="en" data-page="{kind}">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{html.escape(title)}</title>
<link rel="icon" href="/assets/{ICON}">
<link rel="stylesheet" href="/assets/{STYLE}">
<script type="module" src="/assets/{script}"></script>
</head>
<body>
<nav class="crumbs" aria-label="viewer"><a href="/">All runs</a></nav>
<div id="app"><main class="summary"><h1>{html.escape(title)}</h1></main></div>
<noscript><p>This page needs JavaScript.</p></noscript>
</body>
</html>
"""
    return HttpAnswer(text.encode("utf-8", "replace"), "text/html; charset=utf-8")
