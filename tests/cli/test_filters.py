"""`--filter` of the commands that read results."""

import json
from typing import Any

import pytest

from tests.kits.comparisons import line
from tests.kits.project import Write, agentv

ROWS: list[dict[str, Any]] = [
    {"eval_id": "one", "score": 1, "tags": ["smoke"], "metadata": {"level": 1}},
    {"eval_id": "two", "score": 0.4, "tags": ["smoke", "slow"], "vars": {"tone": "rude"}},
    {"eval_id": "three", "score": 0, "error": "it broke"},
]


@pytest.fixture
def file(write: Write) -> str:
    write("r.jsonl", "".join(line(**row) for row in ROWS))
    return "r.jsonl"


@pytest.mark.parametrize(
    ("condition", "ids"),
    [
        ("tag:smoke", ["two", "one"]),
        ("tag:smoke score<0.5", ["two"]),
        ("error:yes", ["three"]),
        ("verdict:fail", ["three", "two"]),
        ("verdict:fail -verdict:error", ["two"]),
        ("vars.tone:rude", ["two"]),
        ("-tag:*", ["three"]),
    ],
)
def test_show_and_export_select_the_same_results(file: str, condition: str, ids: list[str]) -> None:
    shown = agentv("show", file, "--filter", condition, "--format", "json")
    assert shown.returncode == 0, shown.stderr
    assert [json.loads(row)["eval_id"] for row in shown.stdout.splitlines()] == ids
    exported = agentv("export", file, "--to", "jsonl", "--filter", condition)
    assert exported.returncode == 0, exported.stderr
    assert len(exported.stdout.splitlines()) == len(ids)


def test_filters_add_to_other_options(file: str) -> None:
    shown = agentv("show", file, "--filter", "tag:smoke", "--filter", "-tag:slow", "--format", "json")
    assert [json.loads(row)["eval_id"] for row in shown.stdout.splitlines()] == ["one"]
    shown = agentv("show", file, "--filter", "tag:smoke", "--failed", "--format", "json")
    assert [json.loads(row)["eval_id"] for row in shown.stdout.splitlines()] == ["two"]


def test_a_filter_without_failures_is_not_an_empty_filter(file: str) -> None:
    assert agentv("show", file, "--filter", "id:one", "--failed").stdout == "all cases passed\n"
    assert agentv("show", file, "--filter", "id:none", "--failed").returncode == 2


@pytest.mark.parametrize("command", [("show", "r.jsonl"), ("export", "r.jsonl", "--to", "csv")])
def test_empty_or_invalid_selections_are_errors(file: str, command: tuple[str, ...]) -> None:
    ran = agentv(*command, "--filter", "tag:none")
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr.startswith("error: r.jsonl: no result matches the filter 'tag:none'\nhint: ")
    ran = agentv(*command, "--filter", "scor<1")
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr == "error: invalid filter 'scor<1': unknown key 'scor'\nhint: did you mean 'score'?\n"
