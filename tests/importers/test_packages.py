"""An installed package can add an import format through an entry point."""

import json
import tomllib
from pathlib import Path

import pytest

from tests.kits.docs import ROOT, blocks
from tests.kits.imported import imported, refused, run_import, validates
from tests.kits.project import Write

PACKAGE = """
from agentv.extend import Answer, Becomes, EvalResult, ImportFailure, Importer, ProviderResponse, Row

class Notes(Importer):
    becomes = Becomes.CASES
    noun = "notes"

    @classmethod
    def recognizes(cls, sample):
        return sample.text.startswith("NOTES")

    def read(self, source, tally):
        for number, line in enumerate(source.read_text().splitlines()[1:], 1):
            tally.read += 1
            question, _, answer = line.partition("->")
            if not answer:
                tally.skip("there is no arrow", f"line {number + 1}")
                continue
            case = {"id": f"note-{number}", "expected_outcome": answer.strip(), "input": question.strip()}
            yield Row(case | ({"input": 5} if "five" in question else {}), f"line {number + 1}")

class Breaks(Notes):
    @classmethod
    def recognizes(cls, sample):
        raise ValueError("no idea")

    def read(self, source, tally):
        raise ValueError("no idea")

class Answers(Notes):
    becomes = Becomes.ANSWERS
    takes_id = True

    @classmethod
    def recognizes(cls, sample):
        return False

    def read(self, source, tally):
        yield Row(Answer(id=self.options.id or "a", response=ProviderResponse(text="hi", duration_ms=1.0)), "line 1")

class Plain:
    pass
"""
ENTRY_POINTS = """[agentv.importers]
notes = notes:Notes
breaks = notes:Breaks
answers = notes:Answers
plain = notes:Plain
csv = notes:Breaks
"""


@pytest.fixture
def package(write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write("site/notes.py", PACKAGE)
    write("site/notes-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: notes\nVersion: 1.0\n")
    write("site/notes-1.0.dist-info/entry_points.txt", ENTRY_POINTS)
    monkeypatch.syspath_prepend(tmp_path / "site")
    write("a.txt", "NOTES\ncapital of France? -> Paris\nnothing\nhigh five? -> yes\n")


@pytest.mark.usefixtures("package")
def test_a_format_of_a_package_is_found_by_content_and_its_rows_are_checked(write: Write) -> None:
    said = run_import("a.txt")
    assert said[-6:] == [
        "detected format: notes",
        "3 notes read, 1 case written, 2 skipped",
        "  1 skipped: there is no arrow (line 3)",
        "  1 skipped: input: expected a string or an array, got an integer (line 4)",
        "written: a-cases.jsonl",
        "next: agentv validate a-cases.jsonl",
    ]
    assert imported("a.txt", "--from", "notes")[0]["input"] == "capital of France?"
    validates("a-cases.jsonl")


@pytest.mark.usefixtures("package")
def test_answers_of_a_package_are_batch_records(write: Write) -> None:
    assert imported("a.txt", "--from", "answers", "--id", "b") == [{"id": "b", "text": "hi", "duration_ms": 1.0}]


@pytest.mark.usefixtures("package")
def test_problems_of_a_package_are_reported_with_its_name(write: Write) -> None:
    assert refused("a.txt", "--from", "breaks") == (
        "error: a.txt: the importer of 'breaks' failed: ValueError: no idea\nhint: report this to its authors"
    )
    assert "'plain' of the package 'notes' cannot be used" in refused("a.txt", "--from", "plain")
    said = run_import("a.txt")
    assert any("cannot detect whether this is format 'breaks': ValueError: no idea" in line for line in said)


@pytest.mark.usefixtures("package")
def test_a_package_cannot_override_a_built_in_format(write: Write) -> None:
    write("a.csv", "question,answer\na,b\n")
    assert imported("a.csv")[0]["input"] == "a"
    assert json.loads(Path("a-cases.jsonl").read_text())["expected_output"] == "b"


def test_without_the_package_its_format_is_unknown(write: Write) -> None:
    write("a.txt", "NOTES\n")
    assert refused("a.txt", "--from", "notes").startswith(
        "error: unknown format 'notes'\nhint: available: claude-code, codex"
    )


def test_the_example_in_the_docs(write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (code,) = [block.text for block in blocks(ROOT / "docs" / "importing.md") if block.language == "python"]
    (entry,) = [block.text for block in blocks(ROOT / "docs" / "importing.md") if block.language == "toml"]
    name, path = tomllib.loads(entry)["project"]["entry-points"]["agentv.importers"].popitem()
    write("site/my_package/notes.py", code)
    write("site/my_package-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: my-package\nVersion: 1.0\n")
    write("site/my_package-1.0.dist-info/entry_points.txt", f"[agentv.importers]\n{name} = {path}\n")
    monkeypatch.syspath_prepend(tmp_path / "site")
    write("a.txt", "NOTES\ncapital of France? -> Paris\n")
    assert imported("a.txt") == [{"id": "note-2", "expected_outcome": "Paris", "input": "capital of France?"}]
