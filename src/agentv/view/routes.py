"""The routes of the viewer. To add a page, add a method and a row in `ROUTES`. Requests have passed all checks."""

import re
import struct
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from http import HTTPStatus
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import msgspec

from agentv.compare.compare import compare_files
from agentv.compare.pairs import pairs_of
from agentv.compare.records import CompareOptions, Comparison
from agentv.errors import AgentvError, ResultsError, SeveralProblems
from agentv.records import Problem
from agentv.redact import clean
from agentv.report.page.figures import run_figures
from agentv.report.page.meta import PageMeta, RunMeta, comparison_meta, run_meta, with_record
from agentv.report.page.sums import CaseSums, FlipCounts
from agentv.report.page.words import comparison_headline
from agentv.trust.answers import ReviewConflict
from agentv.trust.review import NewLabel
from agentv.view.chunk import id_key
from agentv.view.files import Catalog, ResultsFile, Stamp, stamp_of
from agentv.view.incremental_index import IncrementalIndex, field_lines, result_lines, snippet_lines
from agentv.view.incremental_reader import Entry, FileChanged
from agentv.view.pages import asset_answer, asset_names, page
from agentv.view.review import ReviewRequest, ReviewStore
from agentv.view.runs import RunLister
from agentv.view.server import HttpAnswer, HttpRequest

JSON = "application/json"
BYTES = "application/octet-stream"
KEPT_INDEXES = 16
SHOWN_PROBLEMS = 5
"""How many invalid records a page explains."""
MAX_UINT32 = 0xFFFFFFFF
RUN = r"(?P<run>[0-9a-f]{16})"
TWO_RUNS = r"(?P<first>[0-9a-f]{16})/(?P<second>[0-9a-f]{16})"
REVIEW = r"(?P<review>[0-9a-f]{16})/(?P<place>\d{1,9})"


class NotFound(Exception):
    """There is nothing at this address, for the reason in the message."""


class RunSums(msgspec.Struct, frozen=True):
    """The sums of a run, as computed by the browser."""

    run: str
    sums: CaseSums


class DescribeRequest(msgspec.Struct, frozen=True):
    """A request for the texts and intervals of a page about one run, or two."""

    runs: Annotated[tuple[RunSums, ...], msgspec.Meta(min_length=1, max_length=2)]
    flips: FlipCounts = FlipCounts(0, 0)


class IndexState(msgspec.Struct, frozen=True, kw_only=True):
    """How far a results file was read, and which chunks of its index follow."""

    gone: str = ""
    """Why the file cannot be read. In this case, the other fields have their defaults."""
    generation: int = 0
    """Distinguishes one content of the file from another."""
    change: str = ""
    """How the file has changed since the generation that the page has."""
    first: int = 0
    """The number of the first chunk that follows."""
    chunks: int = 0
    closed: int = 0
    """The number of chunks that no longer change."""
    results: int = 0
    read: int = 0
    """The number of bytes read so far, of `size`."""
    size: int = 0
    is_behind: bool = False
    """Whether there is more: of the file to read, or of the index to send."""
    status: str = ""
    truncated: Problem | None = None
    bad: int = 0
    problems: tuple[str, ...] = ()
    datasets: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()
    evaluators: tuple[str, ...] = ()


class ComparedFile(NamedTuple):
    """A file of a comparison, with its stamp at that time."""

    path: Path
    stamp: Stamp | None


