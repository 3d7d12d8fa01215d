"""Write one or two runs as a self-contained HTML file.

Results are read as a stream, and only a few bytes of each are kept in memory (see `index`). The results themselves go
through a temporary file, because the index comes before them in the page.
"""

import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import compress
from pathlib import Path
from typing import NamedTuple

import msgspec

from agentv.compare.compare import compare_files
from agentv.compare.records import CompareOptions, Comparison
from agentv.errors import OutputError, ResultsError
from agentv.notices import warn
from agentv.records import Json, Problem
from agentv.report.page.blocks import BlockWriter, Lines
from agentv.report.page.document import DOCUMENT_END, document_start
from agentv.report.page.figures import Cases, Figures, Totals, case_sums, kept_rows, run_figures
from agentv.report.page.index import Column, Rows, RunIndex, snippet_of
from agentv.report.page.masking import few_escapes, masked
from agentv.report.page.meta import comparison_meta, run_meta, with_record
from agentv.report.page.words import comparison_headline, title_of
from agentv.results.merging.merge import read_run
from agentv.results.read import Record
from agentv.results.run_files import RunFiles, files_of, name_of
from agentv.results.views import PageView
from agentv.system.atomic_files import write_atomically

SMALLER = "--failed-only leaves out the cases that passed, --no-traces the traces"
SNIPPET_BYTES = 64 * 1024
"""The minimum size of a full block of snippets."""
NO_RESULTS = "name a file that 'agentv eval' has written"


@dataclass(frozen=True, slots=True, kw_only=True)
class PageOptions:
    """What to include in a page."""

    failed_only: bool = False
    """Include only cases with a result that did not pass. The figures are still those of all cases."""
    traces: bool = True
    large_bytes: int = 50_000_000
    """A larger page is written with a warning."""
    max_bytes: int = 400_000_000
    """A larger page is not written."""


class Written(NamedTuple):
    """The page that was written."""

    path: Path
    cases: int
    size: int


def default_path(results: Sequence[RunFiles]) -> Path:
    """Return the default path of the page for these results."""
    first = files_of(results[0])[0]
    if len(results) == 1:
        return first.with_suffix(".html")
    second = files_of(results[1])[0]
    return second.with_name(f"{first.stem}-vs-{second.stem}.html")


def write_report(results: Sequence[RunFiles], out: Path, options: PageOptions | None = None) -> Written:
    """Write the page of one run, or of two runs that are compared. Each run is one or more results files.

    Raise `ResultsError` if a file is invalid or has no results, and `OutputError` if the page is too large or cannot be
    written.
    """
    options = options or PageOptions()
    _check_out(results, out)
    comparison = None
    if len(results) == 2:
        comparison = compare_files(results, CompareOptions(skip_torn=True))[0]
    title = title_of([name_of(run).name for run in results])
    with (
        tempfile.TemporaryFile(dir=_temporary_folder(out)) as file,
        closing(BlockWriter(file)) as writer,
    ):
        page = _Page(results, out, options, writer)
        page.read()
        meta = page.meta(comparison)
        start = list(document_start(title, meta, page.columns()))
        size = sum(map(len, start)) + writer.size + len(DOCUMENT_END)
        _check_size(size, out, options)
        write_atomically(out, _chunks(start, writer))
    return Written(out, len(page.rows), size)


def _check_out(results: Sequence[RunFiles], out: Path) -> None:
    """Raise `OutputError` if the page would overwrite a results file."""
    real_out = os.path.realpath(out)
    for run in results:
        for path in files_of(run):
            if os.path.realpath(path) == real_out:
                raise OutputError("--out is one of the results files", file=out, hint="name another file")


def _temporary_folder(out: Path) -> Path | None:
    """Return the folder of the page if it is writable, since it has room for the page, otherwise None."""
    if out.parent.is_dir() and os.access(out.parent, os.W_OK):
        return out.parent
    return None


def _chunks(start: Sequence[bytes], writer: BlockWriter) -> Iterator[bytes]:
    yield from start
    yield from writer.chunks()
    yield DOCUMENT_END


def _check_size(size: int, out: Path, options: PageOptions) -> None:
    """Raise `OutputError` if the page is too large. Warn if it is large."""
    if size > options.max_bytes:
        raise OutputError(
            f"the report would be larger than {options.max_bytes / 1e6:,.0f} MB",
            file=out,
            hint=f"{SMALLER}; 'agentv view' shows results of any size",
        )
    if size > options.large_bytes:
        problem = Problem(
            message=f"the report has {size / 1e6:,.0f} MB: it is slow to send and to open",
            file=out,
            severity="warning",
            hint=SMALLER,
        )
        warn(problem)


def _ignore(_problem: Problem) -> None:
    """Ignore a truncated last line."""


