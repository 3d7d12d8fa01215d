"""Build the HTML of a page around its blocks of data.

The page runs one script, which its Content-Security-Policy allows by hash, and loads nothing else.
"""

import base64
import hashlib
import html
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from agentv import __version__
from agentv.report.page.blocks import encode_block
from agentv.report.page.bundle import script, style
from agentv.report.page.index import Column
from agentv.report.page.meta import PageMeta


def policy() -> str:
    """Return the Content-Security-Policy of the page: it may run its script, use its style, and nothing else."""
    return (
        f"default-src 'none'; script-src '{_source_hash(script())}'; style-src '{_source_hash(style())}'; "
        "base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
    )


def _source_hash(text: str) -> str:
    """Return the hash of a script or a style as a Content-Security-Policy source."""
    digest = hashlib.sha256(text.encode()).digest()
    return f"sha256-{base64.b64encode(digest).decode()}"


def document_start(title: str, meta: PageMeta, columns: Iterable[Column]) -> Iterator[bytes]:
    """Yield the page up to its blocks. A browser shows this part while it still reads the blocks."""
    headline = html.escape(meta.headline)
    yield f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{html.escape(policy())}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="referrer" content="no-referrer">
<meta name="generator" content="agentv {__version__}">
<title>{html.escape(title)}</title>
<style>{style()}</style>
</head>
<body>
<div id="app"><main class="summary"><h1>{headline}</h1></main></div>
<noscript><p>This page needs JavaScript to show its cases. It loads no external resources.</p></noscript>
""".encode("utf-8", "replace")
    yield b'<script type="application/json" id="meta">' + script_json(meta) + b"</script>\n"
    for name, data in columns:
        yield encode_block(name, data)
    yield f'<script type="module" async>{script()}</script>\n'.encode()


DOCUMENT_END = b'<script type="application/octet-stream" id="end"></script>\n</body>\n</html>\n'


def script_json(value: Any) -> bytes:
    """Return the value as JSON for a script element. `<` is escaped, so that no text can close the element."""
    return msgspec.json.encode(value).replace(b"<", b"\\u003c")