class Site:
    """Answers the requests of one viewer."""

    def __init__(self, catalog: Catalog, reviews: ReviewStore):
        self._catalog = catalog
        self._reviews = reviews
        self._runs = RunLister(catalog)
        self._indexes: OrderedDict[str, IncrementalIndex] = OrderedDict()
        self._lock = threading.Lock()
        self._comparing = threading.Lock()
        self._compared: list[ComparedFile] = []
        """The files of the latest comparison."""
        self._comparison: Comparison | None = None

    def answer(self, request: HttpRequest) -> HttpAnswer:
        """Answer a request."""
        status = HTTPStatus.NOT_FOUND
        for method, handlers in ROUTES.items():
            for address, handler in handlers.items():
                match = re.fullmatch(address, request.path)
                if match is None:
                    continue
                if method == request.method:
                    return self._call(handler, request, match.groupdict())
                status = HTTPStatus.METHOD_NOT_ALLOWED
        text = f"{status.phrase.lower()}\n"
        return HttpAnswer(text.encode(), status=status)

    def _call(
        self,
        handler: "Handler",
        request: HttpRequest,
        arguments: dict[str, str],
    ) -> HttpAnswer:
        """Return the answer of a handler. Its exceptions become answers with an error status."""
        try:
            return handler(self, request, **arguments)
        except NotFound as error:
            return _problem(str(error), HTTPStatus.NOT_FOUND)
        except (FileChanged, ReviewConflict) as error:
            return _problem(str(error), HTTPStatus.CONFLICT)
        except SeveralProblems as error:
            texts = [str(AgentvError.of(problem)) for problem in error.problems[:3]]
            return _problem("; ".join(texts), HTTPStatus.CONFLICT)
        except AgentvError as error:
            text = str(error)
            if error.hint:
                text = f"{text} ({error.hint})"
            return _problem(text, HTTPStatus.CONFLICT)
        except (msgspec.MsgspecError, ValueError) as error:
            return _problem(f"the request cannot be read: {error}", HTTPStatus.BAD_REQUEST)

    def is_running(self, file: ResultsFile) -> bool:
        """Return whether a run is still writing the file."""
        return self._status_of(file) == "running"

    def close(self) -> None:
        """Discard all indexes."""
        for index in self._indexes.values():
            index.close()

    # Pages, which hold no data: they are served without the token

    def list_page(self, _request: HttpRequest) -> HttpAnswer:
        return page("runs", "Runs")

    def run_page(self, _request: HttpRequest, **_runs: str) -> HttpAnswer:
        return page("run", "Run")

    def compare_page(self, _request: HttpRequest, **_runs: str) -> HttpAnswer:
        return page("compare", "Comparison")

    def review_page(self, _request: HttpRequest, **_runs: str | None) -> HttpAnswer:
        return page("review", "Review", "review.js")

    def asset(self, _request: HttpRequest, name: str) -> HttpAnswer:
        if name not in asset_names():
            raise NotFound("no such file")
        return asset_answer(name)

    def icon(self, _request: HttpRequest) -> HttpAnswer:
        """Return the icon at the default address, which browsers request on their own."""
        return asset_answer("icon.svg")

    # Data

    def list_runs(self, _request: HttpRequest) -> HttpAnswer:
        return _json(self._runs.list())

    def read_index(self, request: HttpRequest, run: str) -> HttpAnswer:
        """Read the next part of a file, and return the state of its index and the chunks from `from`.

        The answer consists of the length of a JSON text, that text, and the chunks.
        """
        try:
            file = self._file(run)
            index = self._index(file)
            with index.lock:
                index.step()
        except NotFound:
            return _with_head(IndexState(gone="the results file no longer exists"))
        except FileChanged as error:
            return _with_head(IndexState(gone=str(error)))
        status = self._status_of(file)
        with index.lock:
            known_generation = _query_number(request, "generation")
            first = _query_number(request, "from")
            is_known = known_generation == index.generation
            if not is_known or not 0 <= first <= index.closed:
                first = 0
            answer = index.chunks(first)
            state = msgspec.structs.replace(
                _index_state(index, known_generation),
                first=first,
                chunks=answer.chunks,
                # An answer has a maximum size: the page asks for the chunks that are left.
                is_behind=index.is_behind or first + answer.chunks < index.chunk_count,
                status=status,
            )
        return _with_head(state, answer.data)

    def shared_keys(
        self,
        _request: HttpRequest,
        first: str,
        second: str,
    ) -> HttpAnswer:
        """Return the keys of the ids whose cases are matched by dataset, each as its lower and its upper 32 bits."""
        files = [self._file(first), self._file(second)]
        try:
            comparison = self._compare(files)
        except ResultsError:
            return _json([])  # reported when the page asks for the comparison
        keys = []
        for eval_id in pairs_of(comparison).shared_ids:
            key = id_key(eval_id)
            keys.append((key & MAX_UINT32, key >> 32))
        return _json(keys)

    def read_results(
        self,
        request: HttpRequest,
        run: str,
        chunk: str,
    ) -> HttpAnswer:
        entries = self._entries(request, run, chunk)
        return HttpAnswer(result_lines(entries), BYTES)

    def read_snippets(
        self,
        request: HttpRequest,
        run: str,
        chunk: str,
    ) -> HttpAnswer:
        entries = self._entries(request, run, chunk)
        return HttpAnswer(snippet_lines(entries), BYTES)

    def read_fields(
        self,
        request: HttpRequest,
        run: str,
        chunk: str,
    ) -> HttpAnswer:
        entries = self._entries(request, run, chunk)
        return HttpAnswer(field_lines(entries), BYTES)

    def describe(self, request: HttpRequest) -> HttpAnswer:
        """Return the texts and intervals of a page, for the sums that its browser has computed."""
        asked = msgspec.json.decode(request.body, type=DescribeRequest)
        files = [self._file(each.run) for each in asked.runs]
        runs = []
        for each, file, letter in zip(asked.runs, files, "AB", strict=False):
            runs.append(self._describe_run(each, file, letter))
        headline = runs[0].headline
        compared = None
        if len(files) == 2:
            comparison = self._compare(files)
            headline = comparison_headline(comparison, asked.flips)
            compared = comparison_meta(comparison)
        meta = PageMeta(
            runs=tuple(runs),
            headline=headline,
            comparison=compared,
        )
        masked = clean.values(msgspec.to_builtins(meta))
        return _json(masked)

    def _describe_run(
        self,
        asked: RunSums,
        file: ResultsFile,
        letter: str,
    ) -> RunMeta:
        index = self._index(file)
        with index.lock:
            figures = run_figures(asked.sums, index.totals, index.names)
            return run_meta(index, with_record(figures, index), letter, str(file.path))

    # Reviews

    def review_defaults(self, _request: HttpRequest) -> HttpAnswer:
        return _json(self._reviews.defaults)

    def begin_review(self, request: HttpRequest) -> HttpAnswer:
        """Start a review and return its state. The answers are not sent yet."""
        asked = msgspec.json.decode(request.body, type=ReviewRequest)
        files = self._files_to_review(asked.run)
        review = self._reviews.begin(files, asked)
        return _json(review.state)

    def _files_to_review(self, run: str | None) -> list[ResultsFile]:
        if run is None:
            return self._catalog.reviewed
        return [self._file(run)]

    def show_answer(
        self,
        _request: HttpRequest,
        review: str,
        place: str,
    ) -> HttpAnswer:
        shown = self._reviews.find(review).show(int(place))
        return _json(shown.case)

    def label_answer(
        self,
        request: HttpRequest,
        review: str,
        place: str,
    ) -> HttpAnswer:
        """Write a label. The response is sent when the label is on disk."""
        given = msgspec.json.decode(request.body, type=NewLabel)
        self._reviews.find(review).label(int(place), given)
        return _json({"label": given.label})

    # Shared by routes

    def _status_of(self, file: ResultsFile) -> str:
        """Return the status of the run that wrote a file, or an empty string without a run record."""
        record = self._runs.record_of(file)
        if record is None:
            return ""
        return record.status

    def _file(self, run: str) -> ResultsFile:
        """Return a results file by its id; raise `NotFound` if there is none."""
        file = self._catalog.find(run)
        if file is None:
            raise NotFound("no such run: its results file does not exist")
        return file

    def _index(self, file: ResultsFile) -> IncrementalIndex:
        """Return the index of a file, which is kept for later requests."""
        with self._lock:
            # Removed and inserted again, so that the least recently used index is the first one.
            index = self._indexes.pop(file.id, None)
            if index is None:
                index = IncrementalIndex(file.real)
            self._indexes[file.id] = index
            if len(self._indexes) > KEPT_INDEXES:
                # Not closed here: another request may still use it. It is closed when it is garbage collected.
                self._indexes.popitem(last=False)
            return index

    def _entries(
        self,
        request: HttpRequest,
        run: str,
        chunk: str,
    ) -> Iterator[Entry]:
        index = self._index(self._file(run))
        generation = _query_number(request, "generation")
        return index.entries(int(chunk), generation)

    def _compare(self, files: list[ResultsFile]) -> Comparison:
        """Compare two files. The latest comparison is reused as long as its files do not change."""
        with self._comparing:
            compared = [ComparedFile(file.real, stamp_of(file.real)) for file in files]
            if self._comparison is None or self._compared != compared:
                paths = [file.real for file in files]
                options = CompareOptions(skip_truncated=True)
                self._comparison, *_ = compare_files(paths, options)
                self._compared = compared
            return self._comparison


