"""An invalid labels file does not stop a run, and is reported."""

from pathlib import Path

import pytest

from tests.kits.project import Write, a_case, agentv

TARGETS = """targets:
- {name: default, provider: mock, response: Hi, judge_target: judge}
- {name: judge, provider: mock, response: '{"reasoning": "fine", "score": 1}'}
"""


@pytest.mark.parametrize(
    ("labels", "warning"),
    [
        ("nonsense\n", "warning: .agentv/labels.jsonl:1:1: "),
        ("", ""),
        ('{"eval_id": "other", "answer_digest": "0123456789abcdef", "label": "pass"}\n', ""),
    ],
)
def test_an_invalid_labels_file_is_a_warning(write: Write, labels: str, warning: str) -> None:
    write("targets.yaml", TARGETS)
    write("evals.jsonl", [a_case("one")])
    write(".agentv/labels.jsonl", labels)
    ran = agentv("eval", "evals.jsonl", "--out", "out.jsonl", "--quiet")
    assert ran.returncode == 0, ran.stderr
    assert Path("out.jsonl").read_text().count("\n") == 1
    assert "verdict: not checked" in ran.stdout
    assert warning in ran.stderr if warning else "labels.jsonl" not in ran.stderr
