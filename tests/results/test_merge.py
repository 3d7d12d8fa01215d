"""`agentv merge`: which files it joins, in which order, and what it rejects."""

import itertools
import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from agentv import compare_results
from agentv.results.merging.merge_index import MergeIndex
from agentv.results.views import ResultRow
from tests.kits.project import PRINT_PEAK_KB, Write, a_case, agentv, flat
from tests.kits.shards import CHECK, ids, merged, project, refused, rows, run_shards, save_rows

TIMES = ("timestamp", "run_id", "execution_metrics")


def timeless(path: str) -> list[str]:
    """The lines of a file without fields that vary between runs; everything else is unchanged, key by key."""
    return [json.dumps({name: value for name, value in row.items() if name not in TIMES}) for row in rows(path)]


def test_merged_shards_are_the_run_as_a_whole(write: Write) -> None:
    project(write, 20, metadata={"plan": {"a": 1}, "shard": "x"})
    agentv("eval", "evals", "--out", "whole.jsonl", "--workers", "4")
    files = run_shards(3, "--workers", "4")
    merged(*files)
    merged("whole.jsonl", out="other.jsonl")
    assert timeless("merged.jsonl") == timeless("other.jsonl")
    assert len(rows("merged.jsonl")) == 20
    assert not any("shard" in row or "plan" in row for row in rows("merged.jsonl"))
    assert {json.dumps(row["metadata"]) for row in rows("merged.jsonl")} == {'{"plan": {"a": 1}, "shard": "x"}'}


def test_the_order_of_the_files_does_not_matter(write: Write) -> None:
    project(write, 15)
    found = set()
    for files in itertools.permutations(run_shards(3)):
        merged(*files)
        found.add(Path("merged.jsonl").read_bytes())
    assert len(found) == 1


def test_results_are_in_order_of_dataset_id_target_and_trial(write: Write) -> None:
    names = [
        (dataset, eval_id, target, trial)
        for dataset in ("b", "a", "a\x00b", "ab")
        for eval_id in ("x", "x\x00", "xy", "é", "☃", "X")
        for target in ("t", "s")
        for trial in (10, 2, 1)
    ]
    random.Random(1).shuffle(names)
    save_rows(
        "one.jsonl",
        [{"eval_id": i, "score": 1, "dataset": d, "target": t, "trial": n} for d, i, t, n in names[::2]],
    )
    save_rows(
        "two.jsonl",
        [{"eval_id": i, "score": 1, "dataset": d, "target": t, "trial": n} for d, i, t, n in names[1::2]],
    )
    merged("two.jsonl", "one.jsonl")
    found = [(row["dataset"], row["eval_id"], row["target"], row["trial"]) for row in rows("merged.jsonl")]
    assert found == sorted(names)


@given(st.lists(st.tuples(st.text(), st.text(), st.text(), st.integers(1, 1000)), unique=True))
def test_the_index_sorts_as_python_does(names: list[tuple[str, str, str, int]]) -> None:
    index = MergeIndex()
    views = [ResultRow(eval_id=i, score=1, dataset=d, target=t, trial=n) for d, i, t, n in names]
    index.add(0, [(view, number, 1) for number, view in enumerate(views)])
    found = [names[group[0][1]] for group in index.groups()]
    assert found == sorted(
        names, key=lambda name: [text.encode("utf-8") if isinstance(text, str) else text for text in name]
    )


def test_the_summary_is_that_of_the_whole(write: Write) -> None:
    project(write, 9)
    agentv("eval", "evals", "--out", "whole.jsonl")
    (whole, parts) = (merged("whole.jsonl"), merged(*run_shards(2), out="parts.jsonl"))
    assert "9 planned = 9 scored" in parts
    cut = [text.split("duration")[0] for text in (whole, parts)]
    assert cut[0].partition("SUMMARY")[2] == cut[1].partition("SUMMARY")[2]
    assert parts.endswith("Results: parts.jsonl\n")


