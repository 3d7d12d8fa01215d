"""A title, figures and columns -> the HTML around the blocks of a page.

The page runs one script, which a Content-Security-Policy names by its hash, and fetches nothing. The modules in
`assets` are joined into that script: a page that is opened from disk cannot import files.
"""

import base64
import hashlib
import html
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from importlib.resources import files
from typing import Any

import msgspec

from agentv import __version__
from agentv.report.page.blocks import encode_block

MODULES = (
    "dom.js",
    "format.js",
    "source.js",
    "model.js",
    "query.js",
    "search.js",
    "route.js",
    "list.js",
    "plots.js",
    "diff.js",
    "texts.js",
    "trace.js",
    "patch.js",
    "case.js",
    "header.js",
    "compare.js",
    "help.js",
    "app.js",
    "report.js",
)
"""In the order in which they need each other."""
_IMPORT = re.compile(r"^import\s[^;]*;\n", re.MULTILINE)
_EXPORT = re.compile(r"^export\s+", re.MULTILINE)


def asset(name: str) -> str:
    """Return the text of a file in `assets`."""
    return files("agentv.report.page").joinpath("assets", name).read_text(encoding="utf-8")


@cache
def script() -> str:
    """Return all the modules as one."""
    parts = [f"// {name}\n{_EXPORT.sub('', _IMPORT.sub('', asset(name)))}" for name in MODULES]
    return "\n".join(parts)


def policy(style: str, code: str) -> str:
    """Return what the page may do: run its own script, use its own style, and nothing else."""
    hashes = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in (code, style)]
    return (
        f"default-src 'none'; script-src 'sha256-{hashes[0]}'; style-src 'sha256-{hashes[1]}'; "
        "base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
    )


def document_start(title: str, meta: Mapping[str, Any], columns: Iterable[tuple[str, bytes]]) -> Iterator[bytes]:
    """Yield the page up to where its blocks stand. It shows what it has while a browser still reads the blocks."""
    style, code = asset("page.css"), script()
    headline = html.escape(str(meta["headline"]))
    yield f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{html.escape(policy(style, code))}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="referrer" content="no-referrer">
<meta name="generator" content="agentv {__version__}">
<title>{html.escape(title)}</title>
<style>{style}</style>
</head>
<body>
<div id="app"><main class="summary"><h1>{headline}</h1></main></div>
<noscript><p>This page needs JavaScript to show its cases. It fetches nothing from anywhere.</p></noscript>
""".encode("utf-8", "replace")
    yield b'<script type="application/json" id="meta">' + script_json(meta) + b"</script>\n"
    for name, data in columns:
        yield encode_block(name, data)
    yield f'<script type="module" async>{code}</script>\n'.encode()


DOCUMENT_END = b'<script type="application/octet-stream" id="end"></script>\n</body>\n</html>\n'


def script_json(value: Any) -> bytes:
    """Return JSON that no text in it can end the element of."""
    return msgspec.json.encode(value).replace(b"<", b"\\u003c")