def _index_state(index: IncrementalIndex, known_generation: int) -> IndexState:
    """Return the state of an index for a browser that has this generation of it (0: none)."""
    problems = []
    for problem in index.problems[:SHOWN_PROBLEMS]:
        error = AgentvError.of(problem)
        problems.append(str(error))
    change = ""
    if known_generation and known_generation != index.generation:
        change = index.change
    return IndexState(
        generation=index.generation,
        change=change,
        closed=index.closed,
        results=index.results,
        read=index.offset,
        size=index.size,
        is_behind=index.is_behind,
        truncated=index.truncated,
        bad=index.bad,
        problems=tuple(problems),
        datasets=tuple(index.names.datasets),
        targets=tuple(index.names.targets),
        evaluators=tuple(index.names.evaluators),
    )


def _query_number(request: HttpRequest, name: str) -> int:
    """Return a number in the query of a request, 0 if it is missing; raise `ValueError` if it is not a number."""
    text = request.query.get(name, "0")
    return int(text)


def _json(value: Any) -> HttpAnswer:
    encoded = msgspec.json.encode(value, enc_hook=str)
    return HttpAnswer(encoded, JSON)


def _with_head(state: IndexState, chunks: bytes = b"") -> HttpAnswer:
    """Return an answer with the length of a JSON text, that text, and the chunks."""
    masked = clean.values(msgspec.to_builtins(state))
    head = msgspec.json.encode(masked)
    length = struct.pack("<I", len(head))
    return HttpAnswer(length + head + chunks, BYTES)


