"""Loading and validating eval files."""

import json
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import msgspec

from agentv import EvalCase, load_eval_cases
from benchmarks.measure import Figure, best_of, peak_mb, process

CASES = 100_000
LOAD = "import sys; from agentv import load_eval_cases\nfor case in load_eval_cases(sys.argv[1]): pass"


def typical(number: int) -> dict[str, object]:
    return {
        "id": f"case-{number}",
        "expected_outcome": "Names the capital of the country, and nothing else.",
        "input_messages": [
            {"role": "system", "content": "You are a geographer of few words."},
            {"role": "user", "content": f"What is the capital of country number {number}? Answer in one word, please."},
        ],
        "expected_messages": [{"role": "assistant", "content": "Paris"}],
        "metadata": {"difficulty": "easy", "source": "atlas"},
    }


def shortest(number: int) -> dict[str, object]:
    message = {"role": "user", "content": "Query"}
    return {"id": f"test-{number}", "expected_outcome": "Goal", "input_messages": [message]}


def aliased(number: int) -> dict[str, object]:
    question = f"What is the capital of country number {number}? Answer in one word, please."
    return {"id": f"case-{number}", "outcome": "Names the capital.", "input": question, "expected_output": "Paris"}


def bare(path: Path) -> None:
    with path.open("rb") as file:
        for line in file:
            msgspec.json.decode(line)


def load(path: Path) -> None:
    for _ in load_eval_cases(path):
        pass


def figures() -> Iterator[Figure]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for make, limit in ((typical, 2), (aliased, None), (shortest, None)):
            path = write_lines(folder / f"{make.__name__}.jsonl", make, CASES)
            floor, loading = best_of(9, partial(bare, path), partial(load, path))
            detail = f"{loading / CASES * 1e6:.2f} us a case, {path.stat().st_size / CASES:.0f} bytes"
            yield Figure(f"load JSONL / bare decode ({make.__name__})", loading / floor, "x", limit, detail)
        yield from memory(folder)
        yield yaml_files(folder)
        yield matrix(folder)
        yield rows(folder)


def write_lines(path: Path, make: Callable[[int], object], count: int) -> Path:
    with path.open("w") as file:
        file.writelines(json.dumps(make(number)) + "\n" for number in range(count))
    return path


def memory(folder: Path) -> Iterator[Figure]:
    small = write_lines(folder / "small.jsonl", typical, 10_000)
    large = write_lines(folder / "large.jsonl", typical, 1_000_000)
    grown = peak_mb(LOAD, str(large)) - peak_mb(LOAD, str(small))
    yield Figure("memory, 1,000,000 lines more than 10,000 (load)", grown, "MB", 10)
    check = "import sys, pathlib; from agentv.project.validate import check_file\ncheck_file(pathlib.Path(sys.argv[1]))"
    grown = peak_mb(check, str(large)) - peak_mb(check, str(small))
    yield Figure("memory, 1,000,000 lines more than 10,000 (validate)", grown, "MB", 20)


YAML_HEAD = """\
description: A file
execution:
  evaluators:
    - {name: paris, type: contains, value: Paris}
"""


def yaml_files(folder: Path) -> Figure:
    evals = folder / "evals"
    evals.mkdir()
    for number in range(100):
        cases = "".join(yaml_case(index) for index in range(20))
        (evals / f"{number}.yaml").write_text(f"{YAML_HEAD}evalcases:\n{cases}")
    (evals / "targets.yaml").write_text("targets:\n  - name: default\n    provider: mock\n")
    (took,) = best_of(3, process(sys.executable, "-m", "agentv", "validate", str(evals)))
    return Figure("validate 100 YAML files of 20 cases", took, "s", 5)


def matrix(folder: Path) -> Figure:
    """A matrix of 100,000 cases, and the same cases written out, with their variables."""
    countries = [f"C{number}" for number in range(CASES // 10)]
    question = "What is the capital of {{ vars.country }}? Answer in one word, please, in a {{ vars.tone }} tone."
    family = typical(0) | {
        "matrix": {"country": countries, "tone": list("abcdefghij")},
        "input_messages": [
            {"role": "system", "content": "You are a geographer of few words."},
            {"role": "user", "content": question},
        ],
    }
    short = write_lines(folder / "matrix.jsonl", lambda _: family, 1)
    long = folder / "written.jsonl"
    with long.open("wb") as file:
        for case in load_eval_cases(short):
            file.write(msgspec.json.encode(written_out(case)) + b"\n")
    floor, loading = best_of(9, partial(load, long), partial(load, short))
    detail = f"{loading / CASES * 1e6:.2f} us a case"
    return Figure("load a matrix / the same cases written out", loading / floor, "x", 1.5, detail)


def written_out(case: EvalCase) -> object:
    fields = ("id", "expected_outcome", "input_messages", "expected_messages", "metadata", "vars")
    return msgspec.to_builtins({name: getattr(case, name) for name in fields})


def rows(folder: Path) -> Figure:
    """Memory for a family of a million rows."""
    peaks = []
    for count in (10_000, 1_000_000):
        with (folder / "rows.csv").open("w") as file:
            file.write("country,capital\n")
            file.writelines(f"Country {number},Capital {number}\n" for number in range(count))
        family = {**aliased(0), "rows": "rows.csv", "input": "What is the capital of {{ vars.country }}?"}
        path = folder / "rows.jsonl"
        path.write_text(json.dumps(family))
        peaks.append(peak_mb(LOAD, str(path)))
    return Figure("memory, a family of 1,000,000 rows more than of 10,000", peaks[1] - peaks[0], "MB", 15)


def yaml_case(number: int) -> str:
    return f"""\
  - id: case-{number}
    expected_outcome: Names the capital of the country, and nothing else.
    input_messages:
      - role: system
        content: You are a geographer of few words.
      - role: user
        content: |
          What is the capital of country number {number}?
          Answer in one word, please.
    expected_messages:
      - role: assistant
        content: Paris
"""
