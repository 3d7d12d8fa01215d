"""Shards of a run: their cases, their results, and the options that work with --shard."""

import asyncio
import hashlib
import json
import os
import subprocess
import sys
from itertools import chain
from pathlib import Path

import pytest

from agentv import evaluate
from agentv.cases.shard import Shard, shard_of
from agentv.errors import ConfigError
from tests.kits.project import Write, a_case, agentv
from tests.kits.runs import ECHO, target
from tests.kits.shards import CHECK, SCHEDULERS, ids, project, refused, rows, run_shards


@pytest.fixture(autouse=True)
def no_scheduler(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in SCHEDULERS:
        monkeypatch.delenv(name, raising=False)


def test_shards_are_disjoint_and_complete(write: Write) -> None:
    project(write, 30)
    found = [ids(file) for file in run_shards(4)]
    assert sorted(chain(*found)) == sorted(f"case-{number}" for number in range(30))
    assert all(found)


def test_the_shard_of_a_case_never_changes() -> None:
    """Otherwise the shards of machines with different versions would be inconsistent."""
    assert [shard_of("capitals", f"case-{number}", 4) for number in range(8)] == [
        int.from_bytes(
            hashlib.blake2b(
                len(b"capitals").to_bytes(8, "big") + b"capitals" + f"case-{number}".encode(), digest_size=8
            ).digest(),
            "big",
        )
        % 4
        + 1
        for number in range(8)
    ]
    assert [shard_of("capitals", "paris", 7), shard_of("é\x00", "", 1000), shard_of("a", "bc", 1000)] == [3, 16, 402]
    assert shard_of("ab", "c", 1000) != shard_of("a", "bc", 1000)  # the names are kept apart


def test_shards_do_not_depend_on_the_hash_seed_of_python() -> None:
    code = "from agentv.cases.shard import shard_of; print([shard_of('a', str(n), 5) for n in range(50)])"
    printed = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("0", "1", "42")
    }
    assert len(printed) == 1


def test_a_case_stays_in_its_shard_when_others_are_added(write: Write) -> None:
    project(write, 20)
    before = ids(run_shards(3)[1])
    cases = [json.loads(line) for line in Path("evals/some.jsonl").read_text().splitlines()]
    write("evals/some.jsonl", [*reversed(cases), a_case("another", evaluators=CHECK)])
    write("evals/before.jsonl", [a_case(f"x{number}", evaluators=CHECK) for number in range(9)])
    after = [row["eval_id"] for row in rows(run_shards(3)[1]) if row["dataset"] == "some"]
    assert sorted(set(after) - {"another"}) == sorted(before)


def test_results_record_their_shard_and_plan(write: Write) -> None:
    project(write, 10)
    files = run_shards(3)
    found = [row for file in files for row in rows(file)]
    (digest,) = {row["plan"]["digest"] for row in found}
    assert len(digest) == 12
    assert {row["plan"]["cases"] for row in found} == {10}
    for number, file in enumerate(files, 1):
        for row in rows(file):
            assert row["shard"] == f"{number}/3"
            assert row["plan"] == {"digest": digest, "cases": 10, "shard_cases": len(rows(file))}
    agentv("eval", "evals", "--out", "whole.jsonl")
    assert not any("shard" in row or "plan" in row for row in rows("whole.jsonl"))


def digest_of(*args: str, cwd: Path | None = None) -> str:
    """The digest of the plan of the one shard of a run."""
    ran = agentv("eval", "evals", "--quiet", "--shard", "1/1", "--out", "digest.jsonl", *args, cwd=cwd)
    assert ran.returncode == 0, ran.stderr
    (found,) = {row["plan"]["digest"] for row in rows((cwd or Path()) / "digest.jsonl")}
    return str(found)


def test_the_digest_of_a_plan_is_that_of_cases_targets_and_evaluators(write: Write) -> None:
    project(write, 5)
    cases = [a_case(f"case-{number}", evaluators=CHECK) for number in range(5)]
    first = digest_of()
    seen = {first}

    def is_new(*args: str) -> bool:
        found = digest_of(*args)
        new = found not in seen
        seen.add(found)
        return new

    write("evals/some.jsonl", [*reversed(cases)])
    assert digest_of() == first  # the order of cases does not count
    write("evals/some.jsonl", cases)
    assert is_new("--trials", "2")
    assert is_new("--limit", "4")
    assert is_new("--eval-id", "case-1")
    write("evals/some.jsonl", [{**cases[0], "expected_outcome": "Another"}, *cases[1:]])
    assert is_new()
    write("evals/some.jsonl", [{**cases[0], "evaluators": [{"type": "contains", "value": "ello"}]}, *cases[1:]])
    assert is_new()
    block = {"type": "file", "value": "notes.txt"}
    with_file = {**cases[0], "input_messages": [{"role": "user", "content": [block]}]}
    write("evals/notes.txt", "one")
    write("evals/some.jsonl", [with_file, *cases[1:]])
    assert is_new()
    write("evals/notes.txt", "two")
    assert is_new()
    write("evals/some.jsonl", cases)
    write("targets.yaml", "targets: [{name: default, provider: mock, response: hello you}]\n")
    assert is_new()


