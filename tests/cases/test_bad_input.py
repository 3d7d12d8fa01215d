"""Invalid eval files of every kind, with their error messages."""

import json
import os
from pathlib import Path

import pytest

from agentv import AgentvError, load_eval_cases
from tests.kits.cases import as_nobody, yaml_case
from tests.kits.project import Write, a_case

GOOD = json.dumps(a_case())


def told(path: Path) -> tuple[str, int | None, int | None, str]:
    """The message, line, column and hint of the error that loading the file gives, without `Line N: ` in JSONL."""
    with pytest.raises(AgentvError) as caught:
        list(load_eval_cases(path))
    assert caught.value.file is not None
    message = caught.value.message.removeprefix(f"Line {caught.value.line}: ")
    return message, caught.value.line, caught.value.column, caught.value.hint


def test_not_utf8_in_jsonl(write: Write) -> None:
    path = write("a.jsonl", (GOOD + "\n").encode() + '{"id": "grün"}'.encode("latin-1"))
    assert told(path)[:3] == ("not valid UTF-8: byte 0xfc is invalid here", 2, 11)


def test_not_utf8_in_yaml(write: Write) -> None:
    path = write("a.yaml", "evalcases:\n  - id: grün".encode("latin-1"))
    message, line, _, hint = told(path)
    assert (message, line) == ("not valid UTF-8: byte 0xfc is invalid here", 2)
    assert hint == "save the file as UTF-8"


def test_utf16_is_rejected(write: Write) -> None:
    assert told(write("a.jsonl", GOOD.encode("utf-16")))[0] == "not valid UTF-8: byte 0xff is invalid here"


@pytest.mark.parametrize("name", ["a.jsonl", "a.yaml"])
def test_a_byte_order_mark_is_fine(write: Write, name: str) -> None:
    text = GOOD if name.endswith("jsonl") else yaml_case()
    (case,) = load_eval_cases(write(name, b"\xef\xbb\xbf" + text.encode()))
    assert case.expected_outcome == "Goal"


def test_crlf_is_fine(write: Write) -> None:
    text = json.dumps(a_case("a")) + "\r\n\r\n" + json.dumps(a_case("b")) + "\r\n"
    assert [(case.id, case.line) for case in load_eval_cases(write("a.jsonl", text))] == [("a", 1), ("b", 3)]
    (case,) = load_eval_cases(write("a.yaml", yaml_case().replace("\n", "\r\n")))
    assert case.id == "x"


@pytest.mark.parametrize("text", ["", "\n", "\n   \n\r\n\t\n"])
def test_no_cases_at_all(write: Write, text: str) -> None:
    assert told(write("a.jsonl", text))[0] == "the file has no eval cases"
    if "\t" not in text:
        assert told(write("a.yaml", text))[0] == "the file is empty"


def test_no_cases_in_yaml(write: Write) -> None:
    assert told(write("a.yaml", "evalcases: []"))[0] == "'evalcases' must be a non-empty list"
    assert told(write("b.yaml", "evalcases: {}"))[0] == "'evalcases' must be a non-empty list"
    assert told(write("c.yaml", "description: nothing"))[0] == "missing evalcases"
    assert told(write("d.yaml", "- id: a"))[0] == "the file must contain a mapping"


@pytest.mark.parametrize("field", ["evaluators", "input_messages"])
def test_an_object_in_place_of_a_list(write: Write, field: str) -> None:
    message, _, _, hint = told(write("a.jsonl", [a_case("a", **{field: {"type": "contains"}})]))
    assert (message, hint) == (f"{field}: expected an array, got an object", "put it in a list: [{…}]")


def test_a_targets_file_in_place_of_an_eval_file(write: Write) -> None:
    path = write("targets.yaml", "targets: [{name: default, provider: mock, response: hello}]")
    message, _, _, hint = told(path)
    assert (message, hint) == (
        "missing evalcases",
        "this is a targets file: pass an eval file, a folder or a quoted glob instead",
    )


@pytest.mark.parametrize("name", ["a.jsonl", "a.yaml"])
def test_a_folder(write: Write, name: str) -> None:
    folder = write(f"{name}/inside.txt", "").parent
    assert told(folder)[0] == "this is a folder, not a file"


@pytest.mark.parametrize("name", ["a.jsonl", "a.yaml"])
def test_a_missing_file(tmp_path: Path, name: str) -> None:
    message, _, _, hint = told(tmp_path / name)
    assert (message, hint) == ("no such file", "check the path and the current folder")


