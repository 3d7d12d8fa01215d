"""Filters on pages: the JavaScript selects the same results as the commands.

`tests/kits/filters.json` has filters with a result and whether it matches, or with what is wrong. The modules of the page
run in Node, on the columns that a page has.
"""

import json
import math
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest

from agentv.errors import ConfigError
from agentv.filters.match import Filter
from agentv.report.page.index import Rows, RunIndex, fields_of
from agentv.results.views import PageView
from tests.kits.node import require_node

ROOT = Path(__file__).parent.parent.parent
ASSETS = ROOT / "src" / "agentv" / "report" / "page" / "assets"
RUNNER = ROOT / "tests" / "kits" / "filters.mjs"
VECTORS: list[dict[str, Any]] = json.loads((ROOT / "tests" / "kits" / "filters.json").read_text())
IS_NO_TERM = "is not a term (expected KEY:VALUE)"
"""What commands say of a word without a key. A page searches for it."""


def page_answers(results: Sequence[dict[str, Any]], filters: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows that each filter selects on the page of these results, or its problem."""
    rows = Rows()
    index = RunIndex()
    fields = []
    for number, result in enumerate(results):
        view = msgspec.convert(result, PageView)
        index.add(rows.number(number, view.eval_id), view)
        fields.append(fields_of(view).decode())
    columns = {name: [None if math.isnan(value) else value for value in numbers] for name, numbers in numbers_of(index)}
    names = index.names
    data = {
        "columns": columns,
        "fields": fields,
        "results": [json.dumps(result, ensure_ascii=False) for result in results],
        "ids": [result["eval_id"] for result in results],
        "meta": {
            "datasets": list(names.datasets),
            "targets": list(names.targets),
            "evaluators": list(names.evaluators),
        },
        "filters": list(filters),
    }
    ran = subprocess.run(
        [require_node(), str(RUNNER), ASSETS.as_uri()],
        input=json.dumps(data),
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    found: list[dict[str, Any]] = json.loads(ran.stdout)
    return found


def numbers_of(index: RunIndex) -> Iterator[tuple[str, Sequence[float]]]:
    for name, _ in index.columns():
        yield name, list(getattr(index, name.replace("-", "_")))


@pytest.fixture(scope="module")
def answers() -> list[dict[str, Any]]:
    """The page's result for each vector. A row of the page is the row of a vector."""
    rows = [vector.get("row", {"eval_id": "none", "score": 0}) for vector in VECTORS]
    return page_answers(rows, VECTORS)


def test_rows_match_the_shared_test_vectors(answers: list[dict[str, Any]]) -> None:
    wrong = []
    for number, (vector, answer) in enumerate(zip(VECTORS, answers, strict=True)):
        if "matches" in vector and (number in answer.get("rows", ())) is not vector["matches"]:
            wrong.append((vector, answer.get("problem")))
    assert wrong == []


def test_invalid_terms_are_explained_like_on_the_command_line(answers: list[dict[str, Any]]) -> None:
    wrong = []
    for vector, answer in zip(VECTORS, answers, strict=True):
        error = vector.get("error")
        if error is None:
            continue
        if error.endswith(IS_NO_TERM):
            if not answer["texts"] and "problem" not in answer:
                wrong.append((vector, answer))
        elif answer.get("problem") != error.replace("\\\\", "\\"):  # Python doubles them in quotes
            wrong.append((vector, answer))
    assert wrong == []


WORDS = ["a", "b", "ab", "A", "a b", "a*", "?", "1", "1.0", "0.5", "true", "é", '"', "a.b", ""]
NUMBERS = [-1, 0, 1, 3, 0.5, 0.505, 0.1, 0.7, 1e6, 2.0]
SCORES = [0, 0.1, 0.495, 0.5, 0.505, 0.6, 0.7, 0.8, 1]
VERDICTS = ["pass", "borderline", "fail"]
KEYS = [
    "id",
    "tag",
    "dataset",
    "target",
    "verdict",
    "score",
    "error",
    "note",
    "duration",
    "cost",
    "evaluator",
    "nothing",
]
NAMED_KEYS = ["metadata", "vars", "evaluator"]
VALUES = [*WORDS, *map(str, NUMBERS), "pass", "fail", "borderline", "error", "yes", "no", "a?", "*", "{}", "[r]"]
OPERATORS = [":", ":", "<", "<=", ">", ">=", "="]
CHARACTERS = 'ab.:<>="-\\* \t1٣−' + "idtagscore"


class Made:
    """Random results and filters; a filter may be invalid."""

    def __init__(self, seed: int):
        self.random = Random(seed)

    def value(self, depth: int = 0) -> Any:
        kind = self.random.randrange(5)
        if kind == 0 and depth < 3:
            return [self.value(depth + 1) for _ in range(self.random.randrange(3))]
        if kind == 1 and depth < 3:
            return self.mapping(depth + 1)
        return self.random.choice([*WORDS, *NUMBERS, True, False, None])

    def mapping(self, depth: int = 0) -> dict[str, Any]:
        return {self.random.choice(WORDS): self.value(depth) for _ in range(self.random.randrange(4))}

    def score(self) -> dict[str, Any]:
        """The score of an evaluator, which may not apply or not be judged."""
        name = self.random.choice([word for word in WORDS if word])
        kind = self.random.randrange(4)
        if kind == 0:
            return {"name": name, "score": None, "verdict": None}
        if kind == 1:
            return {"name": name, "score": 0, "verdict": "fail", "failed": True}
        return {"name": name, "score": self.random.choice(SCORES), "verdict": self.random.choice(VERDICTS)}

    def result(self) -> dict[str, Any]:
        choice = self.random.choice
        failure = choice([None, None, None, "target", "timeout", "judge"])
        result: dict[str, Any] = {
            "eval_id": choice([word for word in WORDS if word]),
            "dataset": choice(WORDS),
            "target": choice(WORDS),
            "score": choice(SCORES),
            "verdict": choice(VERDICTS),
            "tags": choice([None, [], [choice(WORDS)], [choice(WORDS), choice(WORDS)]]),
            "metadata": choice([None, self.mapping()]),
            "vars": choice([None, self.mapping()]),
            "note": choice([None, "noted"]),
            "stop_reason": choice([None, "length", "stop"]),
            "failure": failure,
            "evaluator_results": [self.score() for _ in range(self.random.randrange(4))],
            "execution_metrics": {"duration_ms": choice([None, *NUMBERS]), "cost_usd": choice([None, *NUMBERS])},
        }
        if failure in ("target", "timeout"):
            result["error"] = "it failed"
        return result

    def term(self) -> str:
        choice = self.random.choice
        key = choice(KEYS)
        if choice([True, False]):
            name = choice(WORDS).replace('"', '\\"')
            key = f'{choice(NAMED_KEYS)}."{name}"'
        value = choice(VALUES).replace('"', '\\"')
        return f'{choice(["", "-"])}{key}{choice(OPERATORS)}"{value}"'

    def filter(self) -> str:
        if self.random.randrange(4) == 0:
            return "".join(self.random.choices(CHARACTERS, k=self.random.randrange(1, 20)))
        return " ".join(self.term() for _ in range(self.random.randrange(1, 4)))


@pytest.mark.parametrize("seed", range(3))
def test_pages_and_commands_select_the_same(seed: int) -> None:
    made = Made(seed)
    results = [made.result() for _ in range(60)]
    filters = [made.filter() for _ in range(3000)]
    views = [msgspec.convert(result, PageView) for result in results]
    answers = page_answers(results, [{"filter": text} for text in filters])
    wrong = []
    selecting = 0
    for text, answer in zip(filters, answers, strict=True):
        try:
            selector = Filter.parse([text], "results")
        except ConfigError:
            # a page searches for words and for what is in quotes
            if "problem" not in answer and not answer["texts"] and text.strip():
                wrong.append((text, answer))
            continue
        expected = [number for number, view in enumerate(views) if selector.matches(view)]
        selecting += bool(expected)
        if answer != {"rows": expected, "texts": []}:
            wrong.append((text, answer))
    assert wrong[:3] == []
    assert selecting > 200
