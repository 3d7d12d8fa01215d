"""The format of results files by option, suffix and content; complete and truncated records."""

from pathlib import Path

import pytest

from agentv.errors import OutputError
from agentv.records import Digests, EvalResult
from agentv.redact import Redactor
from agentv.results.formats import JSONL, YAML, ResultFormat, format_for, format_of, sniff
from agentv.results.read import read_records
from agentv.results.views import ReportView, ResultRow
from agentv.results.write import create, create_new

FORMATS = pytest.mark.parametrize("form", [JSONL, YAML], ids=lambda form: form.name)


def a_result(eval_id: str = "a", **more: object) -> EvalResult:
    values = {
        "timestamp": "2026-11-17T00:00:00Z",
        "eval_id": eval_id,
        "dataset": "d",
        "target": "t",
        "attempt": 1,
        "score": 0.5,
        "verdict": "fail",
        "candidate_answer": "one\ntwo\n---\n...\n{",
    }
    return EvalResult(**(values | more))  # type: ignore[arg-type]


def save(path: Path, form: ResultFormat, *results: EvalResult, clean: Redactor | None = None) -> Path:
    file, _ = create(path, form, clean or Redactor())
    with file:
        for result in results:
            file.write(result)
    return path


def test_formats_by_name_and_by_suffix() -> None:
    assert [format_of(name) for name in ("jsonl", "yaml", "csv")] == [JSONL, YAML, None]
    names = {"a.jsonl": JSONL, "a.yaml": YAML, "a.YML": YAML, "a.txt": JSONL, "a": JSONL}
    assert {name: format_for(Path(name)) for name in names} == names


@pytest.mark.parametrize(
    ("start", "form"),
    [
        (b'{"eval_id"', JSONL),
        (b"\n\n {", JSONL),
        (b'\xef\xbb\xbf{"a"', JSONL),
        (b"---\n", YAML),
        (b"", None),
        (b"dear diary", None),
        (b"--", None),
    ],
)
def test_formats_by_content(start: bytes, form: ResultFormat | None) -> None:
    assert sniff(start) is form


@FORMATS
def test_written_results_can_be_read(tmp_path: Path, form: ResultFormat) -> None:
    digests = Digests(case="c", target="t", evaluators="e", agentv="1")
    more = {"trial": 2, "misses": ("no\nmore",), "error": "broken", "failure": "target", "digests": digests}
    path = save(tmp_path / "results", form, a_result("a"), a_result("b", **more))
    assert [record.view.eval_id for record in read_records(path, ResultRow)] == ["a", "b"]
    assert b"".join(record.raw for record in read_records(path, ResultRow)) == path.read_bytes()
    first, second = (record.view for record in read_records(path, ReportView))
    assert (first.trial_key, first.case_key, first.is_unscored) == (("d", "a", "", 1), ("d", "a"), False)
    assert (second.trial_key, second.case_key, second.is_unscored) == (("d", "b", "", 2), ("d", "b"), True)
    assert (second.title, second.outcome, second.message, second.details) == (
        "b, trial 2",
        "error",
        "broken",
        "- no\nmore",
    )


@FORMATS
def test_a_record_cut_off_anywhere_is_skipped_and_the_one_before_it_is_not(tmp_path: Path, form: ResultFormat) -> None:
    whole = save(tmp_path / "one", form, a_result("a")).read_bytes()
    both = save(tmp_path / "two", form, a_result("a"), a_result("b")).read_bytes()
    path = tmp_path / "truncated"
    for size in range(len(whole), len(both)):
        path.write_bytes(both[:size])
        assert [record.view.eval_id for record in read_records(path, ResultRow)] == ["a"]


@FORMATS
def test_an_invalid_record_is_reported_with_its_number(tmp_path: Path, form: ResultFormat) -> None:
    path = save(tmp_path / "results", form, a_result("a"))
    path.write_bytes(path.read_bytes() + form.encode(b'{"score":1}'))
    with pytest.raises(OutputError, match=f"{form.record} 2 is not a result of agentv"):
        list(read_records(path, ResultRow))


@FORMATS
def test_secrets_are_not_written(tmp_path: Path, form: ResultFormat) -> None:
    path = save(
        tmp_path / "results", form, a_result(reasoning="the key is s3cret-key!"), clean=Redactor(["s3cret-key!"])
    )
    assert b"s3cret" not in path.read_bytes()
    assert [record.view.reasoning for record in read_records(path, ReportView)] == ["the key is ***"]


@FORMATS
def test_new_files_have_the_suffix_of_their_format_and_a_unique_name(tmp_path: Path, form: ResultFormat) -> None:
    names = []
    for _ in range(2):
        with create_new(tmp_path, "eval", form, Redactor()) as file:
            names.append(file.path.name)
    assert names == [f"eval.{form.name}", f"eval_2.{form.name}"]


def test_results_of_older_versions_have_defaults(tmp_path: Path) -> None:
    path = tmp_path / "old.jsonl"
    path.write_text('{"eval_id": "a", "score": 1}\n')
    (record,) = read_records(path, ReportView)
    assert (record.view.title, record.view.outcome, record.view.seconds) == ("a", "failure", 0.0)