@pytest.mark.parametrize("name", ["a.jsonl", "a.yaml"])
def test_no_permission(write: Write, name: str) -> None:
    path = write(name, GOOD)
    path.chmod(0)
    with as_nobody():
        message, _, _, hint = told(path)
    assert (message, hint) == ("no permission to read this file", "check its owner and permissions")


@pytest.mark.parametrize(
    ("line", "kind"),
    [("[]", "an array"), ('"text"', "a string"), ("42", "an integer"), ("4.2", "a number"), ("null", "null")],
)
def test_a_line_that_is_not_an_object(write: Write, line: str, kind: str) -> None:
    assert told(write("a.jsonl", f"{GOOD}\n{line}\n"))[:3] == (f"expected an object, got {kind}", 2, 1)


def test_a_case_that_is_not_an_object(write: Write) -> None:
    message, line, column, _ = told(write("a.yaml", "evalcases:\n  - just text\n"))
    assert (message, line, column) == ("expected an object, got a string", 2, 5)


@pytest.mark.parametrize("depth", [600, 10_000, 100_000])
def test_deep_nesting(write: Write, depth: int) -> None:
    nested = "[" * depth + "]" * depth
    if depth > 900:
        assert told(write("a.jsonl", GOOD + "\n" + GOOD[:-1] + f', "metadata": {{"x": {nested}}}}}'))[:2] == (
            "nested too deeply",
            2,
        )
    message, line, _, _ = told(write("a.yaml", yaml_case(metadata=f"{{x: {nested}}}")))
    assert (message, line) == ("nested too deeply", 5)


def test_a_line_of_50_mb(write: Write) -> None:
    big = json.dumps(a_case("big", expected_outcome="x" * 50_000_000))
    message, line, _, hint = told(write("a.jsonl", f"{GOOD}\n\n{big}\n"))
    assert (message, line) == ("the line is longer than 16 MiB", 3)
    assert "attach long content as a file" in hint


def test_a_line_of_10_mb_is_fine(write: Write) -> None:
    big = a_case("big", expected_outcome="x" * 10_000_000)
    assert [len(case.expected_outcome) for case in load_eval_cases(write("a.jsonl", [a_case(), big]))] == [
        4,
        10_000_000,
    ]


def test_duplicate_ids_in_jsonl(write: Write) -> None:
    entries = [a_case("a"), a_case("b"), a_case("a")]
    message, line, column, hint = told(write("a.jsonl", entries))
    assert (message, line, column) == ("duplicate id 'a', first on line 1", 3, 2)
    assert hint == "use unique ids"


def test_duplicate_ids_in_yaml(write: Write) -> None:
    text = yaml_case() + yaml_case().removeprefix("evalcases:\n")
    assert told(write("a.yaml", text))[:3] == ("duplicate id 'x', first on line 2", 5, 5)


def test_duplicate_ids_far_apart(write: Write) -> None:
    entries = [a_case(f"case-{n}") for n in range(5000)] + [a_case("case-17")]
    assert told(write("a.jsonl", entries))[:2] == ("duplicate id 'case-17', first on line 18", 5001)


def test_duplicate_yaml_keys(write: Write) -> None:
    text = "evalcases:\n  - id: a\n    input: x\n    id: b\n"
    assert told(write("a.yaml", text))[:3] == ("duplicate key 'id', first on line 2", 4, 5)


def test_yaml_aliases_that_expand_into_gigabytes(write: Write) -> None:
    laughs = "\n".join(f"l{n}: &l{n} [{', '.join([f'*l{n - 1}'] * 10)}]" for n in range(1, 11))
    message, line, _, _ = told(write("a.yaml", f"l0: &l0 haha\n{laughs}\nevalcases: *l10\n"))
    assert message == "aliases expand to too many values"
    assert line == 8


def test_reasonable_yaml_aliases_are_expanded(write: Write) -> None:
    text = "shared: &q {role: user, content: Query}\n" + yaml_case(input="[*q, *q]")
    (case,) = load_eval_cases(write("a.yaml", text))
    assert [message.content for message in case.input_messages] == ["Query", "Query"]


@pytest.mark.parametrize("text", ["a: &a [*a]", "a: *nowhere"])
def test_yaml_aliases_without_an_anchor(write: Write, text: str) -> None:
    assert "has no anchor before it" in told(write("a.yaml", text))[0]


def test_tabs_in_yaml(write: Write) -> None:
    message, line, _, hint = told(write("a.yaml", "evalcases:\n\t- id: a\n"))
    assert message == "Invalid YAML: line 2 is indented with a tab"
    assert (line, hint) == (2, "use spaces: YAML does not allow tabs for indentation")


