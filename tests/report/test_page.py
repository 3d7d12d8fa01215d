"""`agentv report`: the file that is written, its content, and invalid input. Browser tests are separate."""

import base64
import hashlib
import json
import re
import subprocess
import sys
import zlib
from pathlib import Path
from typing import Any

import pytest

from agentv.errors import OutputError
from agentv.log import collect_warnings
from agentv.report.page.bundle import ENTRY, STYLES, asset, module_names, script, style
from agentv.report.page.write import PageOptions, write_report
from agentv.results.formats import YAML
from tests.kits.browser import require_chromium
from tests.kits.pages import a_result, a_run, a_trace, an_error, meta_of, save_results
from tests.kits.project import PRINT_PEAK_KB, Write, a_case, agentv

ASSETS = Path(__file__).parent.parent.parent / "src" / "agentv" / "report" / "page" / "assets"
MODULES = module_names(ENTRY, asset)


def report(*args: str, code: int = 0) -> str:
    """The messages of the command."""
    ran = agentv("report", *args)
    assert ran.returncode == code, ran.stdout + ran.stderr
    assert "Traceback" not in ran.stderr
    return ran.stderr + ran.stdout


def block_of(path: str, name: str) -> bytes:
    found = re.search(rf'id="{name}">([^<]*)</script>', Path(path).read_text())
    assert found is not None
    return zlib.decompress(base64.b64decode(found[1]))


def test_a_report_has_the_name_of_its_results(write: Write) -> None:
    write("out.jsonl", a_run(5))
    assert re.fullmatch(r"Report: out\.html \(5 cases, \d+ kB\)\n", report("out.jsonl"))
    assert Path("out.html").read_text().startswith("<!doctype html>")


def test_cases_that_share_an_id_across_datasets_have_separate_rows(write: Write) -> None:
    def rows(scores: dict[str, float]) -> list[dict[str, Any]]:
        return [a_result("c", score, dataset=dataset) for dataset, score in scores.items()]

    write("old.jsonl", [*rows({"geo": 1.0, "math": 0.0}), a_result("x", 1.0, dataset="old")])
    write("new.jsonl", [*rows({"math": 1.0, "geo": 0.0}), a_result("x", 1.0, dataset="new")])
    report("old.jsonl", "new.jsonl")
    meta = meta_of("old-vs-new.html")
    assert meta["rows"] == 3
    assert meta["headline"].endswith("1 case fixed, 1 broken.")


def test_a_report_of_two_files_has_both_names_and_begins_with_the_verdict(write: Write) -> None:
    write("old.jsonl", a_run(40))
    write("new.jsonl", a_run(40, 1, 0.3))
    assert report("old.jsonl", "new.jsonl").startswith("Report: old-vs-new.html (40 cases")
    meta = meta_of("old-vs-new.html")
    assert meta["comparison"]["verdict"] == "better"
    assert re.fullmatch(
        r"Better: \+0\.\d\d \(95%: \+0\.\d\d to \+0\.\d\d\), \d+ cases fixed, \d+ errored\.", meta["headline"]
    )
    report("old.jsonl", "new.jsonl", "--out", "deep/er/page.html")
    assert Path("deep/er/page.html").exists()


def test_the_sentences_of_a_run(write: Write) -> None:
    results = [a_result("a"), a_result("b", 0.7), a_result("c", 0.2, stop_reason="length"), an_error("d")]
    write("out.jsonl", [*results, an_error("e", failure="timeout"), a_result("f", failure="judge")])
    report("out.jsonl")
    (run,) = meta_of("out.html")["runs"]
    assert run["headline"] == "17% passed (95%: 3 to 56%), mean 0.48."
    assert run["facts"] == "6 cases, default, $0.0084"
    assert run["troubles"] == "1 target error, 1 timeout, 1 judge failure, 1 answer cut off"
    assert run["figures"]["histogram"] == [2, 1, 0, 1, 2]


def test_equal_trials_of_all_cases_have_no_interval(write: Write) -> None:
    write("out.jsonl", [a_result(case, trial=trial) for case in "abc" for trial in (1, 2)])
    report("out.jsonl")
    assert meta_of("out.html")["headline"] == "100% passed, mean 1.00."


