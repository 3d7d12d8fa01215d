"""Samples of OpenAI's evals become eval cases."""

from tests.kits.imported import imported, refused, run_import, validates
from tests.kits.project import Write

CHAT = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Capital of France?", "name": "ann"}]


def test_samples_become_cases_that_validate(write: Write) -> None:
    write("s.jsonl", [{"input": CHAT, "ideal": "Paris"}, {"input": "2+2?", "ideal": ["4", "four"], "topic": "math"}])
    said = run_import("s.jsonl")
    assert said[:2] == ["detected format: openai-evals", "2 samples read, 2 cases written, 0 skipped"]
    assert imported("s.jsonl") == [
        {
            "id": "sample-1",
            "expected_outcome": "The answer agrees with the reference answer.",
            "input": CHAT,
            "expected_output": "Paris",
        },
        {
            "id": "sample-2",
            "expected_outcome": "The answer agrees with one of: 4; four",
            "input": "2+2?",
            "expected_output": "4",
            "metadata": {"topic": "math", "ideal": ["4", "four"]},
        },
    ]
    validates("s-cases.jsonl")


def test_samples_that_cannot_be_converted(write: Write) -> None:
    write("s.jsonl", [{"input": "", "ideal": "a"}, {"input": "a", "ideal": []}, {"input": [], "ideal": "a"}])
    said = run_import("s.jsonl", expect=1)
    assert said[1:4] == [
        "3 samples read, 0 cases written, 3 skipped",
        "  2 skipped: 'input' is missing (line 1, line 3)",
        "  1 skipped: 'ideal' is missing (line 2)",
    ]
    assert said[-1] == "error: s.jsonl: nothing could be imported"


def test_lines_that_are_not_samples(write: Write) -> None:
    write("s.jsonl", [{"question": "a", "answer": "b"}])
    assert refused("s.jsonl", "--from", "openai-evals") == (
        "error: s.jsonl:1: expected the fields 'input' and 'ideal', got 'question', 'answer'\n"
        "hint: use --from jsonl for other rows"
    )
    write("s.jsonl", [{"input": "a", "ideal": "b", "id": 7}, {"input": "a", "ideal": "b", "id": "7"}])
    assert "duplicate id '7': line 1 and line 2" in refused("s.jsonl")
