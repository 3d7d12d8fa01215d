"""The site of the docs: `make docs` builds it without a network, and every page is in it."""

import os
import re
import subprocess
import sys
from pathlib import Path
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
cli(["build", "--quiet", "--site-dir", sys.argv[1]])
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built in a folder of its own."""
    pytest.importorskip("material", reason="the extra 'docs' is not installed")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-c", NO_NETWORK, str(folder)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    ran = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return folder


@pytest.mark.slow
def test_every_page_of_the_docs_is_in_the_site(site: Path) -> None:
    for page in (ROOT / "docs").rglob("*.md"):
        assert (site / page.relative_to(ROOT / "docs").with_suffix(".html")).is_file(), page.name
    assert "A first eval" in (site / "index.html").read_text()
    assert "Add an evaluator" in (site / "CONTRIBUTING.html").read_text()
    assert (site / "search" / "search_index.json").stat().st_size > 100_000


@pytest.mark.slow
def test_links_of_the_site_lead_to_its_pages(site: Path) -> None:
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
def test_pages_load_nothing_from_other_hosts(site: Path) -> None:
    loads = re.compile(r"<(?:script|link|img|iframe)\b[^>]*(?:src|href)=\"?(https?:)?//")
    for page in site.rglob("*.html"):
        assert loads.search(page.read_text()) is None, page.name


def test_every_page_is_in_one_place_of_the_navigation() -> None:
    class Loader(yaml.SafeLoader):
        """Reads `!!python` tags of mkdocs.yml as nothing."""

    Loader.add_multi_constructor("tag:yaml.org,2002:python/", lambda *_: None)
    settings = yaml.load((ROOT / "mkdocs.yml").read_text(), Loader)
    named: list[str] = []
    for section in settings["nav"][1:]:
        ((_, entries),) = section.items()
        for entry in entries:
            named.append(entry if isinstance(entry, str) else next(iter(entry.values())))
    pages = {page.relative_to(ROOT / "docs").as_posix() for page in (ROOT / "docs").rglob("*.md")}
    assert sorted(pages - set(named)) == [], "add it to nav in mkdocs.yml"
    assert len(named) == len(set(named))