def test_machine_failures_are_counted_and_not_scored(write: Write) -> None:
    failures = [an_error("x", failure="machine"), an_error("y", failure="machine")]
    write("out.jsonl", [a_result("a"), a_result("b", 0.0), *failures])
    report("out.jsonl")
    (run,) = meta_of("out.html")["runs"]
    assert run["headline"] == "50% passed (95%: 9 to 91%), mean 0.50."
    assert run["facts"].startswith("2 cases, ")
    assert run["troubles"] == "2 machine failures"
    assert run["figures"]["machine_failures"] == 2
    assert run["figures"]["target_errors"] == 0


def test_a_run_of_machine_failures_has_no_score(write: Write) -> None:
    write("out.jsonl", [an_error("x", failure="machine")])
    report("out.jsonl")
    (run,) = meta_of("out.html")["runs"]
    assert run["headline"] == "No case has a score."
    assert run["troubles"] == "1 machine failure"
    assert run["figures"]["mean"] is None
    assert run["figures"]["pass_rate"] is None


def test_trials_of_a_case_share_a_row_and_figures_are_per_case(write: Write) -> None:
    one = [a_result("one", score, trial=trial) for trial, score in enumerate((1.0, 0.0, 0.0), 1)]
    write("out.jsonl", [*one, a_result("two", 1.0, trial=1)])
    assert "2 cases" in report("out.jsonl")
    (run,) = meta_of("out.html")["runs"]
    assert run["figures"]["mean"] == pytest.approx((1 / 3 + 1) / 2)
    (evaluator,) = run["figures"]["evaluators"]
    assert evaluator["cases"] == 2
    assert evaluator["mean"] == pytest.approx((1 / 3 + 1) / 2)


def test_a_run_record_provides_the_commit_and_the_model(write: Write) -> None:
    run_id = "20261116-030000-ab12"
    record: dict[str, Any] = {
        "run_id": run_id,
        "status": "done",
        "git": {"commit": "0123456789abcdef", "dirty": True, "branch": "main"},
    }
    record |= {"targets": [{"name": "default", "model": "gpt-x"}], "command": ["agentv", "eval", "evals"]}
    record |= {"summary": {"duration_seconds": 185}, "ledger": {"planned": 9, "skipped": 1, "not_run": 5}}
    write(f".agentv/runs/{run_id}.json", json.dumps(record))
    write("out.jsonl", a_run(3))
    report("out.jsonl")
    (run,) = meta_of("out.html")["runs"]
    assert run["figures"]["commit"] == "0123456789 with changes"
    assert run["facts"].startswith("3 cases, gpt-x, $")
    assert run["facts"].endswith("3 min")
    assert run["troubles"] == "1 invalid case, 5 cases not run"


@pytest.mark.parametrize("run_id", ["../../etc/passwd", "20261116-030000-zzzz", "", "x" * 400])
def test_a_run_without_a_record_has_a_report(write: Write, run_id: str) -> None:
    write("out.jsonl", [a_result("a", run_id=run_id)])
    report("out.jsonl")
    (run,) = meta_of("out.html")["runs"]
    assert run["figures"]["results"] == 1
    assert not run["figures"].get("commit")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "out.jsonl: the file contains no results"),
        ("\n\n", "out.jsonl: the file contains no results"),
        (
            '{"eval_id": "a", "score": 1}\n{"eval_id": "b"\n{"eval_id": "c", "score": 1}\n',
            "out.jsonl:2:16: Invalid JSON",
        ),
        ('{"id": "a", "passed": true}\n', "out.jsonl:1:1: missing eval_id"),
        ('{"eval_id": "a", "score": "high"}\n', "out.jsonl:1:18: score"),
        ('{"eval_id": "a", "score": 7}\n', "out.jsonl:1:18: score"),
        ("a,b\n1,2\n", "out.jsonl:1:1: Invalid JSON"),
        ("\x00\x01\x02\n", "out.jsonl:1:1: Invalid JSON"),
    ],
)
def test_results_that_cannot_be_shown_are_rejected(write: Write, content: str, said: str) -> None:
    write("out.jsonl", content)
    assert said in report("out.jsonl", code=2)
    assert not Path("out.html").exists()


def test_results_of_other_tools_are_rejected_with_a_hint_to_import(write: Write) -> None:
    write("out.jsonl", '{"id": "a", "passed": true}\n')
    assert "hint: this is not a result of agentv; use 'agentv import' to read files of other tools" in report(
        "out.jsonl", code=2
    )


