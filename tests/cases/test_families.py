"""Families of cases: matrices, rows, and variables."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from agentv.cases.read import read_eval_file
from agentv.errors import EvalFileError, placed
from agentv.records import EvalCase, Problem
from tests.kits.project import Write, agentv

FORMATS = pytest.mark.parametrize("name", ["a.yaml", "a.jsonl"])


def written(write: Write, name: str, *cases: dict[str, Any], **file: Any) -> Path:
    """Write an eval file in one of the formats. YAML contains JSON, one case per line."""
    if name == "a.jsonl":
        if file:
            write("a.yaml", json.dumps(file))
        return write(name, list(cases))
    settings = [f"{key}: {json.dumps(value)}\n" for key, value in file.items()]
    lines = [f"  - {json.dumps(each)}\n" for each in cases]
    return write(name, "".join(["x-file: 1\n", *settings, "evalcases:\n", *lines]))


def case(**fields: Any) -> dict[str, Any]:
    return {"id": "ask", "expected_outcome": "Answers.", "input": "Hello"} | fields


def read(path: Path) -> list[EvalCase]:
    problems: list[Problem] = []
    cases = list(read_eval_file(path, problems.append))
    assert problems == []
    return cases


def problems(path: Path) -> list[str]:
    """The problems of a file, each with its position and hint. In JSONL and CSV, the column is omitted."""
    found: list[Problem] = []
    try:
        list(read_eval_file(path, found.append))
    except EvalFileError as error:
        found.append(Problem.of(error))
    shown = [f"{placed(each.message, each.file, each.line, each.column)} ({each.hint})" for each in found]
    return [re.sub(r"(\.(?:jsonl|csv):\d+):\d+: ", r"\1: ", each) for each in shown]


def ids(path: Path) -> list[str]:
    return [each.id for each in read(path)]


# ---- variables ----


def test_a_variable_whose_braces_or_name_are_escaped_in_json(write: Write) -> None:
    for written in (r"\u007b{ vars.name }}", r"{{ \u0076ars.name }}", r"{{ vars\u002ename }}"):
        line = json.dumps(case(id="a", vars={"name": "Ada"}, input="TEXT")).replace("TEXT", written)
        path = write("a.jsonl", json.dumps(case(id="first")) + "\n" + line + "\n")
        assert [each.input_messages[-1].content for each in read(path)] == ["Hello", "Ada"]


@FORMATS
def test_variables_of_a_case_override_those_of_its_file(write: Write, name: str) -> None:
    asked = case(
        vars={"city": "Rome"},
        input=[{"role": "user", "content": "{{ vars.greeting }} from {{vars.city}}, {{ name }}"}],
        expected_outcome="Names {{ vars.city }}.",
        expected_output={"city": "{{ vars.city }}", "people": "{{ vars.people }}"},
    )
    (found,) = read(written(write, name, asked, vars={"city": "Paris", "greeting": "Hi", "people": 3}))
    assert found.input_messages[0].content == "Hi from Rome, {{ name }}"
    assert found.expected_outcome == "Names Rome."
    assert found.expected_messages[0].content == {"city": "Rome", "people": 3}
    assert found.vars == {"city": "Rome", "greeting": "Hi", "people": 3}


@FORMATS
def test_placeholders_keep_the_type_of_their_value_except_in_text_fields(write: Write, name: str) -> None:
    turns = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]
    (found,) = read(
        written(
            write,
            name,
            case(vars={"turns": turns, "n": 5}, input="{{ vars.turns }}", expected_outcome="{{ vars.n }}"),
        )
    )
    assert [message.content for message in found.input_messages] == ["Be brief.", "Hi"]
    assert found.expected_outcome == "5"


def test_an_unknown_variable_is_an_error_at_its_field(write: Write) -> None:
    fields = {"input": [{"role": "user", "content": "{{ vars.ctiy }}"}], "vars": {"city": "Paris"}}
    path = written(write, "a.yaml", case(**fields))
    column = path.read_text().splitlines()[-1].index('"content"') + 1
    message = "input[0].content: unknown variable {{ vars.ctiy }} (did you mean 'city'?)"
    assert problems(path) == [f"{path}:3:{column}: {message}"]
    path = written(write, "a.jsonl", case(**fields))
    assert problems(path) == [f"{path}:1: Line 1: {message}"]
    write("targets.yaml", "targets: [{name: default, provider: mock, response: hi}]")
    for command in ("eval", "validate"):
        ran = agentv(command, path)
        assert ran.returncode == {"eval": 2, "validate": 1}[command]
        assert "input[0].content: unknown variable {{ vars.ctiy }}" in ran.stderr + ran.stdout


def test_a_missing_variable_suggests_where_to_add_it(write: Write) -> None:
    path = written(write, "a.jsonl", case(input="{{ vars.city }}"))
    assert problems(path) == [
        f"{path}:1: Line 1: input: unknown variable {{{{ vars.city }}}} (add it to 'vars' of the case, or of its file)"
    ]


# ---- matrix ----


@FORMATS
def test_a_matrix_makes_a_case_per_combination(write: Write, name: str) -> None:
    matrix = {"order": ["A1", "A2"], "tone": ["polite", "rude"]}
    asked = case(matrix=matrix, exclude=[{"order": "A2", "tone": "rude"}], input="{{ vars.tone }} {{ vars.order }}")
    found = read(written(write, name, asked, vars={"tone": "neutral"}))
    assert [(each.id, each.input_messages[0].content) for each in found] == [
        ("ask[order=A1,tone=polite]", "polite A1"),
        ("ask[order=A1,tone=rude]", "rude A1"),
        ("ask[order=A2,tone=polite]", "polite A2"),
    ]
    assert found[2].vars == {"order": "A2", "tone": "polite"}


def test_values_that_differ_only_in_type_or_unicode_form_have_ids_of_their_own(write: Write) -> None:
    values = [1, "1", 1.0, True, "true", None, "null", "\u00e9", "e\u0301"]
    found = ids(written(write, "a.jsonl", case(matrix={"x": values})))
    assert found == [
        f"ask[x={text}]" for text in ("1", '"1"', "1.0", "true", '"true"', "null", '"null"', "\u00e9", "e\u0301")
    ]
    assert len(set(found)) == len(values)


def test_exclude_distinguishes_types(write: Write) -> None:
    asked = case(matrix={"x": [1, "1", True]}, exclude=[{"x": 1}])
    assert ids(written(write, "a.jsonl", asked)) == ['ask[x="1"]', "ask[x=true]"]


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"matrix": {}}, "matrix: must not be empty ()"),
        ({"matrix": {"x": []}}, "matrix.x: must not be empty ()"),
        ({"matrix": {"x": 1}}, "matrix.x: expected an array, got an integer ()"),
        (
            {"exclude": [{"x": 1}]},
            "exclude: there is no 'matrix' to exclude combinations from (set 'matrix', or remove it)",
        ),
        ({"matrix": {"x": [1]}, "rows": [{"y": 1}]}, "rows: cannot be combined with 'matrix' (use one of them)"),
        (
            {"matrix": {"tone": [1]}, "exclude": [{"tune": 1}]},
            "exclude[0].tune: not in the matrix (did you mean 'tone'?)",
        ),
        ({"matrix": {"x": [1]}, "exclude": [{"x": "1"}]}, "exclude[0].x: '1' is not in the matrix (did you mean '1'?)"),
        ({"matrix": {"x": [1]}, "exclude": [{}]}, "exclude[0]: must name a value of the matrix (for example {x: 1})"),
        (
            {"matrix": {"x": [1]}, "exclude": [{"x": 1}]},
            "exclude: excludes every combination of the matrix (remove one of its entries)",
        ),
        ({"matrix": {"x": ["a", "a"]}}, "duplicate id 'ask[x=\"a\"]', first on line 1 (use unique ids)"),
        (
            {"matrix": {"x": [1, 2]}, "input": "{{ vars.z }}"},
            "input: unknown variable {{ vars.z }} (case 'ask[x=1]') (available variables: x)",
        ),
        ({"rows": "rows.xlsx"}, "rows: rows.xlsx is not supported: files with rows end in .csv, .tsv, .jsonl"),
        ({"rows": "rows.csv"}, "rows: no such file: "),
        ({"rows": []}, "rows: must not be empty ()"),
    ],
)
def test_invalid_families(write: Write, fields: dict[str, Any], problem: str) -> None:
    path = written(write, "a.jsonl", case(**fields))
    (first, *_) = problems(path)
    assert first.removeprefix(f"{path}:1: ").removeprefix("Line 1: ").startswith(problem)


# ---- rows ----


@FORMATS
@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("rows.csv", '\ufeffid,city,note\r\nfr,Paris,"two\nlines, ""quoted"""\r\n,Rome,\r\n'),
        ("rows.tsv", 'id\tcity\tnote\nfr\tParis\ttwo "words\n\tRome\t\n'),
        ("rows.jsonl", '{"id": "fr", "city": "Paris", "note": {"a": 1}}\n\n{"city": "Rome", "note": ""}\n'),
    ],
)
def test_rows_of_a_file(write: Write, name: str, file: str, content: str) -> None:
    write(f"data/{file}", content)
    asked = case(rows=f"data/{file}", input="{{ vars.greeting }} {{ vars.city }}: {{ vars.note }}", vars={"city": "-"})
    found = read(written(write, name, asked, vars={"greeting": "Hi"}))
    note = {"rows.csv": 'two\nlines, "quoted"', "rows.tsv": 'two "words', "rows.jsonl": '{"a":1}'}[file]
    assert [(each.id, each.input_messages[0].content) for each in found] == [
        ("ask[fr]", f"Hi Paris: {note}"),
        ("ask[2]", "Hi Rome: "),
    ]


