"""Results files that grow, change and disappear, in the viewer's index."""

import json
import os
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from agentv.report.page.figures import RunFigures, Totals, run_figures
from agentv.report.page.index import Rows, RunIndex
from agentv.report.page.sums import case_sums
from agentv.results.formats import dump_yaml
from agentv.results.read import read_results
from agentv.results.views import PageView
from agentv.view.incremental_index import CHUNK_BYTES, IncrementalIndex, result_lines, snippet_lines
from agentv.view.incremental_reader import FileChanged
from tests.kits.pages import HEBREW, a_result, a_run, save_results

Results = list[dict[str, Any]]


def read_all(index: IncrementalIndex) -> IncrementalIndex:
    index.step()
    while index.is_behind:
        index.step()
    return index


def ids_of(index: IncrementalIndex) -> list[str]:
    """The ids in all chunks, as the results that are read by byte range have them."""
    lines = b"\n".join(
        filter(None, (result_lines(index.entries(n, index.generation)) for n in range(index.closed + 1)))
    )
    return [json.loads(line)["eval_id"] for line in lines.split(b"\n") if line]


def append(path: Path, text: str) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.write(text)


def test_a_file_is_read_in_chunks_that_cover_it_all(tmp_path: Path) -> None:
    results = a_run(600)
    path = save_results(tmp_path / "a.jsonl", results)
    index = read_all(IncrementalIndex(path))
    assert index.closed == path.stat().st_size // CHUNK_BYTES >= 3
    assert ids_of(index) == [each["eval_id"] for each in results]
    first, count = 0, 0
    while first <= index.closed:
        chunks, data = index.chunks(first)
        first += chunks
        while data:
            results_here, _, _, size = struct.unpack_from("<IIII", data)
            count, data = count + results_here, data[16 + size :]
    assert count == index.results == 600


def test_a_growing_file_keeps_its_chunks_and_the_last_one_grows(tmp_path: Path) -> None:
    path = save_results(tmp_path / "a.jsonl", [a_result("one")])
    index = read_all(IncrementalIndex(path))
    first = index.generation
    append(path, json.dumps(a_result("two")) + "\n")
    read_all(index)
    assert (index.generation, index.closed, index.results) == (first, 0, 2)
    assert ids_of(index) == ["one", "two"]
    assert snippet_lines(index.entries(0, first)) == b"The answer to one.\nThe answer to two."


def test_a_partly_written_line_is_read_when_complete(tmp_path: Path) -> None:
    line = json.dumps(a_result("two"))
    path = save_results(tmp_path / "a.jsonl", [a_result("one")])
    append(path, line[:50])
    index = read_all(IncrementalIndex(path))
    assert index.truncated is not None and index.truncated.message == "the last line is truncated; skipped"
    assert (index.results, index.bad, index.is_behind) == (1, 0, False)
    append(path, line[50:])
    assert (read_all(index).truncated, index.results) == (None, 2)  # complete, if without a line feed
    append(path, "\n" + json.dumps(a_result("three")) + "\n")
    assert ids_of(read_all(index)) == ["one", "two", "three"]


