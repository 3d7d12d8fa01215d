"""Building the prompt."""

import os
from pathlib import Path
from typing import Any

import pytest

from agentv import AgentvError, EvalCase, Message, load_eval_cases
from agentv.cases.request import Files, build_request, is_guideline
from agentv.config import GUIDELINE_PATTERNS, guideline_patterns
from agentv.records import CaseFile, ProviderRequest, ToolCall
from tests.kits.project import Write, a_case


def load(write: Write, messages: list[dict[str, Any]] | str, name: str = "evals/a.jsonl") -> EvalCase:
    (case,) = load_eval_cases(write(name, [a_case(input_messages=None, input=messages)]))
    return case


def request(case: EvalCase, files: Files = Files.INLINE) -> ProviderRequest:
    return build_request(case, GUIDELINE_PATTERNS, files)


def file(path: str) -> dict[str, str]:
    return {"type": "file", "value": path}


def text(value: str) -> dict[str, str]:
    return {"type": "text", "value": value}


def test_one_message_is_the_question_itself(write: Write) -> None:
    built = request(load(write, "What is 2 + 2?\n"))
    assert built.question == "What is 2 + 2?\n"
    assert built.chat_prompt == (Message(role="user", content="What is 2 + 2?\n"),)
    assert (built.eval_id, built.guidelines, built.input_files) == ("test-1", "", ())


def test_several_messages_have_role_headings(write: Write) -> None:
    built = request(
        load(
            write,
            [
                {"role": "system", "content": "Be brief."},
                {"role": "user", "content": "Hi"},
                {"role": "assistant", "content": "Hello"},
                {"role": "tool", "content": "42"},
                {"role": "user", "content": "  "},
                {"role": "user", "content": "Bye"},
            ],
        )
    )
    assert built.question == (
        "@[System]:\nBe brief.\n\n@[User]:\nHi\n\n@[Assistant]:\nHello\n\n@[Tool]:\n42\n\n@[User]:\nBye"
    )
    assert [turn.role for turn in built.chat_prompt] == ["system", "user", "assistant", "tool", "user"]


def test_a_single_assistant_message_has_a_heading(write: Write) -> None:
    assert request(load(write, [{"role": "assistant", "content": "Hi"}])).question == "@[Assistant]:\nHi"


def test_an_empty_message_does_not_count(write: Write) -> None:
    built = request(load(write, [{"role": "system", "content": ""}, {"role": "user", "content": "Hi"}]))
    assert built.question == "Hi"
    assert [turn.role for turn in built.chat_prompt] == ["user"]


def test_structured_content_is_json(write: Write) -> None:
    built = request(load(write, [{"role": "user", "content": {"city": "Köln", "n": 1}}]))
    assert built.question == '{\n  "city": "Köln",\n  "n": 1\n}'


def test_tool_calls_are_part_of_their_turn(write: Write) -> None:
    call = {"tool": "search", "input": {"q": "x"}}
    built = request(load(write, [{"role": "user", "content": "Find x"}, {"role": "assistant", "tool_calls": [call]}]))
    assert built.question == '@[User]:\nFind x\n\n@[Assistant]:\n{"tool":"search","input":{"q":"x"}}'
    assert built.chat_prompt[1].tool_calls == (ToolCall(tool="search", input={"q": "x"}),)


def test_files_are_inserted_as_content_or_as_a_reference(write: Write) -> None:
    path = write("evals/data/code.py", "print(1)")
    case = load(write, [{"role": "user", "content": [text("Review:"), file("data/code.py")]}])
    inline, reference = request(case), request(case, Files.REFERENCE)
    assert inline.question == 'Review:\n<file path="data/code.py">\nprint(1)\n</file>'
    assert reference.question == 'Review:\n<file: path="data/code.py">'
    assert inline.input_files == reference.input_files == (path,)


def test_a_guideline_is_replaced_with_a_marker(write: Write) -> None:
    path = write("evals/python.instructions.md", "Use type hints.")
    case = load(write, [{"role": "user", "content": [file("python.instructions.md"), text("Write a loop.")]}])
    built = request(case)
    assert built.question == "<Attached: python.instructions.md>\nWrite a loop."
    assert built.guidelines == "Use type hints."
    assert (built.guideline_files, built.input_files) == ((path,), ())
    assert built.chat_prompt == (
        Message(role="system", content="[[ ## Guidelines ## ]]\n\nUse type hints."),
        Message(role="user", content="<Attached: python.instructions.md>\nWrite a loop."),
    )


def test_several_guidelines_have_name_headings(write: Write) -> None:
    write("evals/a.instructions.md", "A")
    write("evals/prompts/b.md", "B")
    blocks = [file("a.instructions.md"), file("prompts/b.md"), file("a.instructions.md")]
    case = load(write, [{"role": "system", "content": [*blocks, text("Sys")]}, {"role": "user", "content": "Hi"}])
    built = request(case)
    assert built.guidelines == "=== a.instructions.md ===\nA\n\n=== b.md ===\nB"
    system, user = built.chat_prompt
    assert isinstance(system.content, str)
    assert system.content.endswith(f"Sys\n\n[[ ## Guidelines ## ]]\n\n{built.guidelines}")
    assert user.content == "Hi"


