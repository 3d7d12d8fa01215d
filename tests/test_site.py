"""The documentation site: `make docs` builds it offline, with every page."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest
import yaml

from tests.kits.docs import ROOT

NO_NETWORK = """
import socket, sys

def refuse(*_):
    raise OSError("a build of the site must not use the network")

socket.socket.connect = refuse
from mkdocs.__main__ import cli
cli(sys.argv[1:])
"""


def build(root: Path, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Build the site of a checkout in a folder, as `make docs` does."""
    command = re.search(r"/mkdocs (build.*)", (ROOT / "Makefile").read_text())
    assert command is not None
    return subprocess.run(
        [sys.executable, "-c", NO_NETWORK, *command[1].split(), "--site-dir", str(folder)],
        cwd=root,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1", **environment},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built in a separate folder."""
    pytest.importorskip("material", reason="the extra 'docs' is not installed")
    folder = tmp_path_factory.mktemp("site")
    ran = build(ROOT, folder)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return folder


@pytest.mark.slow
def test_a_link_to_a_missing_heading_fails_the_build(tmp_path: Path) -> None:
    pytest.importorskip("material", reason="the extra 'docs' is not installed")
    for name in ("docs", "examples", "scripts"):
        shutil.copytree(ROOT / name, tmp_path / name)
    for file in [ROOT / "mkdocs.yml", *ROOT.glob("*.md")]:
        shutil.copy(file, tmp_path)
    with (tmp_path / "docs" / "setup.md").open("a") as page:
        page.write("\n[Nowhere](ci.md#no-such-heading)\n")

    ran = build(tmp_path, tmp_path / "site")

    assert ran.returncode == 1
    assert "does not contain an anchor '#no-such-heading'" in ran.stderr


@pytest.mark.slow
def test_every_page_of_the_docs_is_in_the_site(site: Path) -> None:
    for page in (ROOT / "docs").rglob("*.md"):
        assert (site / page.relative_to(ROOT / "docs").with_suffix(".html")).is_file(), page.name
    assert "A first eval" in (site / "about.html").read_text()
    assert "Add an evaluator" in (site / "CONTRIBUTING.html").read_text()
    assert (site / "search" / "search_index.json").stat().st_size > 100_000


@pytest.mark.slow
def test_links_of_the_site_are_valid(site: Path) -> None:
    """MkDocs does not check HTML, nor the links that a hook changes to plain text."""
    checked = 0
    for page in site.rglob("*.html"):
        for link in re.findall(r'(?:href|src)="([^"]+)"', page.read_text()):
            url = urlsplit(link)
            # the page of an unknown address is shown at any depth, so its links are absolute
            if url.scheme or not url.path or page.name == "404.html":
                continue
            checked += 1
            assert (page.parent / unquote(url.path)).exists(), f"{page.name} links to {link}"
    assert checked > 1000


@pytest.mark.slow
def test_the_page_of_an_unknown_address_works_below_the_address_of_the_site(tmp_path: Path) -> None:
    pytest.importorskip("material", reason="the extra 'docs' is not installed")
    ran = build(ROOT, tmp_path, SITE_URL="https://someone.github.io/agentv/")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    links = re.findall(r'(?:href|src)="(/[^"]*)"', (tmp_path / "404.html").read_text())
    assert links
    for link in links:
        assert link.startswith("/agentv/"), link


@pytest.mark.slow
def test_pages_load_nothing_from_other_hosts(site: Path) -> None:
    loads = re.compile(r"<(?:script|link|img|iframe)\b[^>]*(?:src|href)=\"?(https?:)?//")
    for page in site.rglob("*.html"):
        assert loads.search(page.read_text()) is None, page.name


def test_every_page_is_in_the_navigation_once() -> None:
    class Loader(yaml.SafeLoader):
        """Reads the tags of mkdocs.yml as nothing."""

    Loader.add_multi_constructor("tag:yaml.org,2002:python/", lambda *_: None)
    Loader.add_constructor("!ENV", lambda *_: None)
    settings = yaml.load((ROOT / "mkdocs.yml").read_text(), Loader)
    named = pages_in(settings["nav"])
    pages = {page.relative_to(ROOT / "docs").as_posix() for page in (ROOT / "docs").rglob("*.md")}
    assert sorted(pages - set(named)) == [], "add it to nav in mkdocs.yml"
    assert len(named) == len(set(named))


def pages_in(nav: Any) -> list[str]:
    """Return the pages in a part of the navigation: a page, a section with a title, or a list of these."""
    if isinstance(nav, str):
        return [nav]
    parts = nav.values() if isinstance(nav, dict) else nav
    named: list[str] = []
    for part in parts:
        named.extend(pages_in(part))
    return named