def test_rows_in_the_case(write: Write) -> None:
    asked = case(rows=[{"id": 7, "n": 1}, {"n": 2}], expected_output="{{ vars.n }}")
    assert ids(written(write, "a.jsonl", asked)) == ["ask[7]", "ask[2]"]


@pytest.mark.parametrize(
    ("file", "content", "problem"),
    [
        ("r.csv", "id,n\na,1\nb\n", "3: the row has 1 cell, but there are 2 columns"),
        ("r.csv", 'id,n\na,"1\nb,2\n', "2: the row that starts here cannot be read: unclosed quote"),
        ("r.csv", "id,n\na,1\nb,2\na,3\n", "4: duplicate id 'ask[a]', first on line 2"),
        ("r.csv", "n,n\n1,2\n", "1: duplicate columns: 'n'"),
        ("r.jsonl", '{"n": 1}\n[2]\n', "2: the row must be an object"),
        ("r.jsonl", '{"n": 1}\n{"n": \n', "2: Invalid JSON"),
        ("r.jsonl", '{"id": 1, "n": 1}\n{"id": "1", "n": 2}\n', "2: duplicate id 'ask[1]', first on line 1"),
    ],
)
def test_problems_in_rows_name_their_file_and_line(write: Write, file: str, content: str, problem: str) -> None:
    rows = write(file, content)
    path = written(write, "a.yaml", case(rows=file, input="{{ vars.n }}"))
    (found,) = problems(path)
    assert found.startswith(f"{rows}:{problem}")