def test_a_message_of_guidelines_alone_is_not_a_turn(write: Write) -> None:
    write("evals/a.prompt.md", "A")
    case = load(write, [{"role": "system", "content": [file("a.prompt.md")]}, {"role": "user", "content": "Hi"}])
    built = request(case)
    assert built.question == "Hi"
    assert [turn.role for turn in built.chat_prompt] == ["system", "user"]


def test_files_are_resolved_against_the_eval_file_then_the_root_then_as_given(write: Write, tmp_path: Path) -> None:
    write(".git/HEAD", "")
    write("here.txt", "root")
    case = load(write, [{"role": "user", "content": [file("here.txt")]}])
    assert "root" in request(case).question
    write("evals/here.txt", "beside")
    assert "beside" in request(case).question
    write("evals/sub/there.txt", "as given")
    case = load(write, [{"role": "user", "content": [file(str(tmp_path / "evals/sub/there.txt"))]}])
    assert "as given" in request(case).question


def test_a_files_content_is_read_when_the_case_runs(write: Write) -> None:
    case = load(write, [{"role": "user", "content": [file("late.txt")]}])
    write("evals/late.txt", "now it is here")
    assert "now it is here" in request(case).question


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("missing.txt", "no such file: missing.txt"),
        ("folder", "a folder, not a file: folder"),
        ("../../etc/hostname", "outside the repo: ../../etc/hostname"),
        ("link-out.txt", "outside the repo: link-out.txt"),
        ("loop.txt", "cannot read the attached file: loop.txt"),
        ("dangling.txt", "cannot read the attached file: dangling.txt"),
        ("binary.bin", "not a text file: binary.bin"),
        ("nul\0.txt", "a path cannot contain a NUL character"),
    ],
)
def test_a_file_that_cannot_be_used(write: Write, tmp_path: Path, path: str, message: str) -> None:
    write("repo/.git/HEAD", "")
    write("outside.txt", "secret")
    write("etc/hostname", "secret")
    write("repo/evals/folder/x", "")
    write("repo/evals/binary.bin", b"\xff\xfe\x00")
    for name, target in (("link-out.txt", "../../outside.txt"), ("loop.txt", "loop.txt"), ("dangling.txt", "nowhere")):
        (tmp_path / "repo/evals" / name).symlink_to(target)
    case = load(write, [{"role": "user", "content": [file(path)]}], "repo/evals/a.jsonl")

    with pytest.raises(AgentvError) as caught:
        request(case)

    assert caught.value.message == message
    assert (caught.value.file, caught.value.line) == (case.file.path, 1)


def test_a_quote_in_a_path_is_escaped(write: Write) -> None:
    write('evals/a">b.txt', "x")
    case = load(write, [{"role": "user", "content": [file('a">b.txt')]}])
    assert request(case).question.startswith('<file path="a&quot;>b.txt">')


@pytest.mark.parametrize(
    ("path", "pattern", "matches"),
    [
        ("a.instructions.md", "**/*.instructions.md", True),
        ("x/y/a.instructions.md", "**/*.instructions.md", True),
        ("instructions/a.md", "**/instructions/**", True),
        ("x/instructions/y/a.md", "**/instructions/**", True),
        ("my-instructions/a.md", "**/instructions/**", False),
        ("x/y/a.instructions.md", "*.instructions.md", True),
        ("a.instructions.md.bak", "*.instructions.md", False),
        ("docs/a.md", "docs/*.md", True),
        ("docs/x/a.md", "docs/*.md", False),
        ("x/docs/a.md", "docs/*.md", False),
        ("../rules/a.md", "rules/*.md", False),
        ("a1.md", "a?.md", True),
        ("a+b.md", "a+b.md", True),
        ("./a.md", "./a.md", True),
    ],
)
def test_guideline_patterns(tmp_path: Path, path: str, pattern: str, matches: bool) -> None:
    eval_file = CaseFile(path=tmp_path / "a.jsonl", dataset="a", root=tmp_path)
    assert is_guideline(path, Path(os.path.normpath(tmp_path / path)), eval_file, [pattern]) is matches


def test_patterns_come_from_the_nearest_config_up_to_the_root(write: Write, tmp_path: Path) -> None:
    write(".agentv/config.yaml", "guideline_patterns: [outside]\n")
    write("repo/.git/HEAD", "")
    assert guideline_patterns(write("repo/evals/deep/a.yaml", "").parent) == GUIDELINE_PATTERNS
    write("repo/.agentv.yaml", "guideline_patterns: [root]\n")
    assert guideline_patterns(tmp_path / "repo/evals/deep") == ("root",)
    write("repo/evals/.agentv/config.yaml", "guideline_patterns: [near]\n")
    assert guideline_patterns(tmp_path / "repo/evals/deep") == ("near",)
    write("repo/evals/.agentv/config.yaml", "guideline_patterns: near\n")
    with pytest.raises(AgentvError, match="guideline_patterns: expected an array, got a string"):
        guideline_patterns(tmp_path / "repo/evals/deep")
