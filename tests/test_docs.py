"""Every example in the docs runs."""

import contextlib
import io
import re
import tomllib
from pathlib import Path

import msgspec
import pytest
import yaml

from agentv import load_eval_cases
from agentv.project.validate import check_file
from tests.kits.docs import ROOT, blocks, check_workflow, run_console
from tests.kits.media import PNG
from tests.kits.project import Write

PIPELINES = (".github/", ".gitlab-ci.yml", ".circleci/", "job.yaml")
"""Files in the docs that are other programs': of these, the commands are checked."""
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_the_examples_of_a_page(
    page: Path, write: Write, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    """YAML with a path in its first line is written there; commands must print what stands below them."""
    for name in ("OPENAI_API_KEY", "AZURE_OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY", "AGENT_TOKEN"):
        monkeypatch.setenv(name, "a key of mine")
    write("evals/loop.py", "for i in range(10): pass")
    write("evals/charts/sales.png", "").write_bytes(PNG)
    if page.name == "extending.md":
        monkeypatch.syspath_prepend(request.getfixturevalue("extension"))
        write("answers.json", "{}")
    if page.name == "python-api.md":
        check = "evaluators: [{type: contains, value: hello}]"
        write("evals/weather.yaml", f"evalcases:\n- {{id: a, outcome: b, input: c, {check}}}\n")
    for number, block in enumerate(blocks(page)):
        match block.language:
            case "yaml" | "sh":
                check_yaml(block.text, number, write)
            case "jsonl":
                assert len(list(load_eval_cases(write(f"{number}.jsonl", block.text)))) == 1
            case "json":
                assert msgspec.json.decode(block.text)
            case "toml":
                assert tomllib.loads(block.text)
                write(block.text.split()[1], block.text)
            case "console":
                run_console(block.text)
            case "python" if named := re.match(r"# (\S+\.py)\n", block.text):
                write(named[1], block.text)
            case "python":
                with contextlib.redirect_stdout(io.StringIO()) as printed:
                    exec(compile(block.text, f"{page.name}, block {number}", "exec"), {})
                assert printed.getvalue()
            case other:
                raise AssertionError(f"{page.name} has a block of {other!r}, which nobody runs")


def check_yaml(text: str, number: int, write: Write) -> None:
    named = re.match(r"# (\S+\.ya?ml)(, beside (\S+\.jsonl))?", text)
    if text.startswith(("#!/bin/sh\n", "agentv ")) or (named and named[1].startswith(PIPELINES)):
        assert yaml.safe_load(text) if named else True
        check_workflow(text)
        return
    if named and named[3]:
        write(named[3], [{"id": "a", "outcome": "b", "input": "c"}])
    path = write(named[1] if named else f"evals/block{number}.yaml", text)
    problems = [problem.message for problem in check_file(path).problems]
    assert bool(problems) == path.name.startswith("bad")


def test_links_between_pages_are_valid() -> None:
    for page in [*PAGES, ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *(ROOT / "examples").rglob("*.md")]:
        for link, anchor in re.findall(r"\]\((?!https?:)([^)#]*)#?([^)]*)\)", page.read_text()):
            linked = page.parent / link if link else page
            assert linked.exists(), f"{page.name} links to {link}"
            assert not anchor or anchor in anchors(linked), f"{page.name} links to {link}#{anchor}"


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub generates them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_the_example_of_several_problems_shows_its_output(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    (text,) = (block.text for block in blocks(ROOT / "docs" / "python-api.md") if "2 problems" in block.text)
    exec(compile(text, "python-api.md", "exec"), {})
    assert capsys.readouterr().out == "".join(re.findall(r"^ *# (.*\n)", text, re.MULTILINE))
