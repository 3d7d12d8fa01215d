"""Rows of CSV, TSV and JSONL become eval cases."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.kits.imported import imported, refused, run_import, validates
from tests.kits.project import PRINT_PEAK_KB, Write, agentv

AGREES = "The answer agrees with the reference answer."
CAPITALS = "id,question,answer\nfrance,Capital of France?,Paris\nnorway,Capital of Norway?,Oslo\n"


def a_case(id_: str, question: str, expected: str, **fields: Any) -> dict[str, Any]:
    return {"id": id_, "expected_outcome": AGREES, "input": question, "expected_output": expected} | fields


def test_a_csv_becomes_a_valid_eval_file_and_the_import_is_summarized(write: Write) -> None:
    write("capitals.csv", CAPITALS)
    said = run_import("capitals.csv")
    assert said == [
        "detected format: csv",
        "id from 'id', question from 'question', expected from 'answer'",
        "2 rows read, 2 cases written, 0 skipped",
        "written: capitals-cases.jsonl",
        "next: agentv validate capitals-cases.jsonl",
    ]
    rows = [json.loads(line) for line in Path("capitals-cases.jsonl").read_text().splitlines()]
    assert rows == [a_case("france", "Capital of France?", "Paris"), a_case("norway", "Capital of Norway?", "Oslo")]
    validates("capitals-cases.jsonl")


def test_the_hint_for_a_csv_given_to_eval_works(write: Write) -> None:
    write("capitals.csv", CAPITALS)
    assert "hint: convert it with 'agentv import'" in agentv("eval", "capitals.csv").stderr
    assert run_import("capitals.csv")[2] == "2 rows read, 2 cases written, 0 skipped"


@pytest.mark.parametrize("mark", [",", ";", "\t", "|"])
def test_quotes_line_breaks_and_other_delimiters(write: Write, mark: str) -> None:
    cells = [
        ["ID", "Prompt", "Ideal", "Topic"],
        ["a", 'say ""hi""\r\nthen , ; | \tgo', "é", "x"],
        ["b", "two", "2", ""],
    ]
    text = "\n".join(mark.join(f'"{cell}"' for cell in row) for row in cells)
    write("a.csv", b"\xef\xbb\xbf" + text.encode())
    question = 'say "hi"\r\nthen , ; | \tgo'
    wanted = [a_case("a", question, "é", metadata={"Topic": "x"}), a_case("b", "two", "2")]
    assert imported("a.csv") == wanted
    if mark == "\t":
        write("a.tsv", text)
        assert imported("a.tsv") == wanted
        assert imported("a.csv", "--from", "tsv") == wanted


def test_other_columns_become_metadata_and_case_fields_are_recognized(write: Write) -> None:
    write("a.csv", "Query,Expected_Outcome,description,conversation_id,level,note\nWhy?,Explains.,d,c,3,\n")
    (row,) = imported("a.csv")
    assert row == {
        "id": "row-1",
        "expected_outcome": "Explains.",
        "input": "Why?",
        "description": "d",
        "conversation_id": "c",
        "metadata": {"level": "3"},
    }


def test_columns_that_the_user_names(write: Write) -> None:
    write("a.csv", "Nr,Frage,Antwort,target\n7,Warum?,Darum,gpt\n")
    wanted = a_case("7", "Warum?", "Darum", metadata={"target": "gpt"})
    assert imported("a.csv", "--map", "question=Frage", "--map", "expected=Antwort", "--map", "id=Nr") == [wanted]
    assert imported("a.csv", "--map", "input=Frage", "--map", "ideal=Antwort", "--map", "id=Nr") == [wanted]


def test_an_invalid_row_is_skipped_with_its_reason_and_location(write: Write) -> None:
    write("a.csv", 'q,question,answer\n,"two\nlines",x\n,,x\n,fine,\n\n,fine,yes\n,a,b,c\n')
    said = run_import("a.csv")
    assert said[2:6] == [
        "5 rows read, 2 cases written, 3 skipped",
        "  1 skipped: the question is missing (line 4)",
        "  1 skipped: the expected outcome is missing (line 5)",
        "  1 skipped: the row has more cells than there are columns (line 8)",
    ]
    rows = [json.loads(line) for line in Path("a-cases.jsonl").read_text().splitlines()]
    assert [(row["id"], row["input"]) for row in rows] == [("row-1", "two\nlines"), ("row-4", "fine")]


@pytest.mark.slow
def test_a_cell_of_50_mb_is_read_and_is_too_long_for_a_line_of_an_eval_file(write: Write) -> None:
    write("a.csv", "question,answer\n" + "x" * 50_000_000 + ",a\n" + "y" * 10_000_000 + ",b\n")
    said = run_import("a.csv")
    assert said[2:4] == [
        "2 rows read, 1 case written, 1 skipped",
        "  1 skipped: it is longer than 16 MiB, the maximum length of a line (line 2)",
    ]
    validates("a-cases.jsonl")


def test_rows_of_jsonl_may_contain_messages_numbers_and_objects(write: Write) -> None:
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "2+2?"}]
    write(
        "a.jsonl",
        [
            {"id": 1, "input": messages, "target": 4, "tags": ["math"]},
            {"id": "b", "input": "2+3?", "target": ["5", "five"], "extra": {"a": None}},
            {"id": None, "input": "c?", "target": "c"},
            {"id": ["no"], "input": "d?", "target": "d"},
        ],
    )
    said = run_import("a.jsonl", "--out", "b.jsonl")
    assert "  1 skipped: the id is neither a string nor a number (line 4)" in said
    one, two, three = [json.loads(line) for line in Path("b.jsonl").read_text().splitlines()]
    assert one == a_case("1", "", "4", metadata={"tags": ["math"]}) | {"input": messages}
    assert two == a_case("b", "2+3?", "5", metadata={"extra": {"a": None}})
    assert three == a_case("row-3", "c?", "c")
    validates("b.jsonl")


def test_the_eval_file_may_be_yaml(write: Write) -> None:
    write("a.csv", 'id,question,answer\nno,\'on\',12:30\n"a\nb","= x",~\n')
    rows = imported("a.csv", "--out", "a.yaml")
    assert [(row["id"], row["input"], row["expected_output"]) for row in rows] == [
        ("no", "'on'", "12:30"),
        ("a\nb", "= x", "~"),
    ]
    validates("a.yaml")


def test_a_dry_run_prints_the_first_three_rows_and_writes_nothing(write: Write) -> None:
    write("a.csv", "question,answer\n" + "".join(f"q{number},a\n" for number in range(5)))
    ran = agentv("import", "a.csv", "--dry-run")
    assert ran.returncode == 0
    assert [json.loads(line)["input"] for line in ran.stdout.splitlines()] == ["q0", "q1", "q2"]
    assert ran.stderr.splitlines()[2:] == ["5 rows read, 5 cases written, 0 skipped", "dry run: nothing was written"]
    assert [path.name for path in Path.cwd().iterdir()] == ["a.csv"]


def test_a_limit_and_stdout(write: Write) -> None:
    write("a.csv", "question,answer\n" + "".join(f"q{number},a\n" for number in range(5)))
    assert [row["input"] for row in imported("a.csv", "--limit", "2")] == ["q0", "q1"]
    ran = agentv("import", "a.csv", "--out", "-")
    assert len(ran.stdout.splitlines()) == 5
    assert ran.stderr.splitlines()[-1] == "5 rows read, 5 cases written, 0 skipped"


def test_secrets_are_masked_in_what_is_written(write: Write) -> None:
    write("a.csv", "question,answer\nis it hunter2hunter2?,yes\n")
    environment = {**os.environ, "MY_PASSWORD": "hunter2hunter2"}
    assert agentv("import", "a.csv", env=environment).returncode == 0
    assert json.loads(Path("a-cases.jsonl").read_text())["input"] == "is it ***?"


# ---- what cannot be imported ----


def test_duplicate_ids_are_reported_with_both_locations_and_nothing_is_written(write: Write) -> None:
    write("a.csv", "id,question,answer\na,1,1\nb,2,2\na,3,3\n")
    assert refused("a.csv") == (
        "error: a.csv: duplicate id 'a': line 2 and line 4\n"
        "hint: give each row a unique id, take the ids from another column with --map id=COLUMN, "
        "or generate them with --map id="
    )
    assert [row["id"] for row in imported("a.csv", "--map", "id=")] == ["row-1", "row-2", "row-3"]


def test_missing_columns_are_reported_with_the_existing_ones(write: Write) -> None:
    write("a.csv", "id,text,answer\na,1,1\n")
    assert refused("a.csv") == (
        "error: a.csv: no column for the question; the columns are 'id', 'text', 'answer'\n"
        "hint: the first line must have the column names, such as question, input, prompt, query; "
        "or set the column with --map question=COLUMN"
    )
    write("a.csv", "id,question,note\na,1,1\n")
    assert refused("a.csv").startswith(
        "error: a.csv: no column for the expected outcome; the columns are 'id', 'question',"
    )
    write("a.jsonl", [{"text": "a"}, {"label": 1}])
    assert "no column for the question; the columns are 'text', 'label'" in refused("a.jsonl")


def test_a_table_without_a_header_is_explained(write: Write) -> None:
    write("a.csv", "1,What is the capital of France?,Paris\n2,And of Norway?,Oslo\n")
    assert "the columns are '1', 'What is the capital of France?', 'Paris'\nhint: the first line must have" in refused(
        "a.csv"
    )


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--map", "qestion=text"], "error: --map: unknown field 'qestion'\nhint: available fields: id, question, expected,"),
        (["--map", "question=txt"], "error: a.csv: --map: no column 'txt'; the columns are 'id', 'text', 'answer'\nhint: did you mean 'text'?"),
        (["--map", "question"], "error: invalid value for '--map': 'question' (expected FIELD=COLUMN, for example question=Prompt)"),
        (["--map", "id=text", "--map", "id=id"], "error: invalid value for '--map': duplicate field 'id'"),
        (["--from", "exel"], "error: unknown format 'exel'\nhint: available: claude-code, codex, csv,"),
        (["--from", "promptfo"], "error: unknown format 'promptfo'\nhint: did you mean 'promptfoo'?"),
        (["--id", "x"], "error: --id is for transcripts, but csv has its own ids"),
        (["--from", "codex", "--map", "id=id"], "error: --map requires a format with columns, and codex has none"),
        (["--map", "question=text", "--out", "a.txt"], "error: a.txt: eval files end in .jsonl, .yaml or .yml"),
        (["--map", "question=text", "--out", "a.csv"], "error: a.csv: --out is the same file as the source"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)  # fmt: skip
def test_options_that_do_not_apply_to_the_format(write: Write, args: list[str], message: str) -> None:
    write("a.csv", "id,text,answer\na,1,1\n")
    assert refused("a.csv", *args).startswith(message)


@pytest.mark.parametrize(
    ("name", "content", "code", "message"),
    [
        ("a.csv", "", 2, "a.csv: the file is empty"),
        ("a.csv", "question,answer\n", 1, "a.csv: nothing could be imported"),
        ("a.csv", "question,answer\n,\n,x\n", 1, "a.csv: nothing could be imported"),
        ("a.csv", "question,answer,answer\na,b,c\n", 2, "a.csv:1: duplicate columns: 'answer'"),
        ("a.csv", 'question,answer\na,b\nc,"d\n', 2, "a.csv:3: the row that starts here cannot be read: unclosed quote"),
        ("a.csv", "question,answer\nna\xefve,b\n".encode("latin-1"), 2, "a.csv:2: not UTF-8 text"),
        ("a.csv", "question,answer\na,b\n".encode("utf-16"), 2, "a.csv: the file is encoded in UTF-16"),
        ("a.csv", b"question\0\1\2", 2, "a.csv: this is a binary file, not a text file"),
        ("a.xlsx", b"PK\x03\x04xxxx", 2, "a.xlsx: this is a ZIP archive, not a text file\nhint: save it as CSV (UTF-8)"),
        ("a.eval", b"PK\x03\x04xxxx", 2, "a.eval: this is a ZIP archive, not a text file\nhint: 'inspect log dump FILE"),
        ("a.jsonl", '{"question": "a", "answer": "b"}\n{"question"\n', 2, "a.jsonl:2:12: Invalid JSON: "),
        ("b.jsonl", '{"question"\n', 2, "b.jsonl:1:12: Invalid JSON: "),
        ("a.jsonl", '{"question": "a", "answer": "b"}\n[1]\n', 2, "a.jsonl:2: expected a JSON object"),
        ("a.json", '[{"question": "a"}]', 2, "a.json: the format was not recognized\nhint: it looks like"),
        ("a.txt", "just words\nand more\n", 2, "a.txt: the format was not recognized\nhint: set the format with --from"),
        ("a.yaml", "evalcases: [{id: a, outcome: b, input: c}]\n", 2, "a.yaml: the format was not recognized"),
    ],
    ids=range(16),
)  # fmt: skip
def test_sources_that_cannot_be_imported(write: Write, name: str, content: Any, code: int, message: str) -> None:
    write(name, content)
    assert f"error: {message}" in refused(name, expect=code)


def test_a_source_that_does_not_exist_or_is_a_folder(write: Write) -> None:
    write("folder/a.txt", "")
    assert refused("a.csv").startswith("error: a.csv: no such file\nhint: check the path")
    assert refused("folder").startswith("error: folder: the folder contains no transcripts")


def test_nothing_is_overwritten_without_the_option(write: Write) -> None:
    write("a.csv", "question,answer\na,b\n")
    write("a-cases.jsonl", "mine")
    assert refused("a.csv") == (
        "error: a-cases.jsonl: the file already exists\nhint: use --overwrite to replace it, or choose another --out"
    )
    assert Path("a-cases.jsonl").read_text() == "mine"
    assert len(imported("a.csv")) == 1


@pytest.mark.slow
def test_memory_stays_flat_with_the_number_of_rows(write: Write) -> None:
    program = f"import sys; from agentv.cli import agentv\ntry: agentv()\nexcept SystemExit: pass\n{PRINT_PEAK_KB}"
    peaks = []
    for rows in (1000, 100_000):
        text = "".join(f"id-{number},{'long question ' * 20},{'answer ' * 10}\n" for number in range(rows))
        write("a.csv", "id,question,answer\n" + text)
        command = [sys.executable, "-c", program, "import", "a.csv", "--overwrite"]
        ran = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
        assert f"{rows:,} cases written" in ran.stderr
        peaks.append(int(ran.stdout.split()[-1]))
    assert peaks[1] - peaks[0] < 20_000  # of 40 MB


def test_vendor_messages_are_read_and_unknown_ones_skipped_with_a_reason(write: Write) -> None:
    parts = [{"type": "text", "text": "What is"}, {"type": "text", "text": " 2+2?"}]
    vendor = [{"role": "developer", "content": "Be brief."}, {"role": "user", "content": parts}]
    image = [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "https://x.org/a.png"}}]}]
    write(
        "a.jsonl",
        [
            {"id": "a", "input": vendor, "target": "4"},
            {"id": "b", "input": [{"role": "wizard", "content": "Hi"}], "target": "4"},
            {"id": "c", "input": image, "target": "4"},
            {"id": "d", "input": ["1", "2"], "target": "4"},
        ],
    )
    said = run_import("a.jsonl", "--from", "jsonl", "--out", "b.jsonl")
    shown = '{"role":"wizard","content":"Hi"}'
    assert f"  1 skipped: a message has an unknown role or shape: {shown} (line 2)" in said
    assert "  1 skipped: an image is a URL or an id instead of a file: https://x.org/a.png (line 3)" in said
    one, two = [json.loads(line) for line in Path("b.jsonl").read_text().splitlines()]
    assert one["input"] == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "What is 2+2?"},
    ]
    assert two["input"] == '["1","2"]'
    validates("b.jsonl")