def test_the_digest_does_not_depend_on_places_or_on_the_order_of_files(write: Write, tmp_path: Path) -> None:
    for folder, names in (("one", ("a", "b")), ("two/deeper", ("b", "a"))):
        write(f"{folder}/targets.yaml", "targets: [{name: default, provider: mock, response: hello there}]\n")
        for number, name in enumerate(names):
            head = f"dataset: {name}\nexecution:\n  evaluators: [{{type: contains, value: hello}}]\nevalcases:\n"
            write(f"{folder}/evals/{number}.yaml", f"{head}  - {{id: {name}, expected_outcome: x, input: y}}\n")
    assert digest_of(cwd=Path("one")) == digest_of(cwd=Path("two/deeper"))


def test_the_judge_is_a_part_of_the_plan(write: Write) -> None:
    write("evals/some.jsonl", [a_case("a")])
    text = "targets:\n  - {name: default, provider: mock, response: hello, judge_target: j}\n"
    text += "  - {name: j, provider: mock, response: '{\"score\": SCORE}'}\n"
    write("targets.yaml", text.replace("SCORE", "1"))
    first = digest_of()
    write("targets.yaml", text.replace("SCORE", "0"))
    assert digest_of() != first


def test_trials_of_a_case_stay_together(write: Write) -> None:
    project(write, 8)
    for file in run_shards(2, "--trials", "3"):
        found = rows(file)
        assert sorted(row["trial"] for row in found) == sorted([1, 2, 3] * (len(found) // 3))
        assert {row["plan"]["cases"] for row in found} == {24}
        assert {row["plan"]["shard_cases"] for row in found} == {len(found)}


def test_a_batch_contains_only_the_cases_of_its_shard(write: Write) -> None:
    write("echo.py", f"{ECHO}\nimport shutil\nshutil.copy(sys.argv[1], sys.argv[3])\n")
    command = f"{sys.executable} {Path('echo.py').absolute()} {{BATCH_FILE}} {{OUTPUT_FILE}} {Path('asked').absolute()}"
    write("targets.yaml", target(command, provider_batching=True))
    write("evals/some.jsonl", [a_case(f"case-{n}", evaluators=[{"type": "contains", "value": ""}]) for n in range(9)])
    seen: list[str] = []
    for file, number in zip(run_shards(2), (1, 2), strict=True):
        seen += ids(file)
        if number == 2:
            assert sorted(json.loads(line)["id"] for line in Path("asked").read_text().splitlines()) == sorted(
                ids(file)
            )
    assert sorted(seen) == sorted(f"case-{n}" for n in range(9))


def test_a_limit_comes_before_the_shards(write: Write) -> None:
    project(write, 20)
    found = sorted(chain(*map(ids, run_shards(3, "--limit", "7"))))
    assert found == sorted(f"case-{number}" for number in range(7))


def test_failed_in_comes_before_the_shards(write: Write) -> None:
    project(write, 20)
    agentv("eval", "evals", "--out", "whole.jsonl")
    failed = [{**row, "verdict": "fail", "score": 0} for row in rows("whole.jsonl")[:9]]
    write("failed.jsonl", "".join(json.dumps(row) + "\n" for row in failed))
    found = sorted(chain(*map(ids, run_shards(2, "--failed-in", "failed.jsonl"))))
    assert found == sorted(row["eval_id"] for row in failed)


def an_empty_shard(total: int = 3) -> str:
    (here,) = {shard_of("some", "case-0", total)}
    return f"{here % total + 1}/{total}"


def test_an_empty_shard_writes_an_empty_file_and_reports_it(write: Write) -> None:
    project(write, 1)
    shard = an_empty_shard()
    ran = agentv("eval", "evals", "--shard", shard, "--out", "out.jsonl", "--fail-under", "0.9", "--junit", "out.xml")
    assert ran.returncode == 0
    assert Path("out.jsonl").read_bytes() == b""
    assert f"shard {shard}: no cases" in ran.stderr.splitlines()[0]
    assert ran.stdout.startswith(f"SHARD {shard}: 0 of 1 result (plan ")
    assert "this shard has no cases, so the results file is empty" in ran.stdout
    ran = agentv("eval", "evals", "--shard", shard, "--out", "out.jsonl", "--resume")
    assert ran.returncode == 0, ran.stderr


def test_what_is_shown_and_recorded_names_the_shard(write: Write) -> None:
    project(write, 6)
    ran = agentv("eval", "evals", "--shard", "1/2", "--out", "out.jsonl")
    found = rows("out.jsonl")
    assert ran.stderr.startswith(f"shard 1/2: running {len(found)} cases from 1 file on default (mock)")
    assert ran.stdout.splitlines()[0] == f"SHARD 1/2: {len(found)} of 6 results (plan {found[0]['plan']['digest']})"
    (record,) = [json.loads(path.read_text()) for path in Path(".agentv/runs").glob("*.json")]
    assert record["shard"] == "1/2"
    assert "  1/2  " in agentv("runs").stdout


def test_a_shard_is_resumed_and_gets_the_plan_as_it_is_now(write: Write) -> None:
    project(write, 12)
    file = run_shards(2)[0]
    whole = rows(file)
    Path(file).write_text("".join(json.dumps(row, separators=(",", ":")) + "\n" for row in whole[:2]))
    more = [a_case(f"case-{number}", evaluators=CHECK) for number in range(14)]
    write("evals/some.jsonl", more)
    ran = agentv("eval", "evals", "--shard", "1/2", "--out", file, "--resume")
    assert ran.returncode == 0, ran.stderr
    assert "2 already done" in ran.stderr
    found = rows(file)
    assert sorted(row["eval_id"] for row in found if row in found) == sorted(
        f"case-{number}" for number in range(14) if shard_of("some", f"case-{number}", 2) == 1
    )
    (plan,) = {json.dumps(row["plan"]) for row in found}
    assert json.loads(plan) == {"digest": found[0]["plan"]["digest"], "cases": 14, "shard_cases": len(found)}
    assert {row["run_id"] for row in whole[:2]} < {row["run_id"] for row in found}


def test_a_file_of_another_shard_is_not_resumed(write: Write) -> None:
    project(write)
    first, second = run_shards(2)
    agentv("eval", "evals", "--out", "whole.jsonl")
    args = ("eval", "evals", "--quiet", "--resume", "--out")
    said = refused(*args, second, "--shard", "1/2")
    assert f"{second}: cannot resume: the file has results of shard 2/2, but this is shard 1/2" in said
    assert "use a separate --out for each shard" in said
    assert "of a run without --shard, but this is shard 1/2" in refused(*args, "whole.jsonl", "--shard", "1/2")
    assert "of shard 1/2, but this is a run without --shard" in refused(*args, first)
    said = refused(*args, first, "--shard", "1/2", "--eval-id", ids(first)[0])
    assert "cannot resume shard 1/2: " in said and "is no longer selected" in said


def test_equal_dataset_names_in_two_files_are_an_error(write: Write) -> None:
    project(write, 1)
    write("evals/other.yaml", "dataset: some\nevalcases: [{id: case-0, expected_outcome: x, input: y}]\n")
    for shard in ("1/2", "2/2"):
        said = refused("eval", "evals", "--quiet", "--shard", shard, "--dry-run", "--out", "out.jsonl")
        assert "--shard: two eval files have the same dataset name and the same ids" in said


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("0/4", "invalid value for --shard: '0/4' (I must be between 1 and 4)"),
        ("5/4", "invalid value for --shard: '5/4' (I must be between 1 and 4)"),
        ("1/0", "invalid value for --shard: '1/0' (N must be at least 1)"),
        ("a/b", "invalid value for --shard: 'a/b' (expected I/N, for example 2/4)"),
        ("-1/4", "invalid value for --shard: '-1/4' (expected I/N, for example 2/4)"),
        ("2", "invalid value for --shard: '2' (expected I/N, for example 2/4)"),
        ("", "invalid value for --shard: '' (expected I/N, for example 2/4)"),
        ("1/4/", "invalid value for --shard: '1/4/' (expected I/N, for example 2/4)"),
        ("٣/٤", "invalid value for --shard: '٣/٤' (expected I/N, for example 2/4)"),
    ],
)
def test_an_invalid_shard_is_an_error(text: str, said: str, write: Write) -> None:
    project(write)
    found = refused("eval", "evals", "--shard", text)
    assert f"error: {said}" in found
    assert "pass I/N, for example 2/4 for the second of four shards, or auto" in found