def test_truncated_yaml(write: Write) -> None:
    message, line, column, hint = told(write("a.yaml", 'evalcases:\n  - id: "a\n'))
    assert (message, line, column) == ("Invalid YAML: the quote that opens here is not closed", 2, 9)
    assert hint == "close it where the text ends"


def test_a_quote_that_is_closed_on_a_later_line(write: Write) -> None:
    text = 'evalcases:\n  - id: "a\n    outcome: x\n    input: "Query"\n'
    message, line, column, _ = told(write("a.yaml", text))
    assert (message, line, column) == ("Invalid YAML: the quote that opens here is only closed on line 4", 2, 9)


@pytest.mark.parametrize(
    ("text", "message", "column"),
    [
        ('{"id": "a",}', "Invalid JSON: trailing comma before '}': remove it", 11),
        ('{"id": ["a", ]}', "Invalid JSON: trailing comma before ']': remove it", 12),
        ('{"id": "a"},', "Invalid JSON: trailing comma at the end of the line: remove it", 12),
        ('{"id": "a",', "Invalid JSON: Expecting property name enclosed in double quotes", 12),
        ('{"id": "a", "b" 1}', "Invalid JSON: Expecting ':' delimiter", 17),
    ],
)
def test_a_trailing_comma_is_named(write: Write, text: str, message: str, column: int) -> None:
    assert told(write("a.jsonl", text + "\n"))[:3] == (message, 1, column)


def test_a_second_yaml_document(write: Write) -> None:
    assert told(write("a.yaml", yaml_case() + "---\n" + yaml_case()))[0] == "a second YAML document starts here"


@pytest.mark.parametrize("tag", ["!!python/object:os.system", "!secret", "!!binary"])
def test_yaml_tags_are_not_executed(write: Write, tag: str) -> None:
    assert "is not supported" in told(write("a.yaml", yaml_case(metadata=f"{tag} x")))[0]


def test_merge_keys(write: Write) -> None:
    message, line, _, _ = told(write("a.yaml", "base: &b {id: a}\nevalcases:\n  - <<: *b\n"))
    assert (message, line) == ("merge keys (<<) are not part of YAML 1.2", 3)


@pytest.mark.parametrize(("value", "kind"), [("42", "an integer"), ("4.5", "a number"), ("true", "a boolean")])
def test_an_id_that_is_not_a_string(write: Write, value: str, kind: str) -> None:
    expected = f"id: expected a string, got {kind}", "quote it"
    message, line, column, given = told(write("a.yaml", yaml_case(id=value)))
    assert (message, given) == expected
    assert (line, column) == (2, 5)
    message, line, _, given = told(write("a.jsonl", [a_case() | {"id": json.loads(value)}]))
    assert (message, given) == expected
    assert line == 1


def test_an_empty_id(write: Write) -> None:
    assert told(write("a.yaml", yaml_case(id='""')))[0] == "id: must not be empty"
    assert told(write("a.jsonl", [a_case("")]))[0] == "id: must not be empty"


def test_an_unknown_role(write: Write) -> None:
    wrong = a_case(input_messages=[{"role": "user", "content": "x"}, {"role": "asistant", "content": "x"}])
    message, line, column, hint = told(write("a.jsonl", [wrong]))
    assert message == "input_messages[1].role: unknown role 'asistant'"
    assert (line, hint) == (1, "did you mean 'assistant'? one of assistant, system, tool, user")
    assert json.dumps(wrong)[column - 1 :].startswith('"role": "asistant"') if column else False
    message, _, _, hint = told(write("a.yaml", yaml_case(input="[{role: robot, content: x}]")))
    assert (message, hint) == ("input[0].role: unknown role 'robot'", "one of assistant, system, tool, user")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (42, "input_messages[0].content: expected a string, an object or an array, got an integer"),
        ([42], "input_messages[0].content[0]: expected an object, got an integer"),
        ([{"value": "x"}], "input_messages[0].content[0]: missing type"),
        ([{"type": "image", "value": "x"}], "input_messages[0].content[0].type: unknown type 'image'"),
        ([{"type": "text"}], "input_messages[0].content[0]: missing value"),
        ([{"type": "file", "value": 1}], "input_messages[0].content[0].value: expected a string, got an integer"),
        (None, "input_messages[0]: missing content"),
    ],
)
def test_content_of_a_wrong_type(write: Write, content: object, message: str) -> None:
    wrong = a_case(input_messages=[{"role": "user", "content": content}])
    assert told(write("a.jsonl", [wrong]))[0] == message
    assert told(write("a.yaml", json.dumps({"evalcases": [wrong]})))[0] == message