def test_trials_are_summed_up_by_case(write: Write) -> None:
    project(write, 6)
    said = merged(*run_shards(2, "--trials", "2"))
    assert "12 runs planned (6 cases, 2 trials each) = 12 scored" in said
    assert "pass@2" in said


def test_yaml_goes_in_and_out(write: Write) -> None:
    project(write, 8)
    files = run_shards(2)
    merged(*files)
    agentv("eval", "evals", "--quiet", "--shard", "1/2", "--out", "one.yaml")
    merged("one.yaml", files[1], out="mixed.jsonl")
    assert timeless("mixed.jsonl") == timeless("merged.jsonl")
    merged(*files, out="merged.yaml")
    documents = list(yaml.safe_load_all(Path("merged.yaml").read_text()))
    assert [document["eval_id"] for document in documents] == ids("merged.jsonl")
    assert not any("shard" in document for document in documents)


def test_rewritten_results_lose_their_shard(write: Write) -> None:
    project(write, 8)
    first, second = run_shards(2)
    again = [{"metadata": {"x": 1}, **{k: row[k] for k in sorted(row)}} for row in rows(first)]
    save_rows("again.jsonl", again)
    save_rows("joined.jsonl", [*again, *rows(second)])
    merged("again.jsonl", second)
    assert not any("shard" in row or "plan" in row for row in rows("merged.jsonl"))
    merged("joined.jsonl", out="other.jsonl")  # two shards in one file
    assert len(rows("other.jsonl")) == 8
    assert not any("shard" in row or "plan" in row for row in rows("other.jsonl"))


def test_a_byte_order_mark_empty_lines_and_a_missing_final_newline(write: Write) -> None:
    lines = [json.dumps({"eval_id": id_, "score": 1}) for id_ in "ab"]
    Path("a.jsonl").write_bytes(b"\xef\xbb\xbf" + f"\n{lines[1]}\r\n\n{lines[0]}".encode())
    merged("a.jsonl")
    assert Path("merged.jsonl").read_text() == f"{lines[0]}\n{lines[1]}\n"


def test_an_empty_shard_may_be_named_or_not(write: Write) -> None:
    project(write, 2)
    files = run_shards(8)
    empty = [file for file in files if not Path(file).stat().st_size]
    assert len(empty) >= 6
    merged(*files)
    whole = Path("merged.jsonl").read_bytes()
    merged(*(file for file in files if file not in empty), out="other.jsonl")
    assert Path("other.jsonl").read_bytes() == whole
    assert ": no results" in refused("merge", *empty, "--out", "out.jsonl")


def test_a_missing_shard(write: Write) -> None:
    project(write, 12)
    first, second, third = run_shards(3)
    missing = len(rows(third))
    said = refused("merge", first, second, "--out", "out.jsonl")
    assert f"error: {first}: shard 3/3 of this run is missing, with {missing} of 12 results" in said
    assert "to merge incomplete results, use 'agentv merge --partial'" in said
    said = refused("merge", first, "--out", "out.jsonl")
    assert f"shards 2/3, 3/3 of this run are missing, with {12 - len(rows(first))} of 12 results in all" in said
    ran = agentv("merge", first, second, "--partial", "--out", "out.jsonl")
    assert ran.returncode == 0
    assert f"warning: {first}: shard 3/3 of this run is missing" in ran.stderr
    assert f"12 planned = {12 - missing} scored + {missing} not run" in ran.stdout
    assert len(rows("out.jsonl")) == 12 - missing


def test_an_incomplete_shard(write: Write) -> None:
    project(write, 12)
    first, second = run_shards(2)
    found = rows(first)
    save_rows("part.jsonl", found[:-1])
    said = refused("merge", "part.jsonl", second, "--out", "out.jsonl")
    assert f"part.jsonl: shard 1/2 is incomplete: it has {len(found) - 1} of {len(found)} results" in said
    assert "agentv eval --shard 1/2 --resume" in said
    ran = agentv("merge", "part.jsonl", second, "--partial", "--out", "out.jsonl")
    assert ran.returncode == 0
    assert "warning: part.jsonl: shard 1/2 is incomplete" in ran.stderr
    assert len(rows("out.jsonl")) == 11
    # what is there twice does not make up for what is missing
    save_rows("twice.jsonl", [*found[:-1], found[0]])
    assert "is incomplete" in refused("merge", "twice.jsonl", second, "--out", "other.jsonl")


