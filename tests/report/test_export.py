"""`agentv export`: results as a flat table."""

import csv
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.kits.project import PRINT_PEAK_KB, Write, agentv

FIRST = (
    "eval_id,dataset,target,trial,score,verdict,error,failure,question,reference_answer,candidate_answer,cost_usd,"
    "duration_ms,input_tokens,output_tokens"
)


def a_result(id_: str, **fields: Any) -> dict[str, Any]:
    result = {"timestamp": "t", "eval_id": id_, "dataset": "d", "target": "x", "attempt": 1, "score": 1.0}
    return result | {"verdict": "pass", "hits": [], "misses": [], "candidate_answer": "hi", **fields}


def part(name: str, score: float, **fields: Any) -> dict[str, Any]:
    return {"name": name, "type": "contains", "score": score, "weight": 1, "verdict": "pass", **fields}


def export(path: str, form: str, *args: str) -> str:
    ran = agentv("export", path, "--to", form, *args)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def test_a_machine_failure_has_no_score_and_no_verdict(write: Write) -> None:
    write("r.jsonl", [a_result("a", score=0, verdict="fail", candidate_answer="", error="no room", failure="machine")])
    (row,) = csv.DictReader(export("r.jsonl", "csv").splitlines())
    assert (row["score"], row["verdict"], row["error"]) == ("", "", "no room")


def test_one_row_per_result_with_the_columns_of_all_results(write: Write) -> None:
    metrics = {"token_usage": {"input": 10, "output": 5}, "cost_usd": 0.25, "duration_ms": 120.5}
    write(
        "r.jsonl",
        [
            a_result(
                "a",
                evaluator_results=[part("contains", 1)],
                execution_metrics=metrics,
                question="why?",
                reference_answer="so",
                metadata={"level": 2, "gold": ["x", "y"]},
            ),
            a_result(
                "b",
                trial=2,
                failure="judge",
                evaluator_results=[part("judge", 0, failed=True), part("contains", 0.5)],
                vars={"order": "A1"},
                metadata={"level": None, "known": True},
            ),
            a_result("c", score=0, verdict="fail", candidate_answer="", error="it broke", failure="target"),
        ],
    )
    text = export("r.jsonl", "csv")
    assert text.splitlines() == [
        f"{FIRST},evaluator.contains,evaluator.judge,metadata.level,metadata.gold,metadata.known,vars.order,answer_digest",
        'a,d,x,,1.0,pass,,,why?,so,hi,0.25,120.5,10,5,1.0,,2,"[""x"",""y""]",,,8f434346648f6b96',
        "b,d,x,2,1.0,fail,,judge,,,hi,,,,,0.5,,,,true,A1,8f434346648f6b96",
        "c,d,x,,0.0,fail,it broke,target,,,,,,,,,,,,,,",
    ]
    assert agentv("export", "r.jsonl", "--to", "csv", "--out", "r.csv").stdout == ""
    assert Path("r.csv").read_bytes().decode().splitlines() == text.splitlines()
    first = json.loads(export("r.jsonl", "jsonl").splitlines()[0])
    assert list(first) == text.splitlines()[0].split(",")
    assert (first["evaluator.contains"], first["evaluator.judge"], first["input_tokens"]) == (1.0, None, 10)
    assert (first["metadata.gold"], first["candidate_answer"]) == (["x", "y"], "hi")