class _Page:
    """Read the results of a page and write its blocks."""

    def __init__(
        self,
        results: Sequence[RunFiles],
        out: Path,
        options: PageOptions,
        writer: BlockWriter,
    ):
        self._results = results
        self._out = out
        self._options = options
        self._writer = writer
        self.rows = Rows()
        self._runs: list[_Run] = []
        self._figures: list[Figures] = []
        self._flips = (0, 0)
        """The numbers of cases that the second run fixed and broke."""

    def read(self) -> None:
        """Read all files and write the blocks of their results."""
        self._runs = [_Run(files) for files in self._results]
        kept = None
        if self._options.failed_only:
            # The figures are those of all results, so these are read once before the included ones are.
            self._read_all()
            self._compute_figures()
            kept = self._failed_cases()
            self.rows = Rows()
            self._runs = [_Run(files) for files in self._results]
        for number, run in enumerate(self._runs):
            self._write_run(number, run, kept)
        self._writer.finish()
        if not self._options.failed_only:
            self._compute_figures()

    def _read_all(self) -> None:
        """Read all results without writing them."""
        for run in self._runs:
            for record in self._read_records(run, on_torn=_ignore):  # reported when the file is read again
                run.add(self._row(record.view), record.view)

    def _failed_cases(self) -> set[int]:
        """Return the hashes of the keys of cases with a result that did not pass."""
        indices = [run.index for run in self._runs]
        is_kept = kept_rows(indices, len(self.rows))
        return set(compress(self.rows.hashes(), is_kept))

    def _write_run(self, number: int, run: "_Run", kept: set[int] | None) -> None:
        """Read a run and write its blocks. `kept` are the hashes of the cases to include, or None for all."""
        results = Lines(f"r{number}-", self._writer)
        snippets = Lines(f"s{number}-", self._writer, SNIPPET_BYTES)
        for record in self._read_records(run):
            view = record.view
            if kept is not None and hash(self._key(view)) not in kept:
                continue
            run.add(self._row(view), view)
            results.add(self._page_json(record.raw))
            snippet = snippet_of(view)
            snippets.add(snippet.encode("utf-8", "replace"))
            if self._writer.size > self._options.max_bytes:
                _check_size(self._writer.size, self._out, self._options)
        results.flush()
        snippets.flush()
        run.starts = {"results": results.starts, "snippets": snippets.starts}

    def _read_records(
        self,
        run: "_Run",
        on_torn: Callable[[Problem], None] = warn,
    ) -> Iterator[Record[PageView]]:
        """Yield the results of a run with secrets masked. Raise `ResultsError` if there are none."""
        is_empty = True
        for record in read_run(run.files, PageView, on_torn):
            is_empty = False
            yield masked(record)
        if is_empty:
            problem = Problem(
                message="there are no results in this file",
                file=run.path,
                hint=NO_RESULTS,
            )
            raise ResultsError([problem])

    def _page_json(self, raw: bytes) -> bytes:
        """Return the JSON of a result for the page: one line, few escapes, and no trace if traces are excluded."""
        if not self._options.traces and b'"trace"' in raw:
            fields = msgspec.json.decode(raw, type=Json)
            fields.pop("trace", None)
            return msgspec.json.encode(fields)
        return few_escapes(raw)

    def _key(self, view: PageView) -> tuple[str, ...]:
        """Return the identity of a case. Two runs are matched by id only, as in `agentv compare`."""
        if len(self._results) == 2:
            return (view.eval_id,)
        return view.dataset, view.eval_id, view.target

    def _row(self, view: PageView) -> int:
        return self.rows.number(self._key(view), view.eval_id)

    def _compute_figures(self) -> None:
        """Compute the figures of all results read so far."""
        rows = len(self.rows)
        self._figures = [run.figures(rows) for run in self._runs]
        if len(self._runs) == 2:
            first, second = (Cases(run.index, rows) for run in self._runs)
            self._flips = _count_flips(first, second)

    def columns(self) -> Iterator[Column]:
        """Yield the columns of the rows and of each run."""
        yield from self.rows.columns()
        for number, run in enumerate(self._runs):
            for name, data in run.index.columns():
                yield f"{name}-{number}", data

    def meta(self, comparison: Comparison | None) -> Json:
        """Return the data that the page shows first, and where to find the rest."""
        runs = []
        for run, figures, letter in zip(self._runs, self._figures, "AB", strict=False):
            runs.append(run.meta(figures, letter))
        meta: Json = {
            "rows": len(self.rows),
            "runs": runs,
            "failed_only": self._options.failed_only,
            "traces": self._options.traces,
            "headline": runs[0]["headline"],
        }
        if comparison is not None:
            fixed, broken = self._flips
            meta["headline"] = comparison_headline(comparison, fixed, broken)
            meta["comparison"] = comparison_meta(comparison, self._flips)
        return meta


def _count_flips(first: Cases, second: Cases) -> tuple[int, int]:
    """Return the numbers of cases in both runs that passed only in the second, and only in the first."""
    fixed = 0
    broken = 0
    for row, before in enumerate(first.passed):
        after = second.passed[row]
        if before == after or not first.seen[row] or not second.seen[row]:
            continue
        if after:
            fixed += 1
        else:
            broken += 1
    return fixed, broken


class _Run:
    """The columns and totals of one run."""

    def __init__(self, files: RunFiles):
        self.files = files_of(files)
        self.path = name_of(files)
        self.index = RunIndex()
        self.totals = Totals()
        self.starts: dict[str, list[int]] = {}
        """The number of the first result of each block."""

    def add(self, row: int, view: PageView) -> None:
        """Add a result of the case in this row."""
        self.index.add(row, view)
        self.totals.add(view)

    def figures(self, rows: int) -> Figures:
        """Return the figures of the run. `rows` is the number of rows of the page."""
        sums = case_sums(self.index, rows)
        figures = run_figures(sums, self.totals, self.index.names)
        return with_record(figures, self)

    def meta(self, figures: Figures, letter: str) -> Json:
        """Return the data that the page shows first about the run."""
        return {
            **run_meta(self, figures, letter),
            "results": len(self.index),
            "blocks": self.starts,
        }
