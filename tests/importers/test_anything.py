"""Any source: an import ends with a readable file or an explained error."""

import copy
import json
import random
from pathlib import Path
from typing import Any

import pytest

from agentv.errors import AgentvError
from agentv.importers.convert import open_import
from agentv.importers.importer import Becomes, ImportOptions, Tally
from agentv.project.validate import check_file
from agentv.results.read import read_results
from agentv.results.views import PageView
from tests.kits.foreign import ROLLOUT, a_document, a_log, a_sample, a_session
from tests.kits.project import Write

JUNK: tuple[Any, ...] = (
    *(
        None,
        True,
        0,
        -1,
        1e308,
        10**30,
        float("nan"),
        "",
        "x",
        "\ud83d",
        "{{",
        "{{ a.b[0] }}",
        "file://",
        "file://x.py",
    ),
    *([], {}, [None], {"a": 1}, ["a", {"type": "text"}], {"type": "text", "text": 5}),
)
CONFIG = {
    "prompts": ["{{q}}", {"raw": '[{"role": "user", "content": "{{q}}"}]', "label": "l"}],
    "defaultTest": {"vars": {"q": "a"}, "assert": [{"type": "not-contains", "value": "x"}]},
    "scenarios": [{"config": [{"vars": {"q": "b"}}], "tests": [{"vars": {"r": 1}}]}],
    "tests": [
        {"vars": {"q": ["a", "b"]}, "assert": [{"type": "is-json", "value": {"type": "object", "required": ["a"]}}]},
        {
            "assert": [{"type": "regex", "value": "a"}, {"type": "contains-any", "value": ["a"], "weight": 2}],
            "prompts": ["l"],
        },
        {
            "assert": [
                {
                    "type": "assert-set",
                    "assert": [{"type": "llm-rubric", "value": "v"}, {"type": "cost", "threshold": 1}],
                }
            ]
        },
    ],
}
ROWS = [
    {"id": number, "input": [{"role": "user", "content": "a"}], "ideal": ["a"], "x": {"y": 1}} for number in range(5)
]


def changed(value: Any, chance: random.Random, share: float) -> Any:
    """A copy of a value in which some parts are others."""
    if chance.random() < share:
        return copy.deepcopy(chance.choice(JUNK))
    if isinstance(value, dict):
        found = {key: changed(inner, chance, share) for key, inner in value.items()}
        if found and chance.random() < share:
            found.pop(chance.choice(list(found)))
        return found
    return [changed(inner, chance, share) for inner in value] if isinstance(value, list) else value


def check(source: Path, name: str) -> None:
    """An import writes a readable file or raises an `AgentvError`."""
    tally = Tally()
    try:
        job = open_import(source, name, ImportOptions())
        out = Path(f"out{job.importer.suffix}")
        job.write(out, tally)
    except AgentvError:
        return
    match job.importer.becomes:
        case Becomes.CASES:
            assert [problem for problem in check_file(out).problems if problem.severity == "error"] == []
        case Becomes.RESULTS:
            assert len(list(read_results(out, PageView))) == tally.written
        case Becomes.ANSWERS:
            assert all(json.loads(line)["id"] for line in out.read_text().splitlines())


@pytest.mark.parametrize("seed", range(4))
def test_any_value_in_any_field_is_handled(write: Write, seed: int) -> None:
    chance = random.Random(seed)
    lines = {
        "claude-code": a_session().records,
        "codex": ROLLOUT,
        "lm-eval": [a_document(number) for number in range(5)],
        "openai-evals": ROWS,
        "jsonl": ROWS,
    }
    for _ in range(30):
        share = chance.choice([0.003, 0.01, 0.05])
        for name, records in lines.items():
            text = "".join(json.dumps(changed(record, chance, share)) + "\n" for record in records)
            check(write("a.jsonl", text), name)
        log = json.loads(a_log(*(a_sample(number) for number in range(3))))
        check(write("a.json", json.dumps(changed(log, chance, share))), "inspect")
        check(write("c.json", json.dumps(changed(CONFIG, chance, share))), "promptfoo")
        table = bytearray(b'id;"question";answer\n1;"a\n";b\n2;x;"y ""z"""\n')
        table[chance.randrange(len(table))] = chance.randrange(256)
        check(write("a.csv", bytes(table)), "csv")