def test_no_cell_is_a_formula(write: Write) -> None:
    texts = ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", "\n=1", "  =HYPERLINK(1)", "＝1"]
    names = ("eval_id", "dataset", "target", "question", "candidate_answer", "error")
    results = [dict.fromkeys(names, text) | {"metadata": {"note": text}} for text in texts]
    write("r.jsonl", [a_result("", **fields) for fields in results])
    export("r.jsonl", "csv", "--out", "r.csv")
    with Path("r.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    columns = ("eval_id", "dataset", "target", "question", "candidate_answer", "error", "metadata.note")
    assert [[row[name] for name in columns] for row in rows] == [[f"'{text}"] * 7 for text in texts]
    assert [
        json.loads(line)["candidate_answer"] for line in export("r.jsonl", "jsonl", "--out", "-").splitlines()
    ] == texts


def test_cells_of_csv_may_contain_anything(write: Write) -> None:
    answer = 'a "quoted", text\r\nwith\rbreaks\nand é'
    write("r.jsonl", [a_result("a", candidate_answer=answer)])
    agentv("export", "r.jsonl", "--to", "csv", "--out", "r.csv")
    with Path("r.csv").open(newline="", encoding="utf-8") as file:
        (row,) = csv.DictReader(file)
    assert row["candidate_answer"] == answer


def test_markdown_is_escaped(write: Write) -> None:
    answer = "a | b\n<script>alert(1)</script> [x](http://y) `z` *w* @ann \\"
    write("r.jsonl", [a_result("a|b", candidate_answer=answer)])
    lines = export("r.jsonl", "markdown").splitlines()
    assert len(lines) == 3
    assert lines[1] == "| " + " | ".join(["---"] * 16) + " |"
    assert lines[2].startswith("| a\\|b | d | x |  | 1.0 | pass |")
    assert (r" | a \| b<br>\<script\>alert\(1\)\</script\> \[x\]\(http\://y\) \`z\` \*w\* &#64;ann \\ | ") in lines[2]


def test_evaluators_of_the_same_name_are_numbered(write: Write) -> None:
    write("r.jsonl", [a_result("a", evaluator_results=[part("score", 0.1), part("x", 0.2), part("x", 0.3)])])
    row = json.loads(export("r.jsonl", "jsonl"))
    assert (row["score"], row["evaluator.score"]) == (1.0, 0.1)
    assert (row["evaluator.x"], row["evaluator.x (2)"]) == (0.2, 0.3)


def test_yaml_results_are_read_too(write: Write) -> None:
    write("r.yaml", "---\ntimestamp: t\neval_id: a\nscore: 0.5\ncandidate_answer: hi\n...\n")
    assert export("r.yaml", "csv").splitlines()[1].startswith("a,,,,0.5,")


def test_a_truncated_last_line_is_a_single_warning(write: Write) -> None:
    write("r.jsonl", json.dumps(a_result("a")) + '\n{"timestamp":"')
    ran = agentv("export", "r.jsonl", "--to", "csv")
    assert (ran.returncode, len(ran.stdout.splitlines())) == (0, 2)
    assert ran.stderr.count("warning: ") == 1
    assert "r.jsonl:2: the last line is truncated" in ran.stderr


@pytest.mark.parametrize(
    ("content", "args", "message"),
    [
        ("", ["--to", "csv"], "error: r.jsonl: the file contains no results\nhint: pass a results file written by 'agentv eval'"),
        ('{"a": 1}\n', ["--to", "csv"], "error: r.jsonl:1:1: missing eval_id"),
        ('nonsense\n{"eval_id": "a", "score": 1}\n', ["--to", "csv"], "error: r.jsonl:1:1: Invalid JSON"),
        ('{"eval_id": "a", "score": 1}\n', ["--to", "xlsx"], "error: invalid value for '--to': 'xlsx' is not one of 'csv',"),
        ('{"eval_id": "a", "score": 1}\n', [], "error: missing option '--to'"),
        ('{"eval_id": "a", "score": 1}\n', ["--to", "csv", "--out", "r.jsonl"], "error: r.jsonl: --out is the results file"),
        (None, ["--to", "csv"], "error: r.jsonl: no such file"),
    ],
    ids=range(7),
)  # fmt: skip
def test_what_cannot_be_exported(write: Write, content: str | None, args: list[str], message: str) -> None:
    if content is not None:
        write("r.jsonl", content)
    before = Path("r.jsonl").read_text() if content is not None else None
    ran = agentv("export", "r.jsonl", *args)
    assert ran.returncode == 2
    assert message in ran.stderr
    assert "Traceback" not in ran.stderr
    assert before is None or Path("r.jsonl").read_text() == before


@pytest.mark.slow
def test_memory_stays_flat_with_the_number_of_results(write: Write) -> None:
    program = f"import sys; from agentv.cli import agentv\ntry: agentv(standalone_mode=False)\nexcept SystemExit: pass\n{PRINT_PEAK_KB}"
    peaks = []
    for results in (1000, 50_000):
        write("r.jsonl", [a_result(f"id-{number}", candidate_answer="long " * 200) for number in range(results)])
        command = [sys.executable, "-c", program, "export", "r.jsonl", "--to", "csv", "--out", "r.csv"]
        ran = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
        peaks.append(int(ran.stdout.split()[-1]))
    assert peaks[1] - peaks[0] < 15_000  # of 60 MB
