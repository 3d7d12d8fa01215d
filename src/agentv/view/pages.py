"""The pages of the viewer and the files that they are made of: all of them known by name, none found by a path."""

import html
from functools import cache
from importlib.resources import files
from typing import Final

from agentv.report.page.document import MODULES, asset
from agentv.view.server import Answer

OWN: Final = (
    *("ask.js", "live.js", "review.js", "rows.js", "runs.js", "sums.js", "trend.js", "view.js"),
    *("view.css", "icon.svg"),
)
SHARED: Final = (*(name for name in MODULES if name != "report.js"), "page.css")
TYPES: Final = {
    "js": "text/javascript; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "svg": "image/svg+xml; charset=utf-8",
}


def asset_names() -> tuple[str, ...]:
    """Return the names of all files that pages are made of."""
    return (*OWN, *SHARED)


@cache
def asset_answer(name: str) -> Answer:
    """Return one of these files."""
    text = files("agentv.view").joinpath("assets", name).read_text("utf-8") if name in OWN else asset(name)
    return Answer(text.encode(), TYPES[name.rpartition(".")[2]])


def page(kind: str, title: str, script: str = "view.js") -> Answer:
    """Return the page for a kind of address; its script reads the address and fetches the rest."""
    text = f"""<!doctype html>
<html lang="en" data-page="{kind}">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{html.escape(title)}</title>
<link rel="icon" href="/assets/icon.svg">
<link rel="stylesheet" href="/assets/page.css">
<link rel="stylesheet" href="/assets/view.css">
<script type="module" src="/assets/{script}"></script>
</head>
<body>
<nav class="crumbs" aria-label="viewer"><a href="/">All runs</a></nav>
<div id="app"><main class="summary"><h1>{html.escape(title)}</h1></main></div>
<noscript><p>This page needs JavaScript.</p></noscript>
</body>
</html>
"""
    return Answer(text.encode("utf-8", "replace"), "text/html; charset=utf-8")