def test_the_same_shard_twice(write: Write) -> None:
    project(write, 10)
    first, second = run_shards(2)
    merged(first, second)
    (again, _) = run_shards(2, name="again")
    assert rows(again) != rows(first)  # other times, another run
    said = merged(first, second, again, first, out="other.jsonl")
    count = 2 * len(rows(first))
    assert f"{count} duplicate results found in several files, counted once" in said
    assert "10 planned = 10 scored" in said
    assert Path("other.jsonl").read_bytes() == Path("merged.jsonl").read_bytes()
    merged(again, first, second, out="third.jsonl")
    assert Path("third.jsonl").read_bytes() == Path("merged.jsonl").read_bytes()


def test_the_same_shard_twice_with_other_answers(write: Write) -> None:
    project(write, 40)
    first, second = run_shards(2)
    other = save_rows("other.jsonl", [{**row, "candidate_answer": "x"} for row in rows(first)])
    said = refused("merge", first, second, other, "--out", "out.jsonl")
    found = sorted(ids(first))
    expected = f"case {found[0]!r} of 'some' on 'default' is in other.jsonl and in {first}, with different content"
    assert expected in said
    assert f"and {len(found) - 10} more such cases" in said
    assert "if a shard was run twice, pass only one of its files" in said
    assert "with different content" in refused("merge", first, second, other, "--partial", "--out", "out.jsonl")


def test_shards_of_different_plans(write: Write) -> None:
    project(write, 10)
    first, _ = run_shards(2)
    write("evals/some.jsonl", [a_case(f"case-{number}", evaluators=CHECK) for number in range(11)])
    _, second = run_shards(2, name="new")
    said = refused("merge", first, second, "--out", "out.jsonl")
    digests = [rows(file)[0]["plan"]["digest"] for file in (first, second)]
    assert (
        f"{first}: shard 1/2 is of plan {digests[0]} (10 results), and {second}: shard 2/2 is of plan {digests[1]}"
        in said
    )
    assert "the cases, targets, evaluators or trials were not the same: re-run the shards" in said
    assert "of plan" in refused("merge", first, second, "--partial", "--out", "out.jsonl")


def test_shards_of_different_divisions(write: Write) -> None:
    project(write, 10)
    first, _ = run_shards(2)
    _, second, _ = run_shards(3, name="three")
    assert f"it is shard 2/3, and {first} is shard 1/2" in refused("merge", first, second, "--out", "out.jsonl")


def test_shards_with_results_of_an_unsharded_run(write: Write) -> None:
    project(write, 10)
    first, second = run_shards(2)
    agentv("eval", "evals", "--out", "whole.jsonl")
    said = refused("merge", first, second, "whole.jsonl", "--out", "out.jsonl")
    assert "whole.jsonl: the file is not a shard, but other files are" in said


def test_more_results_than_planned(write: Write) -> None:
    project(write, 10)
    first, second = run_shards(2)
    found = rows(first)
    save_rows(first, [*found, {**found[0], "eval_id": "another"}])
    said = refused("merge", first, second, "--out", "out.jsonl")
    assert f"{first}: shard 1/2 has {len(found) + 1} results, but {len(found)} were planned" in said


def test_files_of_unsharded_runs(write: Write) -> None:
    save_rows("a.jsonl", [{"eval_id": "b", "score": 1}])
    save_rows("b.jsonl", [{"eval_id": "a", "score": 0.5}])
    assert "2 planned = 2 scored" in merged("a.jsonl", "b.jsonl")
    assert ids("merged.jsonl") == ["a", "b"]


