"""Loading arbitrary bytes yields cases or raises an AgentvError with a location, never anything else."""

import contextlib
import json
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from agentv import AgentvError, EvalCase, Problem, collect_warnings, load_eval_cases
from agentv.cases.read import read_eval_file
from agentv.evaluators.build import EvaluatorBuilder
from agentv.project.validate import check_file
from tests.kits.project import a_case

VALID = {
    ".jsonl": "".join(
        json.dumps(entry, ensure_ascii=False) + "\n"
        for entry in (
            a_case("a", input="héllo", metadata={"n": [1, 2.5, None, True]}),
            a_case("b", expected_messages=[{"role": "assistant", "tool_calls": [{"tool": "t", "input": {"k": "v"}}]}]),
            a_case("c", input_messages=[{"role": "user", "content": [{"type": "file", "value": "x.md"}]}]),
        )
    ),
    ".yaml": """\
description: &d "A \\u00e9 file"
execution: {target: t, evaluators: [{type: contains, value: *d}]}
evalcases:
  - id: a
    expected_outcome: |
      Two
      lines
    input: héllo
    metadata: {n: [1, 2.5, ~, true]}
  - id: b
    outcome: >-
      folded
    input:
    - role: user
      content: [{type: file, value: x.md}]
    - role: assistant
      tool_calls:
      - tool: t
""",
}
PIECES = [
    *(character.encode() for character in "{}[]:,\"\n\t\\\0|>'#%\r"),
    *(b"\xff", b"\xef\xbb\xbf", b"- ", b"&a ", b"*a", b"!!x ", b"---\n", b"...\n", b"? "),
    *(b"1e999", b"\\ud800", b"null", b"id", b"9" * 5000),
]


@st.composite
def mutated(draw: st.DrawFn, suffix: str) -> bytes:
    """A valid file with a few pieces cut out, doubled, or put in."""
    data = VALID[suffix].encode()
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(data)))
        end = draw(st.integers(start, min(len(data), start + 30)))
        piece = draw(st.sampled_from(PIECES) | st.binary(max_size=4) | st.just(data[start:end] * 2))
        data = data[:start] + piece + data[end:]
    return data


def verdicts(folder: Path, suffix: str, data: bytes) -> tuple[bool, bool]:
    """Whether loading a file finds something wrong, and whether checking it does; what they say has its place."""
    path = folder / f"{suffix[1:]}{suffix}"  # not of one name: one would be the sidecar of the other
    path.write_bytes(data)
    with collect_warnings() as warnings:
        try:
            assert all(type(case) is EvalCase for case in load_eval_cases(path))
        except AgentvError as error:
            assert error.file == path
            assert error.line is not None
            assert 1 <= error.line <= data.count(b"\n") + data.count(b"\r") + 2
            assert error.message
            assert len(error.message) < 500
            loaded = False
        else:
            loaded = True
    assert all(warning.line for warning in warnings)
    checked = check_file(path)
    # attachments and evaluators are not looked at by loading
    unseen = evaluator_problems(path)
    errors = [p for p in checked.problems if p.severity == "error" and p not in unseen]
    errors = [problem for problem in errors if not _is_lenient(problem)]
    assert all(problem.line and problem.column for problem in checked.problems)
    return not loaded or any(not _is_lenient(warning) for warning in warnings), bool(errors)


def _is_lenient(problem: Problem) -> bool:
    """Whether loading may ignore it: a missing file, and misspelt names of optional fields."""
    is_optional = problem.hint != "did you mean 'evalcases'?"
    return "no such file" in problem.message or ("unknown field" in problem.message and is_optional)


def evaluator_problems(path: Path) -> set[Problem]:
    """The problems of the evaluators of a file's cases."""
    builder, found = EvaluatorBuilder(only_check=True), set[Problem]()
    with contextlib.suppress(AgentvError):
        for case in read_eval_file(path, lambda _: None):
            found.update(builder.problems(case, case.target))
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fuzz")


@given(st.sampled_from([".jsonl", ".yaml"]), st.binary(max_size=200))
@example(".yaml", b"\x00")
@example(".yaml", b"a: \xc2\x85 b\n- x")
@example(".jsonl", b"\xef\xbb\xbf")
@example(".jsonl", b"{}\n" * 3)
def test_random_bytes(folder: Path, suffix: str, data: bytes) -> None:
    loading, checking = verdicts(folder, suffix, data)
    assert loading == checking


@given(mutated(".jsonl"))
def test_mutated_jsonl(folder: Path, data: bytes) -> None:
    loading, checking = verdicts(folder, ".jsonl", data)
    assert loading == checking


@given(mutated(".yaml"))
def test_mutated_yaml(folder: Path, data: bytes) -> None:
    loading, checking = verdicts(folder, ".yaml", data)
    assert loading == checking
