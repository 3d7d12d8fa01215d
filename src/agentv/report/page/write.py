"""One or two results files -> one HTML file that shows them, and needs nothing else.

Results are read as a stream. What is held is a few bytes for each (see `index`); the results themselves go through a
temporary file, since the index must stand before them in the page.
"""

import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from agentv.compare.compare import compare_files
from agentv.compare.records import CompareOptions, Comparison
from agentv.errors import OutputError, ResultsError
from agentv.notices import warn
from agentv.records import Problem
from agentv.report.page.blocks import BlockWriter, Lines
from agentv.report.page.document import DOCUMENT_END, document_start
from agentv.report.page.figures import Cases, Figures, Totals, case_sums, kept_rows, run_figures
from agentv.report.page.index import Rows, RunIndex, snippet_of
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
NO_RESULTS = "name a file that 'agentv eval' has written"


@dataclass(frozen=True, slots=True, kw_only=True)
class PageOptions:
    """What of the results goes into a page."""

    failed_only: bool = False
    """Only cases of which a result did not pass; the figures are still those of all."""
    traces: bool = True
    large_bytes: int = 50_000_000
    """From here on, a page is written with a warning."""
    max_bytes: int = 400_000_000
    """From here on, no page is written."""


class Written(NamedTuple):
    """What was written."""

    path: Path
    cases: int
    size: int


def default_path(results: Sequence[RunFiles]) -> Path:
    """Return where the page of these results goes unless somebody says otherwise."""
    first, *others = (files_of(run)[0] for run in results)
    return others[0].with_name(f"{first.stem}-vs-{others[0].stem}.html") if others else first.with_suffix(".html")


def write_report(results: Sequence[RunFiles], out: Path, options: PageOptions | None = None) -> Written:
    """Write the page of one run, or of two that are compared; each is a results file, or several.

    Raise `ResultsError` if there is nothing to show or a file is not valid, and `OutputError` if the page is too large
    or cannot be written.
    """
    options = options or PageOptions()
    if os.path.realpath(out) in [os.path.realpath(path) for run in results for path in files_of(run)]:
        raise OutputError("--out is one of the results files", file=out, hint="name another file")
    comparison = compare_files(results, CompareOptions(skip_torn=True))[0] if len(results) == 2 else None
    scratch = out.parent if out.parent.is_dir() and os.access(out.parent, os.W_OK) else None
    with tempfile.TemporaryFile(dir=scratch) as file, closing(BlockWriter(file)) as writer:
        page = _Page(results, out, options, writer)
        page.read()
        meta = page.meta(comparison)
        start = list(document_start(title_of([name_of(run).name for run in results]), meta, page.columns()))
        size = sum(map(len, start)) + writer.size + len(DOCUMENT_END)
        _check_size(size, out, options)
        write_atomically(out, _chunks(start, writer))
    return Written(out, len(page.rows), size)


def _chunks(start: Sequence[bytes], writer: BlockWriter) -> Iterator[bytes]:
    yield from start
    yield from writer.chunks()
    yield DOCUMENT_END


def _check_size(size: int, out: Path, options: PageOptions) -> None:
    if size > options.max_bytes:
        hint = f"{SMALLER}; 'agentv view' shows results of any size"
        raise OutputError(f"the report would be larger than {options.max_bytes / 1e6:,.0f} MB", file=out, hint=hint)
    if size > options.large_bytes:
        message = f"the report has {size / 1e6:,.0f} MB: it is slow to send and to open"
        warn(Problem(message=message, file=out, severity="warning", hint=SMALLER))