@pytest.mark.parametrize("form", ["jsonl", "yaml"])
def test_a_truncated_shard(form: str, write: Write) -> None:
    project(write, 10)
    first = run_shards(2)[0]
    agentv("eval", "evals", "--quiet", "--shard", "2/2", "--out", f"truncated.{form}")
    data = Path(f"truncated.{form}").read_bytes()
    Path(f"truncated.{form}").write_bytes(data[:-20])
    for more in ((), ("--partial",)):
        said = refused("merge", first, f"truncated.{form}", "--out", "out.jsonl", *more)
        assert "truncated" in said
        assert "skipped" not in said
        assert "continue with 'agentv eval --resume'" in said
    for command in (("compare", first, f"truncated.{form}", "--vs", first), ("report", first, f"truncated.{form}")):
        assert "truncated" in refused(*command)


def test_an_invalid_file(write: Write) -> None:
    project(write, 4)
    first, second = run_shards(2)
    write("bad.jsonl", Path(second).read_text() + "no\n")
    assert f"bad.jsonl:{len(rows(second)) + 1}:1: Invalid JSON" in refused(
        "merge", first, "bad.jsonl", "--out", "out.jsonl"
    )
    said = refused("merge", first, "none.jsonl", "gone.jsonl", "--out", "out.jsonl")
    assert "none.jsonl: " in said and "gone.jsonl: " in said
    os.mkdir("folder")
    assert "folder: this is a folder, not a results file" in refused("merge", "folder", first, "--out", "out.jsonl")
    assert "--out is a folder" in refused("merge", first, second, "--out", "folder")
    assert "--out must be a file" in refused("merge", first, second, "--out", "-")
    assert not Path("-").exists()
    assert f"{first}: --out is one of the files to merge" in refused("merge", first, second, "--out", first)
    os.symlink(first, "link.jsonl")
    assert "--out is one of the files to merge" in refused("merge", first, second, "--out", "link.jsonl")
    assert "missing option '--out'" in refused("merge", first, second)
    assert "missing argument 'FILES...'" in refused("merge", "--out", "out.jsonl")


def test_an_existing_file_is_kept(write: Write) -> None:
    project(write, 4)
    files = run_shards(2)
    write("out.jsonl", "mine")
    refused("merge", files[0], "--out", "out.jsonl")
    assert Path("out.jsonl").read_text() == "mine"
    assert "out.jsonl already existed: moved it to out.jsonl.bak" in merged(*files, out="out.jsonl")
    assert Path("out.jsonl.bak").read_text() == "mine"
    assert len(rows("out.jsonl")) == 4


def test_the_merged_file_contains_no_secrets(write: Write) -> None:
    save_rows("a.jsonl", [{"eval_id": "a", "score": 1, "candidate_answer": "it is hunter2hunter2, see"}])
    ran = agentv("merge", "a.jsonl", "--out", "out.jsonl", env={**os.environ, "MY_API_KEY": "hunter2hunter2"})
    assert ran.returncode == 0
    assert "hunter2hunter2" not in Path("out.jsonl").read_text() + ran.stdout
    assert "it is " in rows("out.jsonl")[0]["candidate_answer"]


def compared(*args: str) -> dict[str, Any]:
    ran = agentv("compare", *args, "--quiet")
    assert ran.returncode == 0, ran.stderr
    found: dict[str, Any] = json.loads(ran.stdout)
    return found


def test_compare_takes_several_files_for_a_run(write: Write) -> None:
    project(write, 14)
    first = run_shards(2)
    write("targets.yaml", "targets: [{name: default, provider: mock, response: hello you}]\n")
    second = run_shards(3, name="new")
    merged(*first, out="first.jsonl")
    merged(*second, out="second.jsonl")
    whole, parts = compared("first.jsonl", "second.jsonl"), compared(*first, "--vs", *second)
    assert [file["path"] for file in parts["files"]] == [f"{first[0]} and 1 more", f"{second[0]} and 2 more"]
    for found in (whole, parts):
        found["files"] = [{**file, "path": ""} for file in found["files"]]
    assert whole == parts
    assert parts["changed"]["targets"] == ["default"]
    assert compared("--threshold", "0.2", *first, "--vs", "second.jsonl", "--margin", "0.1")["summary"]["total"] == 14
    three = compared("first.jsonl", "--vs", *second, "--vs", "first.jsonl")
    assert [each["summary"]["matched"] for each in three["comparisons"]] == [14, 14]
    assert compare_results(first, ["second.jsonl"]).summary.matched == 14