def test_a_missing_file_and_a_folder(write: Write) -> None:
    assert "error: nowhere.jsonl: no such file" in report("nowhere.jsonl", code=2)
    write("folder/eval_1.jsonl", a_run(1))
    said = report("folder", code=2)
    assert "error: folder: this is a folder, not a results file" in said
    assert "hint: pass a results file in it, such as folder/eval_1.jsonl" in said
    said = report("folder/eval_1.jsonl", "--out", "folder", code=2)
    assert said == "error: folder: this is a folder\nhint: pass a file in it\n"


def test_a_truncated_last_line_is_a_warning(write: Write) -> None:
    whole = "".join(json.dumps(each) + "\n" for each in a_run(3))
    write("out.jsonl", whole + '{"timestamp":"2026-11-16T03:00:00.000Z","eval_id":"truncated","sco')
    said = report("out.jsonl")
    assert "warning: out.jsonl:4: the last line is truncated" in said
    assert "; skipped" in said
    assert "(3 cases" in said
    write("other.jsonl", a_run(3))
    assert "(3 cases" in report("out.jsonl", "other.jsonl")
    assert "(3 cases" in report("other.jsonl", "out.jsonl")
    assert report("out.jsonl", "--failed-only").count("the last line is truncated") == 1


def test_a_last_line_without_a_line_feed_is_not_lost(write: Write) -> None:
    write("out.jsonl", "\n".join(json.dumps(each) for each in a_run(3)))
    assert "(3 cases" in report("out.jsonl")


def test_yaml_results_and_a_truncated_document(write: Write) -> None:
    documents = b"".join(YAML.encode(json.dumps(each).encode()) for each in a_run(3))
    write("out.yaml", documents)
    assert "(3 cases" in report("out.yaml")
    write("truncated.yaml", documents + b"---\ntimestamp: 2026\neval")
    said = report("truncated.yaml")
    assert "the last document is truncated" in said
    assert "(3 cases" in said


def test_results_of_other_tools_need_an_id_and_a_score_only(write: Write) -> None:
    write("out.jsonl", '{"eval_id": "a", "score": 1}\n{"eval_id": "b", "score": 0.25}\n')
    report("out.jsonl")
    assert meta_of("out.html")["headline"] == "50% passed (95%: 9 to 91%), mean 0.62."


def test_two_files_without_a_case_in_common(write: Write) -> None:
    write("a.jsonl", [a_result("one")])
    write("b.jsonl", [a_result("two")])
    assert "no eval_id occurs in both a.jsonl and b.jsonl" in report("a.jsonl", "b.jsonl", code=2)


def test_results_are_never_overwritten_and_a_folder_is_rejected(write: Write) -> None:
    write("out.jsonl", a_run(2))
    assert "error: out.jsonl: --out is one of the results files" in report("out.jsonl", "--out", "out.jsonl", code=2)
    Path("here").mkdir()
    assert "error: here: this is a folder" in report("out.jsonl", "--out", "here", code=2)
    assert list(Path().glob(".out*")) == []


def test_failed_only_excludes_passed_cases_and_keeps_the_figures(write: Write) -> None:
    write(
        "out.jsonl",
        [a_result("good"), a_result("bad", 0.1), *(a_result("some", s, trial=t) for t, s in ((1, 1.0), (2, 0.0)))],
    )
    assert "(2 cases" in report("out.jsonl", "--failed-only")
    meta = meta_of("out.html")
    assert (meta["failed_only"], meta["rows"], meta["runs"][0]["figures"]["cases"]) == (True, 2, 3)
    lines = block_of("out.html", "r0-0").split(b"\n")
    assert [json.loads(line)["eval_id"] for line in lines] == ["bad", "some", "some"]
    write("other.jsonl", [a_result("good", 0.2), a_result("bad", 0.9)])
    assert "(3 cases" in report("out.jsonl", "other.jsonl", "--failed-only")


def test_failed_only_of_a_run_in_which_all_passed(write: Write) -> None:
    write("out.jsonl", [a_result("good"), a_result("fine")])
    assert "(0 cases" in report("out.jsonl", "--failed-only")
    assert meta_of("out.html")["headline"].startswith("100% passed")


