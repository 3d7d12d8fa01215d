"""Write one or two runs as a self-contained HTML file.

Results are read as a stream, and only a few bytes of each are kept in memory (see `index`). The results themselves go
through a temporary file, because the index comes before them in the page.
"""

import os
import tempfile
from collections.abc import Callable, Container, Hashable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import compress
from pathlib import Path
from typing import NamedTuple

import msgspec

from agentv.compare.compare import compare_files
from agentv.compare.metrics import metrics_of_run
from agentv.compare.pairs import pairs_of
from agentv.compare.records import CompareOptions, Comparison
from agentv.errors import OutputError, ResultsError
from agentv.files.atomic_files import write_atomically
from agentv.log import ignore, warn
from agentv.records import CaseKey, Json, Problem
from agentv.report.page.blocks import BlockWriter, Lines
from agentv.report.page.document import DOCUMENT_END, document_start
from agentv.report.page.figures import RunFigures, Totals, run_figures
from agentv.report.page.index import Column, Rows, RunIndex, fields_of, row_key, snippet_of
from agentv.report.page.masking import few_escapes, masked
from agentv.report.page.meta import (
    EmbeddedPageMeta,
    EmbeddedRunMeta,
    LineBlocks,
    comparison_meta,
    run_meta,
    with_record,
)
from agentv.report.page.run_record import last_record, shown_metrics
from agentv.report.page.sums import Cases, FlipCounts, case_sums, count_flips, kept_rows
from agentv.report.page.words import comparison_headline, title_of
from agentv.results.read import StoredResult
from agentv.results.run_files import RunFiles, files_of, name_of, read_run
from agentv.results.views import PageView

SMALLER = "use --failed-only to exclude passed cases, or --no-traces to exclude traces"
SNIPPET_BYTES = 64 * 1024
"""The minimum size of a full block of snippets."""
NO_RESULTS = "pass a results file written by 'agentv eval'"


@dataclass(frozen=True, slots=True, kw_only=True)
class PageOptions:
    """What to include in a page."""

    failed_only: bool = False
    """Include only cases with a result that did not pass. The figures are still those of all cases."""
    traces: bool = True
    cases: Container[CaseKey] | None = None
    """The cases to include, or None for all. Results of other cases are not part of the figures."""
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
    first = _first_file(results[0])
    if len(results) == 1:
        return first.with_suffix(".html")
    second = _first_file(results[1])
    return second.with_name(f"{first.stem}-vs-{second.stem}.html")


def _first_file(run: RunFiles) -> Path:
    files = files_of(run)
    return files[0]


def write_report(
    results: Sequence[RunFiles],
    out: Path,
    options: PageOptions | None = None,
) -> Written:
    """Write the page of one run, or of two runs that are compared. Each run is one or more results files.

    Raise `ResultsError` if a file is invalid or has no results, and `OutputError` if the page is too large or cannot be
    written.
    """
    if options is None:
        options = PageOptions()
    _check_out(results, out)
    comparison = _compare(results)
    names = [name_of(run).name for run in results]
    title = title_of(names)
    with (
        tempfile.TemporaryFile(dir=_temporary_folder(out)) as file,
        closing(BlockWriter(file)) as writer,
    ):
        page = _Page(results, out, options, writer)
        if comparison is not None:
            page.shared_ids = pairs_of(comparison).shared_ids
        page.read()
        meta = page.meta(comparison)
        columns = page.columns()
        start = list(document_start(title, meta, columns))
        size = sum(map(len, start))
        size += writer.size
        size += len(DOCUMENT_END)
        _check_size(size, out, options)
        chunks = _chunks(start, writer)
        write_atomically(out, chunks)
    return Written(
        path=out,
        cases=len(page.rows),
        size=size,
    )


def _check_out(results: Sequence[RunFiles], out: Path) -> None:
    """Raise `OutputError` if the page would overwrite a results file."""
    real_out = os.path.realpath(out)
    for run in results:
        for path in files_of(run):
            if os.path.realpath(path) != real_out:
                continue
            raise OutputError(
                "--out is one of the results files",
                file=out,
                hint="choose another file",
            )


def _compare(results: Sequence[RunFiles]) -> Comparison | None:
    """Return the comparison of two runs, or None for a single run."""
    if len(results) != 2:
        return None
    options = CompareOptions(skip_truncated=True)
    comparison, *_ = compare_files(results, options)
    return comparison


def _temporary_folder(out: Path) -> Path | None:
    """Return the folder of the page if it is writable, since it has room for the page, otherwise None."""
    folder = out.parent
    if not folder.is_dir():
        return None
    if not os.access(folder, os.W_OK):
        return None
    return folder


def _chunks(start: Sequence[bytes], writer: BlockWriter) -> Iterator[bytes]:
    yield from start
    yield from writer.chunks()
    yield DOCUMENT_END