class _Page:
    """Reads the results of a page."""

    def __init__(self, results: Sequence[RunFiles], out: Path, options: PageOptions, writer: BlockWriter):
        self._results, self._out, self._options, self._writer = results, out, options, writer
        self.rows = Rows()
        self._runs: list[_Run] = []
        self._figures: list[Figures] = []
        self._flips = 0, 0

    def read(self) -> None:
        """Read all the files, and write what is shown of each result."""
        self._runs = [_Run(files) for files in self._results]
        kept = None
        if self._options.failed_only:
            self._scan()
            kept, self._runs = self._keep(), [_Run(files) for files in self._results]
        for number, run in enumerate(self._runs):
            self._read_run(number, run, kept)
        self._writer.finish()
        if kept is None:
            self._count()

    def _scan(self) -> None:
        """Count all the results, of which some will be left out."""
        for run in self._runs:
            for record in self._read_records(run, on_torn=lambda _: None):  # the second time is soon enough
                run.add(self._row(record.view), record.view)
        self._count()

    def _keep(self) -> set[int]:
        """Return the hashes of the cases of which a result did not pass."""
        kept = kept_rows([run.index for run in self._runs], len(self.rows))
        hashes = self.rows.hashes()
        self.rows = Rows()
        return {hashed for hashed, is_kept in zip(hashes, kept, strict=True) if is_kept}

    def _read_run(self, number: int, run: "_Run", kept: set[int] | None) -> None:
        results = Lines(f"r{number}-", self._writer)
        snippets = Lines(f"s{number}-", self._writer, SNIPPET_BYTES)
        for record in self._read_records(run):
            if kept is not None and hash(self._key(record.view)) not in kept:
                continue
            run.add(self._row(record.view), record.view)
            results.add(self._shown(record.raw))
            snippets.add(snippet_of(record.view).encode("utf-8", "replace"))
            if self._writer.size > self._options.max_bytes:
                _check_size(self._writer.size, self._out, self._options)
        results.flush()
        snippets.flush()
        run.starts = {"results": results.starts, "snippets": snippets.starts}

    def _read_records(self, run: "_Run", on_torn: Callable[[Problem], None] = warn) -> Iterator[Record[PageView]]:
        found = False
        for record in read_run(run.files, PageView, on_torn):
            found = True
            yield masked(record)
        if not found:
            raise ResultsError([Problem(message="there are no results in this file", file=run.path, hint=NO_RESULTS)])

    def _shown(self, raw: bytes) -> bytes:
        """Return a result as the page has it: on one line, with few escapes, without a trace if none is wanted."""
        if not self._options.traces and b'"trace"' in raw:
            fields = msgspec.json.decode(raw, type=dict[str, Any])
            fields.pop("trace", None)
            return msgspec.json.encode(fields)
        return few_escapes(raw)

    def _key(self, view: PageView) -> tuple[str, ...]:
        """Return what tells a case from others. Two runs are compared by id alone, as `agentv compare` does."""
        if len(self._results) == 2:
            return (view.eval_id,)
        return view.dataset, view.eval_id, view.target

    def _row(self, view: PageView) -> int:
        return self.rows.number(self._key(view), view.eval_id)

    def _count(self) -> None:
        """Compute the figures of all that was read."""
        rows = len(self.rows)
        self._figures = [run.figures(rows) for run in self._runs]
        if len(self._runs) == 2:
            first, second = (Cases(run.index, rows) for run in self._runs)
            both = list(zip(first.seen, second.seen, first.passed, second.passed, strict=True))
            fixed = sum(here and there and not before and after for here, there, before, after in both)
            broken = sum(here and there and before and not after for here, there, before, after in both)
            self._flips = fixed, broken

    def columns(self) -> Iterator[tuple[str, bytes]]:
        """Yield the columns of the rows, and of each run."""
        yield from self.rows.columns()
        for number, run in enumerate(self._runs):
            for name, data in run.index.columns():
                yield f"{name}-{number}", data

    def meta(self, comparison: Comparison | None) -> dict[str, Any]:
        """Return what the page shows at once, and what it needs to find the rest."""
        runs = [
            run.meta(figures, letter)
            for run, figures, letter in zip(self._runs, self._figures, ("A", "B"), strict=False)
        ]
        shown: dict[str, Any] = {
            "rows": len(self.rows),
            "runs": runs,
            "failed_only": self._options.failed_only,
            "traces": self._options.traces,
            "headline": runs[0]["headline"],
        }
        if comparison is not None:
            shown["headline"] = comparison_headline(comparison, *self._flips)
            shown["comparison"] = comparison_meta(comparison, self._flips)
        return shown


class _Run:
    """One results file: its columns and totals."""

    def __init__(self, files: RunFiles):
        self.files, self.path = files_of(files), name_of(files)
        self.index, self.totals = RunIndex(), Totals()
        self.starts: dict[str, list[int]] = {}

    def add(self, row: int, view: PageView) -> None:
        self.index.add(row, view)
        self.totals.add(view)

    def figures(self, rows: int) -> Figures:
        return with_record(run_figures(case_sums(self.index, rows), self.totals, self.index.names), self)

    def meta(self, figures: Figures, letter: str) -> dict[str, Any]:
        return run_meta(self, figures, letter) | {"results": len(self.index), "blocks": self.starts}
