"""Adds files outside of docs/ to the site that MkDocs builds, so that every link between pages works there too.

The pages are written for GitHub, where links such as `../CONTRIBUTING.md` lead to any file of the repository. On the
site, docs/ is the top folder. `mkdocs.yml` names this file as a hook: MkDocs calls the functions that start with `on_`.
"""

import os
import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parent.parent
PAGES = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md")
"""Pages outside of docs/."""
LINK = re.compile(r"\[([^\]\[]*)\]\((?![a-z]+:|#)([^)#\s]+)(#[^)\s]*)?\)")
TABLE_ROW = re.compile(r"^\|.*\|$", re.MULTILINE)
CODE = re.compile(r"`[^`]*`")
FENCE_IN_LIST = re.compile(r"^ {3}```.*?^ {3}```$", re.MULTILINE | re.DOTALL)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages and examples outside of docs/."""
    for path in _added_files():
        uri = _site_uri(path.relative_to(ROOT).as_posix())
        # The page of all examples links to those of each. By default, MkDocs wants every page in the navigation, and
        # excludes names that start with a dot, such as the workflow of an example.
        file = File.generated(config, uri, abs_src_path=str(path), inclusion=InclusionLevel.NOT_IN_NAV)
        files.append(file)
    return files


def _added_files() -> list[Path]:
    """Return the pages outside of docs/, those of the examples, and the files that the examples' pages link to."""
    examples = sorted((ROOT / "examples").glob("**/README.md"))
    linked: set[Path] = set()
    for page in examples:
        for _, link, _ in LINK.findall(page.read_text("utf-8")):
            target = Path(os.path.normpath(page.parent / link))
            if target.is_file() and target.is_relative_to(ROOT / "examples"):
                linked.add(target)
    linked.difference_update(examples)
    pages = [ROOT / name for name in PAGES]
    return [*pages, *examples, *sorted(linked)]


def on_page_markdown(markdown: str, page: Page, **_: object) -> str:
    """Return the text of a page with links that work on the site, and with code blocks that Python-Markdown reads."""
    source = page.file.abs_src_path
    assert source is not None
    folder = Path(source).parent

    def rewrite(link: re.Match[str]) -> str:
        text = link[1]
        target = Path(os.path.normpath(folder / link[2]))
        if target.is_dir():
            return text  # GitHub lists folders, the site does not
        if not target.exists() or not target.is_relative_to(ROOT):
            return link[0]  # MkDocs warns about it
        uri = _site_uri(target.relative_to(ROOT).as_posix())
        here = posixpath.dirname(page.file.src_uri)
        return f"[{text}]({posixpath.relpath(uri, here or '.')}{link[3] or ''})"

    return FENCE_IN_LIST.sub(_indent, TABLE_ROW.sub(_without_escapes, LINK.sub(rewrite, markdown)))


def _site_uri(path: str) -> str:
    """Return the path on the site of a path in the repository."""
    if path == "README.md":
        return "about.md"  # MkDocs gives README.md the address of docs/index.md
    return path.removeprefix("docs/")


def _without_escapes(row: re.Match[str]) -> str:
    """Return a row of a table without the backslashes before bars in code: only GitHub needs them."""
    return CODE.sub(lambda code: code[0].replace("\\|", "|"), row[0])


def _indent(block: re.Match[str]) -> str:
    """Return a code block of a numbered list with four spaces before it: GitHub is content with three."""
    return re.sub(r"^(?=.)", " ", block[0], flags=re.MULTILINE)