def test_invalid_lines_are_skipped_and_reported(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(f'\n{json.dumps(a_result("one"))}\n{{"prompt": 1}}\nnonsense\n{json.dumps(a_result("two"))}\n')
    index = read_all(IncrementalIndex(path))
    assert (index.results, index.bad, index.truncated) == (2, 2, None)
    assert [(problem.line, problem.message) for problem in index.problems] == [
        (3, "missing eval_id"),
        (4, "Invalid JSON: Expecting value"),
    ]
    assert ids_of(index) == ["one", "two"]


@pytest.mark.parametrize("end", ["", "\n"])
def test_yaml_is_read_by_document(tmp_path: Path, end: str) -> None:
    results = [a_result("one", question=HEBREW), a_result("two", 0.5, question="a\n---\nb"), a_result("three")]
    documents = [dump_yaml(each).decode() for each in results]
    path = tmp_path / "a.yaml"
    path.write_text(documents[0] + documents[1][:40], encoding="utf-8")
    index = read_all(IncrementalIndex(path))
    assert (index.results, index.truncated is not None) == (1, True)
    append(path, documents[1][40:] + documents[2] + end)
    assert ids_of(read_all(index)) == ["one", "two", "three"]
    whole = [json.loads(line) for line in result_lines(index.entries(0, index.generation)).split(b"\n")]
    assert [each["question"] for each in whole] == [each["question"] for each in results]


def test_a_file_that_changes_is_another_generation(tmp_path: Path) -> None:
    path = save_results(tmp_path / "a.jsonl", [a_result("one"), a_result("two")])
    index = read_all(IncrementalIndex(path))
    first = index.generation
    save_results(tmp_path / "b.jsonl", [a_result("new"), a_result("newer"), a_result("newest")])
    os.replace(tmp_path / "b.jsonl", path)
    with pytest.raises(FileChanged, match="replaced"):
        list(index.entries(0, first))
    assert (read_all(index).generation, index.change) == (first + 1, "replaced")
    assert ids_of(index) == ["new", "newer", "newest"]
    with pytest.raises(FileChanged, match="replaced"):
        list(index.entries(0, first))
    os.truncate(path, 10)
    assert (read_all(index).generation, index.change, index.results) == (first + 2, "truncated", 0)
    path.write_text(json.dumps(a_result("x" * 300)) + "\n")
    read_all(index)
    save_results(path, [a_result("other " * 20), a_result("more")])
    assert (read_all(index).generation, index.change) == (first + 3, "rewritten")
    assert index.results == 2


def test_a_file_that_vanishes_and_comes_back(tmp_path: Path) -> None:
    path = save_results(tmp_path / "a.jsonl", [a_result("one")])
    index = read_all(IncrementalIndex(path))
    path.unlink()
    with pytest.raises(FileChanged, match="no such file or directory"):
        index.step()
    save_results(path, [a_result("three"), a_result("four")])
    assert ids_of(read_all(index)) == ["three", "four"]


def figures_of_report(path: Path) -> RunFigures:
    """The figures that an HTML report of the file shows."""
    columns = RunIndex()
    totals = Totals()
    rows = Rows()
    for record in read_results(path, PageView):
        view = record.view
        row = rows.number((view.dataset, view.eval_id, view.target), view.eval_id)
        columns.add(row, view)
        totals.add(view)
    return run_figures(case_sums(columns, len(rows)), totals, columns.names)


def test_the_figures_of_several_chunks_are_those_of_a_report(tmp_path: Path) -> None:
    trials = [each | {"trial": trial} for trial in (1, 2) for each in a_run(400, trial)]
    path = save_results(tmp_path / "a.jsonl", trials)
    index = read_all(IncrementalIndex(path))
    assert index.closed >= 3
    assert index.figures() == figures_of_report(path)
    assert IncrementalIndex(path).figures() is None


def test_a_byte_order_mark_is_skipped(tmp_path: Path) -> None:
    path = save_results(tmp_path / "a.jsonl", [a_result("one"), a_result("two")])
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    index = read_all(IncrementalIndex(path))
    assert (index.bad, ids_of(index)) == (0, ["one", "two"])


def test_all_problems_of_a_file_have_their_lines(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text("---\neval_id: a\nscore: 1\n...\n---\neval_id: b\nscore: high\n...\n---\nscore: 2\n")
    index = read_all(IncrementalIndex(path))
    found = [(problem.line, problem.message) for problem in index.find_problems().errors]
    assert found[0] == (7, "score: expected a number, got a string")
    assert (10, "missing eval_id") in found
    path = tmp_path / "a.jsonl"
    path.write_text("nonsense\n" * 30 + '{"eval_id": "a", "sco')
    index = read_all(IncrementalIndex(path))
    problems = index.find_problems()
    assert (index.bad, len(problems.errors)) == (30, 11)  # reported up to a limit, and counted beyond it
    assert problems.truncated is not None
    assert (problems.truncated.line, problems.truncated.severity) == (31, "warning")


def test_opening_a_large_file_reads_a_small_part_of_it(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    line = json.dumps(a_result("one")) + "\n"
    with path.open("w") as file:
        for _ in range(40):
            file.write(line * 1000)
    size = path.stat().st_size
    before = _bytes_read()
    index = IncrementalIndex(path)
    index.step(seconds=0)
    read = _bytes_read() - before
    assert 0 < index.results < 2000
    assert read < 600_000 < size / 20
    assert index.is_behind


def _bytes_read() -> int:
    return int(Path("/proc/self/io").read_text().split("rchar: ")[1].split()[0])


MEMORY = """
import sys
from pathlib import Path
from agentv.view.incremental_index import IncrementalIndex, result_lines
index = IncrementalIndex(Path(sys.argv[1]))
index.step()
while index.is_behind:
    index.step()
first = 0
while first < index.closed:
    first += index.chunks(first)[0]
len(result_lines(index.entries(index.closed // 2, index.generation)))
print(index.results, next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM")))
"""


@pytest.mark.slow
def test_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    peaks = {}
    for count in (1_000, 200_000):
        path = tmp_path / f"{count}.jsonl"
        with path.open("w") as file:
            for number in range(count):
                result = {"eval_id": f"case-{number}", "score": 0.5, "candidate_answer": "an answer of some words"}
                file.write(json.dumps(result) + "\n")
        ran = subprocess.run([sys.executable, "-c", MEMORY, str(path)], capture_output=True, text=True, check=True)
        results, peaks[count] = map(int, ran.stdout.split())
        assert results == count
    assert peaks[200_000] - peaks[1_000] < 30_000  # kB