def test_only_an_assistant_with_tool_calls_may_omit_content(write: Write) -> None:
    calls = [{"tool": "search"}]
    fine = a_case(expected_messages=[{"role": "assistant", "tool_calls": calls}])
    assert len(list(load_eval_cases(write("a.jsonl", [fine])))) == 1
    for message in (
        {"role": "assistant"},
        {"role": "user", "tool_calls": calls},
        {"role": "assistant", "tool_calls": []},
    ):
        assert told(write("a.jsonl", [a_case(expected_output=[message])]))[0] == "expected_output[0]: missing content"


def test_numbers_out_of_range(write: Write) -> None:
    assert told(write("a.yaml", yaml_case(metadata="{x: 1e999}")))[0] == "the number 1e999 is out of range"
    assert told(write("a.yaml", yaml_case(metadata="{x: .inf}")))[0] == "the number .inf is out of range"
    assert told(write("b.jsonl", GOOD[:-1] + ', "metadata": {"x": 1e999}}'))[:2] == (
        "Invalid JSON: Number out of range",
        1,
    )
    assert told(write("b.jsonl", GOOD[:-1] + ', "metadata": {"x": NaN}}'))[0] == "Invalid JSON: NaN is not a JSON value"


def test_an_unpaired_surrogate(write: Write) -> None:
    for text in ('"\\ud800"', '"\\ud800 and more"'):
        assert "surrogate" in told(write("a.jsonl", GOOD[:-1] + f', "description": {text}}}'))[0]


@pytest.mark.parametrize("name", ["a.jsonl", "a.yaml"])
def test_a_pipe(tmp_path: Path, name: str) -> None:
    os.mkfifo(tmp_path / name)
    assert told(tmp_path / name)[0] == "not a regular file"


@pytest.mark.parametrize("name", ["a\0.jsonl", "a\0.yaml"])
def test_a_path_with_a_nul_byte(tmp_path: Path, name: str) -> None:
    assert told(tmp_path / name)[0] == "embedded null byte"


def test_line_breaks_of_yaml_1_1_are_text(write: Write) -> None:
    odd = "a\x85b\u2028c\u2029d\U0010fffd"
    text = f"evalcases:\n- id: {odd}\n  outcome: |\n    {odd}\n  input: '{odd}'\n  metadata: {{{odd}: 5}}\n"
    (case,) = load_eval_cases(write("a.yaml", text))
    assert (case.id, case.expected_outcome, case.input_messages[0].content) == (odd, f"{odd}\n", odd)
    assert case.metadata == {odd: 5}
    assert told(write("b.yaml", text.replace("metadata", "rubrics")))[1] == 6


def test_a_control_character_in_yaml(write: Write) -> None:
    message, line, column, _ = told(write("a.yaml", 'a: éééééééééé\nb: c\nx: "é\x01"\ny: 1\n'))
    assert "control characters are not allowed" in message
    assert (line, column) == (3, 6)


def test_anchors_on_keys_are_accepted_and_tags_are_not(write: Write) -> None:
    (case,) = load_eval_cases(write("a.yaml", "&k description: x\n" + yaml_case(input="*k")))
    assert case.input_messages[0].content == "description"
    assert "is not supported" in told(write("a.yaml", "!!foo k: 1\n" + yaml_case()))[0]


def test_a_legal_tab_is_not_blamed(write: Write) -> None:
    assert told(write("a.yaml", "a:\tb: c\n"))[3] == ""


def test_an_empty_sidecar_has_no_effect(write: Write) -> None:
    write("a.yaml", "# later\n")
    (case,) = load_eval_cases(write("a.jsonl", [a_case()]))
    assert case.target == "default"


def test_errors_in_a_sidecar_have_their_own_location(write: Write) -> None:
    path = write("a.jsonl", [a_case()])
    sidecar = write("a.yaml", "description: fine\nexecution: azure\n")
    with pytest.raises(AgentvError) as caught:
        list(load_eval_cases(path))
    assert (caught.value.file, caught.value.line) == (sidecar, 2)
    assert caught.value.message == "execution: expected an object, got a string"


def test_an_eval_file_next_to_a_dataset_is_not_a_sidecar(write: Write) -> None:
    write("a.yaml", "execution: {target: other}\n" + yaml_case())
    (case,) = load_eval_cases(write("a.jsonl", [a_case()]))
    assert case.target == "default"