def test_a_variable_that_a_row_lacks_names_the_row(write: Write) -> None:
    rows = write("r.jsonl", '{"n": 1}\n{"m": 2}\n{"m": 3}\n')
    path = written(write, "a.jsonl", case(rows="r.jsonl", input="{{ vars.n }}"))
    (found,) = problems(path)  # one problem for all rows that lack it
    assert found.startswith(f"{path}:1: Line 1: input: unknown variable {{{{ vars.n }}}} (case 'ask[2]', {rows}:2)")


def test_a_file_without_rows_is_an_error(write: Write) -> None:
    write("r.csv", "id,n\n")
    path = written(write, "a.jsonl", case(rows="r.csv"))
    assert problems(path) == [f"{path}:1: Line 1: rows: r.csv has no rows ()"]


def test_a_file_whose_only_row_is_invalid_has_rows(write: Write) -> None:
    write("r.csv", "id,n\n1\n")
    path = written(write, "a.jsonl", case(rows="r.csv"))
    (found,) = problems(path)
    assert "the row has 1 cell, but there are 2 columns" in found


def test_a_member_without_an_input_is_named_once(write: Write) -> None:
    path = written(write, "a.jsonl", case(matrix={"n": [None]}, input="{{ vars.n }}"))
    (found,) = problems(path)
    assert found.count("case 'ask[n=null]'") == 1


def test_a_family_and_a_case_cannot_share_an_id(write: Write) -> None:
    path = written(write, "a.yaml", case(matrix={"n": [1]}), case(id="ask[n=1]"))
    (found,) = problems(path)
    assert "duplicate id 'ask[n=1]', first on line 3" in found


def test_expanded_cases_are_ordinary_cases_in_runs(write: Write) -> None:
    write("targets.yaml", "targets: [{name: default, provider: mock, response: 'order A1'}]")
    check = {"type": "contains", "value": "{{ vars.order }}"}
    path = written(write, "a.jsonl", case(matrix={"order": ["A1", "A2"], "n": [1, 2]}, evaluators=[check]))
    found = {}
    for shard in ("1/2", "2/2"):
        ran = agentv("eval", path, "--shard", shard, "--out", f"{shard[0]}.jsonl")
        assert ran.returncode == 0
        for line in Path(f"{shard[0]}.jsonl").read_text().splitlines():
            result = json.loads(line)
            found[result["eval_id"]] = result["verdict"]
    assert found == {
        "ask[order=A1,n=1]": "pass",
        "ask[order=A1,n=2]": "pass",
        "ask[order=A2,n=1]": "fail",
        "ask[order=A2,n=2]": "fail",
    }
    only = agentv("eval", path, "--eval-id", "ask[order=A2,n=1]", "--out", "one.jsonl")
    assert only.returncode == 0
    assert len(Path("one.jsonl").read_text().splitlines()) == 1
    resumed = agentv("eval", path, "--resume", "--out", "one.jsonl")
    assert "4 planned" in resumed.stdout
    assert len(Path("one.jsonl").read_text().splitlines()) == 4