def test_compare_rejects_what_merge_rejects(write: Write) -> None:
    project(write, 14)
    first, second = run_shards(2)
    said = refused("compare", second, second, "--vs", first, second)
    assert f"{second}: shard 1/2 of this run is missing" in said
    other = save_rows("other.jsonl", [{**row, "candidate_answer": "x"} for row in rows(first)])
    assert "with different content" in refused("compare", first, second, other, "--vs", first, second)
    assert "--vs must be followed by a results file" in refused("compare", first, "--vs")
    assert "missing argument 'FILES...'" in refused("compare", "--vs", first)
    assert compared(first, first)["summary"]["matched"] == len(rows(first))  # a shard with itself, as any file


def test_report_takes_several_files_for_a_run(write: Write) -> None:
    project(write, 14)
    first, second = run_shards(2)
    ran = agentv("report", first, second)
    assert ran.stdout.startswith("Report: shard-1.html (14 cases, ")
    merged(first, second)
    ran = agentv("report", "merged.jsonl", "--vs", second, first, "--out", "both.html")
    assert ran.stdout.startswith("Report: both.html (14 cases, ")
    ran = agentv("report", first, first, "--out", "self.html")  # the same shard: two runs
    assert ran.stdout.startswith(f"Report: self.html ({len(rows(first))} cases, ")
    assert "use --vs only once" in refused("report", first, "--vs", second, "--vs", second)
    assert "--out is one of the results files" in refused("report", first, second, "--out", second)
    run_shards(3, name="three")
    assert "shard 3/3 of this run is missing" in refused("report", "three-1.jsonl", "three-2.jsonl")


def test_report_rejects_several_files_that_are_not_shards_of_one_run(write: Write) -> None:
    project(write, 6)
    versions = [f"v{number}.jsonl" for number in (1, 2, 3)]
    for name in versions:
        assert agentv("eval", "evals", "--out", name).returncode in (0, 1)
    said = refused("report", *versions)
    assert "error: v1.jsonl, v2.jsonl, v3.jsonl are not shards of one run" in said
    assert "hint: compare two runs with 'agentv report A --vs B', or with 'agentv compare A B'" in flat(said)
    assert "are not shards of one run" in refused("report", "v1.jsonl", "--vs", "v2.jsonl", "v3.jsonl")
    assert not Path("v1.html").exists()
    assert "absent.jsonl" in refused("report", "v1.jsonl", "absent.jsonl", "v2.jsonl")
    first, second = run_shards(2)
    assert "are not shards of one run" in refused("report", first, second, second)
    assert agentv("report", "v1.jsonl", "v2.jsonl").returncode == 0


PEAK = f"""
import sys
from agentv.__main__ import main
sys.argv = ["agentv", "merge", *sys.argv[1:]]
try:
    main()
finally:
    {PRINT_PEAK_KB}
"""


@pytest.mark.slow
def test_memory_does_not_grow_with_the_size_of_results(write: Write) -> None:
    peaks = []
    for count in (500, 2000):
        for name in "ab":
            save_rows(
                f"{name}.jsonl",
                [{"eval_id": f"{name}{n}", "score": 1, "candidate_answer": "x" * 40_000} for n in range(count)],
            )
        command = [sys.executable, "-c", PEAK, "a.jsonl", "b.jsonl", "--out", f"out-{count}.jsonl"]
        ran = subprocess.run(command, capture_output=True, text=True, check=True)
        peaks.append(int(ran.stdout.split()[-1]))
    assert Path("out-2000.jsonl").stat().st_size > 150_000_000
    assert peaks[1] - peaks[0] < 60_000