def _check_size(size: int, out: Path, options: PageOptions) -> None:
    """Raise `OutputError` if the page is too large. Warn if it is large."""
    if size > options.max_bytes:
        megabytes = options.max_bytes / 1e6
        raise OutputError(
            f"the report would be larger than {megabytes:,.0f} MB",
            file=out,
            hint=f"{SMALLER}; 'agentv view' shows results of any size",
        )
    if size > options.large_bytes:
        megabytes = size / 1e6
        problem = Problem(
            message=f"the report is {megabytes:,.0f} MB: it will be slow to send and to open",
            file=out,
            severity="warning",
            hint=SMALLER,
        )
        warn(problem)


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
        self._figures: list[RunFigures] = []
        self._flips = FlipCounts(0, 0)
        self.shared_ids: frozenset[str] = frozenset()
        """The ids that occur in more than one dataset of a run, if two runs are compared."""

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
            # A truncated line is reported when the file is read again.
            for record in self._read_records(run, on_truncated=ignore):
                row = self._row(record.view)
                run.add(row, record.view)

    def _failed_cases(self) -> set[int]:
        """Return the hashes of the keys of cases with a result that did not pass."""
        indices = [run.index for run in self._runs]
        is_kept = kept_rows(indices, len(self.rows))
        hashes = self.rows.hashes()
        return set(compress(hashes, is_kept))

    def _write_run(
        self,
        number: int,
        run: "_Run",
        kept: set[int] | None,
    ) -> None:
        """Read a run and write its blocks. `kept` are the hashes of the cases to include, or None for all."""
        results = Lines(f"r{number}-", self._writer)
        snippets = Lines(f"s{number}-", self._writer, SNIPPET_BYTES)
        fields = Lines(f"f{number}-", self._writer)
        for record in self._read_records(run):
            view = record.view
            if kept is not None:
                key = self._key(view)
                if hash(key) not in kept:
                    continue
            row = self._row(view)
            run.add(row, view)
            result = self._page_json(record.raw)
            results.add(result)
            snippet = snippet_of(view)
            snippets.add(snippet.encode("utf-8", "replace"))
            fields.add(fields_of(view))
            if self._writer.size > self._options.max_bytes:
                _check_size(self._writer.size, self._out, self._options)
        results.flush()
        snippets.flush()
        if fields.has_text:
            fields.flush()
        run.blocks = LineBlocks(
            results=tuple(results.starts),
            snippets=tuple(snippets.starts),
            fields=tuple(fields.starts),
        )

    def _read_records(
        self,
        run: "_Run",
        on_truncated: Callable[[Problem], None] = warn,
    ) -> Iterator[StoredResult[PageView]]:
        """Yield the results of a run with secrets masked. Raise `ResultsError` if there are none."""
        is_empty = True
        for record in read_run(run.files, PageView, on_truncated):
            if self._options.cases is not None and record.view.case_key not in self._options.cases:
                continue
            is_empty = False
            yield masked(record)
        if is_empty:
            problem = Problem(
                message="the file contains no results",
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

    def _key(self, view: PageView) -> Hashable:
        """Return the key of a row. Two runs are matched as in `agentv compare`."""
        if len(self._results) != 2:
            return row_key(view)
        if view.eval_id in self.shared_ids:
            return view.case_key
        return view.eval_id

    def _row(self, view: PageView) -> int:
        key = self._key(view)
        return self.rows.number(key, view.eval_id)

    def _compute_figures(self) -> None:
        """Compute the figures of all results read so far."""
        rows = len(self.rows)
        self._figures = [run.figures(rows) for run in self._runs]
        if self._options.cases is not None:
            self._figures = [msgspec.structs.replace(each, unplanned_results=0) for each in self._figures]
        if len(self._runs) == 1 and self._options.cases is None:
            self._figures = [self._runs[0].with_metrics(self._figures[0])]
        if len(self._runs) == 2:
            before = Cases(self._runs[0].index, rows)
            after = Cases(self._runs[1].index, rows)
            self._flips = count_flips(before, after)

    def columns(self) -> Iterator[Column]:
        """Yield the columns of the rows and of each run."""
        yield from self.rows.columns()
        for number, run in enumerate(self._runs):
            for name, data in run.index.columns():
                yield f"{name}-{number}", data

    def meta(self, comparison: Comparison | None) -> EmbeddedPageMeta:
        """Return the data that the page shows first, and where to find the rest."""
        runs = []
        for run, figures, letter in zip(self._runs, self._figures, "AB", strict=False):
            described = run.meta(figures, letter)
            runs.append(described)
        headline = runs[0].headline
        compared = None
        if comparison is not None:
            headline = comparison_headline(comparison, self._flips)
            compared = comparison_meta(comparison)
        return EmbeddedPageMeta(
            rows=len(self.rows),
            runs=tuple(runs),
            failed_only=self._options.failed_only,
            traces=self._options.traces,
            headline=headline,
            comparison=compared,
        )


class _Run:
    """The columns and totals of one run."""

    def __init__(self, files: RunFiles):
        self.files = files_of(files)
        self.path = name_of(files)
        self.index = RunIndex()
        self.totals = Totals()
        self.blocks = LineBlocks(results=(), snippets=(), fields=())
        self._eval_files: set[str | None] = set()
        """The names of the eval files in the results."""
        self._shards: set[str | None] = set()
        """The shards that the results are of."""

    def add(self, row: int, view: PageView) -> None:
        """Add a result of the case in this row."""
        self._eval_files.add(view.file)
        self._shards.add(view.shard)
        self.index.add(row, view)
        self.totals.add(view)

    def figures(self, rows: int) -> RunFigures:
        """Return the figures of the run. `rows` is the number of rows of the page."""
        sums = case_sums(self.index, rows)
        figures = run_figures(sums, self.totals, self.index.names)
        return with_record(figures, self)

    def with_metrics(self, figures: RunFigures) -> RunFigures:
        """Return the figures with the metrics of the run."""
        record = last_record(figures, self.path)
        metrics = metrics_of_run(self.files, self._eval_files, self._shards, record)
        return msgspec.structs.replace(figures, metrics=shown_metrics(metrics))

    def meta(self, figures: RunFigures, letter: str) -> EmbeddedRunMeta:
        """Return the data that the page shows first about the run."""
        meta = run_meta(self, figures, letter)
        fields = msgspec.structs.asdict(meta)
        return EmbeddedRunMeta(
            **fields,
            results=len(self.index),
            blocks=self.blocks,
        )