@pytest.mark.parametrize(
    ("variables", "shard"),
    [
        ({"CI_NODE_INDEX": "2", "CI_NODE_TOTAL": "4"}, "2/4"),
        ({"CI_NODE_TOTAL": "1"}, "1/1"),
        ({"CIRCLE_NODE_INDEX": "0", "CIRCLE_NODE_TOTAL": "4"}, "1/4"),
        ({"CIRCLE_NODE_INDEX": "3", "CIRCLE_NODE_TOTAL": "4"}, "4/4"),
        ({"BUILDKITE_PARALLEL_JOB": "0", "BUILDKITE_PARALLEL_JOB_COUNT": "5"}, "1/5"),
        ({"JOB_COMPLETION_INDEX": "0", "JOB_COMPLETIONS": "3"}, "1/3"),
        ({"SLURM_ARRAY_TASK_ID": "1", "SLURM_ARRAY_TASK_COUNT": "4", "SLURM_ARRAY_TASK_MIN": "1"}, "1/4"),
        ({"SLURM_ARRAY_TASK_ID": "3", "SLURM_ARRAY_TASK_COUNT": "4", "SLURM_ARRAY_TASK_MIN": "0"}, "4/4"),
        (
            {
                "SLURM_ARRAY_TASK_ID": "14",
                "SLURM_ARRAY_TASK_COUNT": "3",
                "SLURM_ARRAY_TASK_MIN": "10",
                "SLURM_ARRAY_TASK_STEP": "2",
            },
            "3/3",
        ),
        ({"CI_NODE_TOTAL": "1", "SLURM_ARRAY_TASK_ID": "0", "SLURM_ARRAY_TASK_COUNT": "2"}, "1/2"),
        (
            {"CI_NODE_INDEX": "1", "CI_NODE_TOTAL": "2", "CIRCLE_NODE_INDEX": "0", "CIRCLE_NODE_TOTAL": "2"},
            "1/2",
        ),
    ],
)
def test_auto_reads_the_schedulers_variables(variables: dict[str, str], shard: str) -> None:
    assert str(Shard.parse("auto", variables)) == shard


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({"CI_NODE_INDEX": "0", "CI_NODE_TOTAL": "4"}, "CI_NODE_INDEX is 0, CI_NODE_TOTAL is 4"),
        ({"CIRCLE_NODE_INDEX": "4", "CIRCLE_NODE_TOTAL": "4"}, "CIRCLE_NODE_INDEX is 4, CIRCLE_NODE_TOTAL is 4"),
        ({"CI_NODE_INDEX": "2"}, "CI_NODE_INDEX is set, but CI_NODE_TOTAL is not"),
        ({"JOB_COMPLETION_INDEX": "2"}, "JOB_COMPLETION_INDEX is set, but JOB_COMPLETIONS is not"),
        ({"CI_NODE_INDEX": "x", "CI_NODE_TOTAL": "4"}, "CI_NODE_INDEX is not a number: 'x'"),
        (
            {"SLURM_ARRAY_TASK_ID": "7", "SLURM_ARRAY_TASK_COUNT": "3", "SLURM_ARRAY_TASK_MIN": "1"},
            "SLURM_ARRAY_TASK_ID is 7, SLURM_ARRAY_TASK_COUNT is 3, the first is 1, the step 1",
        ),
        (
            {"CI_NODE_INDEX": "1", "CI_NODE_TOTAL": "2", "CIRCLE_NODE_INDEX": "1", "CIRCLE_NODE_TOTAL": "2"},
            "CI_NODE_INDEX and CI_NODE_TOTAL give 1/2, CIRCLE_NODE_INDEX and CIRCLE_NODE_TOTAL give 2/2",
        ),
    ],
)
def test_inconsistent_variables_are_reported(variables: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Shard.parse("auto", variables)
    assert said in str(caught.value)


def test_auto_without_variables_lists_the_supported_ones(write: Write) -> None:
    project(write)
    said = refused("eval", "evals", "--shard", "auto")
    assert "error: --shard auto: no CI or scheduler variables are set" in said
    for name in set(SCHEDULERS) - {"SLURM_ARRAY_TASK_MIN", "SLURM_ARRAY_TASK_STEP"}:
        assert name in said


def test_auto_on_the_command_line(write: Write) -> None:
    project(write)
    variables = {"CI_NODE_INDEX": "2", "CI_NODE_TOTAL": "3"}
    ran = agentv("eval", "evals", "--shard", "auto", "--out", "out.jsonl", env={**os.environ, **variables})
    assert ran.returncode == 0, ran.stderr
    assert {row["shard"] for row in rows("out.jsonl")} == {"2/3"}


def test_from_python(write: Write) -> None:
    project(write, 9)
    reports = [asyncio.run(evaluate("evals", shard=f"{number}/2")) for number in (1, 2)]
    assert sorted(result.eval_id for report in reports for result in report.results) == sorted(
        f"case-{number}" for number in range(9)
    )
    first = reports[0].results[0]
    assert first.shard == "1/2"
    assert first.plan is not None and first.plan.cases == 9
    with pytest.raises(ConfigError, match="invalid value for shard"):
        asyncio.run(evaluate("evals", shard="x"))