def _problem(text: str, status: HTTPStatus) -> HttpAnswer:
    masked = clean(f"{text}\n")
    return HttpAnswer(masked.encode("utf-8", "replace"), status=status)


Handler = Callable[..., HttpAnswer]

ROUTES: dict[str, dict[str, Handler]] = {
    "GET": {
        r"/": Site.list_page,
        rf"/run/{RUN}": Site.run_page,
        rf"/compare/{TWO_RUNS}": Site.compare_page,
        rf"/review(/{RUN})?": Site.review_page,
        r"/assets/(?P<name>[a-z]{1,20}\.(js|css|svg))": Site.asset,
        r"/favicon\.ico": Site.icon,
        r"/api/runs": Site.list_runs,
        rf"/api/compare/{TWO_RUNS}": Site.shared_keys,
        rf"/api/run/{RUN}/index": Site.read_index,
        rf"/api/run/{RUN}/results/(?P<chunk>\d{{1,9}})": Site.read_results,
        rf"/api/run/{RUN}/snippets/(?P<chunk>\d{{1,9}})": Site.read_snippets,
        rf"/api/run/{RUN}/fields/(?P<chunk>\d{{1,9}})": Site.read_fields,
        r"/api/review": Site.review_defaults,
        rf"/api/review/{REVIEW}": Site.show_answer,
    },
    "POST": {
        r"/api/describe": Site.describe,
        r"/api/review": Site.begin_review,
        rf"/api/review/{REVIEW}": Site.label_answer,
    },
}
"""The handlers of each method by address, a pattern whose groups are the arguments of the handler."""