def test_no_traces_excludes_traces(write: Write) -> None:
    write("out.jsonl", [a_result("a", trace=a_trace(9))])
    report("out.jsonl")
    assert b'"trace":' in block_of("out.html", "r0-0").replace(b" ", b"")
    report("out.jsonl", "--no-traces")
    assert "trace" not in json.loads(block_of("out.html", "r0-0"))


def test_large_reports_are_a_warning_and_larger_ones_an_error(write: Write) -> None:
    results, out = write("out.jsonl", a_run(50)), Path("out.html")
    with collect_warnings() as warnings:
        write_report([results], out, PageOptions(large_bytes=1000))
    (warning,) = warnings
    assert "the report is 0 MB: it will be slow to send and to open" in warning.message
    assert "--failed-only" in warning.hint and "--no-traces" in warning.hint
    out.unlink()
    with pytest.raises(OutputError, match="the report would be larger than 0 MB") as refused:
        write_report([results], out, PageOptions(max_bytes=1000))
    assert "--failed-only" in refused.value.hint and "agentv view" in refused.value.hint
    assert not out.exists()


def test_secrets_do_not_reach_a_report(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_API_KEY", "12345678901")
    secret = a_result("key-12345678901", 0.5, candidate_answer="it is 12345678901", metadata={"n": 12345678901})
    write("out.jsonl", [secret, a_result("other")])
    report("out.jsonl")
    assert b"12345678901" not in block_of("out.html", "r0-0")
    assert b"12345678901" not in block_of("out.html", "ids")
    assert b"12345678901" not in block_of("out.html", "s0-0")


def test_text_cannot_close_its_element(write: Write) -> None:
    evil = "</script><script>alert(1)</script><!--"
    write("out.jsonl", [a_result(evil, dataset=evil, target=evil), an_error("b", evil)])
    report("out.jsonl")
    page = Path("out.html").read_text()
    assert "alert(1)</script>" not in page
    assert page.count("</script>") == page.count("<script")


def test_the_policy_names_the_script_and_the_style_by_their_hashes(write: Write) -> None:
    write("out.jsonl", a_run(1))
    report("out.jsonl")
    page = Path("out.html").read_text()
    code = re.search(r'<script type="module" async>(.*?)</script>', page, re.DOTALL)
    style = re.search(r"<style>(.*?)</style>", page, re.DOTALL)
    assert code and style
    for name, text in (("script", code[1]), ("style", style[1])):
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"{name}-src &#x27;sha256-{digest}&#x27;" in page
    assert "default-src &#x27;none&#x27;" in page
    assert re.findall(r'(?:src|href)="[^"]*"', page.replace(code[1], "")) == []


def test_fields_for_filters_are_stored_only_if_there_are_any(write: Write) -> None:
    write("plain.jsonl", [a_result("a"), a_result("b")])
    write("tagged.jsonl", [a_result("a"), a_result("b", tags=["smoke"], vars={"n": 1}, metadata={"level": 2})])
    report("plain.jsonl")
    assert meta_of("plain.html")["runs"][0]["blocks"]["fields"] == []
    assert 'id="f0-0"' not in Path("plain.html").read_text()
    report("tagged.jsonl")
    assert meta_of("tagged.html")["runs"][0]["blocks"]["fields"] == [0]
    first, second = block_of("tagged.html", "f0-0").split(b"\n")
    assert first == b""
    assert json.loads(second) == {"tag": ["smoke"], "metadata": {"level": 2}, "vars": {"n": 1}}


def test_the_front_end_is_small_and_parses_no_markup() -> None:
    assert len(script().encode()) + len(style().encode()) <= 160_000
    assert sorted(path.name for path in ASSETS.glob("*.js")) == sorted(MODULES)
    assert sorted(path.name for path in ASSETS.glob("*.css")) == sorted(STYLES)
    for name in MODULES:
        assert not re.search(
            r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|DOMParser", asset(name)
        )
        assert not re.search(r"\bfetch\(|XMLHttpRequest|WebSocket|https?://(?!www\.w3\.org)", asset(name)), name
    assert not re.search(r"^(import|export)\s", script(), re.MULTILINE)


def test_modules_are_wrapped_in_their_own_scope() -> None:
    declared = re.findall(r"^(?:async function|function|class|const|let) (\w+)", asset("plots.js"), re.MULTILINE)
    elsewhere = re.findall(r"^(?:async function|function|class|const|let) (\w+)", asset("table.js"), re.MULTILINE)
    assert "SHOWN_EVALUATORS" in set(declared) & set(elsewhere)
    top_level, depth = [], 0
    for line in script().splitlines():
        if depth == 0 and line:
            top_level.append(line)
        depth += len(re.findall(r"^modules\[.*=> \{$", line)) - line.count("})();") * (line == "})();")
    assert [line for line in top_level if not line.startswith("modules[")] == ["const modules = {};"]


def test_no_text_of_a_module_spans_lines() -> None:
    # the bundle has no indentation, so that such a text would become another one
    quoted = re.compile(r"""\"(?:[^"\\]|\\.)*\"|'(?:[^'\\]|\\.)*'|/(?:[^/\\*]|\\.)(?:[^/\\]|\\.)*/[a-z]*""")
    for name in MODULES:
        code = re.sub(r"^ *(?:/\*\*|\*|//).*", "", asset(name), flags=re.MULTILINE)
        for line in code.splitlines():
            assert quoted.sub("", line).count("`") % 2 == 0, (name, line)


PEAK = f"""
import sys
from pathlib import Path
from agentv.report.page.write import write_report
write_report([Path(sys.argv[1])], Path(sys.argv[1]).with_suffix(".html"))
{PRINT_PEAK_KB}
"""


@pytest.mark.slow
def test_memory_stays_flat(tmp_path: Path) -> None:
    peaks = []
    for count in (500, 20_000):
        path = tmp_path / f"{count}.jsonl"
        lines = [json.dumps(each) for each in a_run(500)]
        with path.open("w") as file:
            for number in range(count):
                file.write(lines[number % 500].replace('"eval_id": "', f'"eval_id": "{number}-', 1) + "\n")
        ran = subprocess.run([sys.executable, "-c", PEAK, str(path)], capture_output=True, text=True, check=True)
        peaks.append(int(ran.stdout.split()[-1]) / 1024)
    assert peaks[1] - peaks[0] < 20, peaks


def test_help_and_bad_options(write: Write) -> None:
    said = report("--help")
    assert "agentv report old.jsonl new.jsonl --out page.html" in said
    assert "error: missing argument 'RESULTS...'" in report(code=2)
    assert "did you mean '--failed-only'" in report("x.jsonl", "--failed-onyl", code=2)


def test_save_results_keeps_text_unchanged(tmp_path: Path) -> None:
    path = save_results(tmp_path / "a.jsonl", [a_result("ä\u2028b")])
    write_report([path], tmp_path / "a.html")
    assert block_of(str(tmp_path / "a.html"), "ids").decode() == "ä\u2028b"


@pytest.mark.parametrize(("ci", "outcome"), [("", "skipped"), ("true", "failed")])
def test_without_a_browser_its_tests_are_skipped_and_fail_in_ci(
    monkeypatch: pytest.MonkeyPatch, ci: str, outcome: str
) -> None:
    monkeypatch.setattr("tests.kits.browser.find_chromium", lambda: None)
    monkeypatch.setenv("CI", ci)
    expected = pytest.fail.Exception if outcome == "failed" else pytest.skip.Exception
    with pytest.raises(expected, match="no Chromium: install it"):
        require_chromium()


def test_a_comparison_says_whether_anything_has_changed(write: Write) -> None:
    write("agent.py", "def answer(question): return 'hello'\n")
    write("targets.yaml", "targets: [{name: default, provider: python, function: 'agent.py:answer'}]\n")
    write("cases.jsonl", [a_case("a", evaluators=[{"type": "contains", "value": "hello"}])])
    for name in ("a", "b"):
        assert agentv("eval", "cases.jsonl", "--out", f"{name}.jsonl").returncode == 0
    report("a.jsonl", "b.jsonl", "--out", "same.html")
    unchanged = meta_of("same.html")["comparison"]["notes"]
    assert unchanged[0] == "No changes: same target, same cases, same evaluators, same judge."
    write("agent.py", "def answer(question): return 'hello there'\n")
    assert agentv("eval", "cases.jsonl", "--out", "c.jsonl").returncode == 0
    report("a.jsonl", "c.jsonl", "--out", "changed.html")
    changed = meta_of("changed.html")["comparison"]["notes"]
    assert changed[:2] == [
        "Target 'default' has changed between the runs.",
        "Only the target differs: same cases, same evaluators, same judge.",
    ]
