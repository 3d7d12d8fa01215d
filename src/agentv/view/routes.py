"""Addresses -> answers. A new page is a row in `ROUTES` and a function; all checks are done before."""

import re
import struct
import threading
from collections import OrderedDict
from collections.abc import Callable
from http import HTTPStatus
from typing import Annotated, Any

import msgspec

from agentv.compare.compare import compare_files
from agentv.compare.records import CompareOptions, Comparison
from agentv.errors import AgentvError, SeveralProblems
from agentv.redact import clean
from agentv.report.page.figures import CaseSums, run_figures
from agentv.report.page.meta import comparison_meta, run_meta, with_record
from agentv.report.page.words import comparison_headline
from agentv.view.files import Catalog, ResultsFile, stamp_of
from agentv.view.growing import Changed, GrowingIndex, result_lines, snippet_lines
from agentv.view.pages import asset_answer, asset_names, page
from agentv.view.review import LabelRequest, ReviewDesk, ReviewRequest
from agentv.view.runs import Runs
from agentv.view.server import Answer, Request

JSON = "application/json"
BYTES = "application/octet-stream"
KEPT_INDEXES = 16
RUN = r"(?P<run>[0-9a-f]{16})"
REVIEW = r"(?P<review>[0-9a-f]{16})/(?P<place>\d{1,9})"


class NotFound(Exception):
    """There is nothing at this address; the text says why."""


class SumsOf(msgspec.Struct, frozen=True):
    """What a run comes to, as the browser has added it up."""

    run: str
    sums: CaseSums


class Asked(msgspec.Struct, frozen=True):
    """What a page on one run, or on two, asks for: words and intervals for the sums."""

    runs: Annotated[tuple[SumsOf, ...], msgspec.Meta(min_length=1, max_length=2)]
    flips: tuple[int, int] = (0, 0)


class Site:
    """Answers the requests of one viewer."""

    def __init__(self, catalog: Catalog, desk: ReviewDesk):
        self._catalog, self._desk = catalog, desk
        self._runs = Runs(catalog)
        self._indexes: OrderedDict[str, GrowingIndex] = OrderedDict()
        self._lock, self._comparing = threading.Lock(), threading.Lock()
        self._comparison: tuple[Any, Comparison] | None = None

    def answer(self, request: Request) -> Answer:
        """Answer a request."""
        allowed = False
        for method, pattern, route in ROUTES:
            if (found := pattern.fullmatch(request.path)) is None:
                continue
            allowed = True
            if method == request.method:
                return self._call(route, request, found.groupdict())
        status = HTTPStatus.METHOD_NOT_ALLOWED if allowed else HTTPStatus.NOT_FOUND
        return Answer(f"{status.phrase.lower()}\n".encode(), status=status)

    def _call(self, route: "Route", request: Request, places: dict[str, str]) -> Answer:
        try:
            return route(self, request, **places)
        except NotFound as error:
            return _problem(str(error), HTTPStatus.NOT_FOUND)
        except Changed as error:
            return _problem(str(error), HTTPStatus.CONFLICT)
        except SeveralProblems as error:
            return _problem("; ".join(str(AgentvError.of(each)) for each in error.problems[:3]), HTTPStatus.CONFLICT)
        except AgentvError as error:
            return _problem(f"{error}{f' ({error.hint})' if error.hint else ''}", HTTPStatus.CONFLICT)
        except (msgspec.MsgspecError, ValueError) as error:
            return _problem(f"the request cannot be read: {error}", HTTPStatus.BAD_REQUEST)

    def is_running(self, file: ResultsFile) -> bool:
        """Whether a run is still writing the file."""
        record = self._runs.record_of(file)
        return record is not None and record.current_status == "running"

    def close(self) -> None:
        """Drop all indexes."""
        for index in self._indexes.values():
            index.close()

    # pages

    def list_page(self, _request: Request) -> Answer:
        return page("runs", "Runs")

    def run_page(self, _request: Request, run: str) -> Answer:
        return self._page("run", self._file(run).path.name)

    def compare_page(self, _request: Request, first: str, second: str) -> Answer:
        return self._page("compare", f"{self._file(first).path.name} and {self._file(second).path.name}")

    def review_page(self, _request: Request, run: str | None = None) -> Answer:
        if run is not None:
            self._file(run)
        return page("review", "Review", "review.js")

    def _page(self, kind: str, title: str) -> Answer:
        return page(kind, clean(title))

    def asset(self, _request: Request, name: str) -> Answer:
        if name not in asset_names():
            raise NotFound("there is no such file")
        return asset_answer(name)

    def icon(self, _request: Request) -> Answer:
        """Answer a browser that asks for an icon before it has read which one the page has."""
        return asset_answer("icon.svg")

    # data

    def list_runs(self, _request: Request) -> Answer:
        return Answer(msgspec.json.encode(self._runs.list()), JSON)

    def read_index(self, request: Request, run: str) -> Answer:
        """Read on in a file, and return its state and the chunks from `from` on.

        The answer is the length of a JSON text, that text, and the chunks.
        """
        try:
            file = self._file(run)
            index = self._index(file)
            with index.lock:
                index.step()
        except NotFound:
            return _with_head({"gone": "the results file is gone"})
        except Changed as error:
            return _with_head({"gone": str(error)})
        record = self._runs.record_of(file)
        with index.lock:
            wanted = int(request.query.get("generation", "0"))
            first = int(request.query.get("from", "0"))
            if wanted != index.generation or not 0 <= first <= index.closed:
                first = 0
            count, chunks = index.chunks(first)
            state = {
                "generation": index.generation,
                "change": index.change if wanted and wanted != index.generation else "",
                "first": first,
                "chunks": count,
                "closed": index.closed,
                "results": index.results,
                "read": index.offset,
                "size": index.size,
                "is_behind": index.is_behind,
                "status": record.current_status if record is not None else "",
                "torn": index.torn,
                "bad": index.bad,
                "problems": [str(AgentvError.of(problem)) for problem in index.problems],
                "datasets": list(index.names.datasets),
                "targets": list(index.names.targets),
                "evaluators": list(index.names.evaluators),
            }
        return _with_head(state, chunks)

    def read_results(self, request: Request, run: str, chunk: str) -> Answer:
        return Answer(result_lines(self._entries(request, run, chunk)), BYTES)

    def read_snippets(self, request: Request, run: str, chunk: str) -> Answer:
        return Answer(snippet_lines(self._entries(request, run, chunk)), BYTES)

    def describe(self, request: Request) -> Answer:
        """Return the words and intervals of a page, for what its browser has added up."""
        asked = msgspec.json.decode(request.body, type=Asked)
        files = [self._file(each.run) for each in asked.runs]
        runs = []
        for each, file, letter in zip(asked.runs, files, "AB", strict=False):
            index = self._index(file)
            with index.lock:
                figures = with_record(run_figures(each.sums, index.totals, index.names), index)
                runs.append(run_meta(index, figures, letter) | {"file": str(file.path)})
        meta: dict[str, Any] = {"runs": runs, "headline": runs[0]["headline"], "failed_only": False, "traces": True}
        if len(files) == 2:
            comparison = self._compare(files)
            meta["headline"] = comparison_headline(comparison, *asked.flips)
            meta["comparison"] = comparison_meta(comparison, asked.flips)
        return Answer(msgspec.json.encode(clean.values(msgspec.to_builtins(meta))), JSON)

    # labels

    def review_defaults(self, _request: Request) -> Answer:
        return Answer(msgspec.json.encode(self._desk.defaults, enc_hook=str), JSON)

    def begin_review(self, request: Request) -> Answer:
        """Draw the answers that a reviewer gets; nothing of them is sent."""
        asked = msgspec.json.decode(request.body, type=ReviewRequest)
        files = self._catalog.reviewed if asked.run is None else [self._file(asked.run)]
        return Answer(msgspec.json.encode(self._desk.begin(files, asked).state), JSON)

    def show_answer(self, _request: Request, review: str, place: str) -> Answer:
        return Answer(msgspec.json.encode(self._desk.find(review).show(int(place)).case), JSON)

    def label_answer(self, request: Request, review: str, place: str) -> Answer:
        """Write a label. The answer is sent when it is on disk."""
        said = msgspec.json.decode(request.body, type=LabelRequest)
        self._desk.find(review).label(int(place), said)
        return Answer(msgspec.json.encode({"label": said.label}), JSON)

    # what they share

    def _file(self, run: str) -> ResultsFile:
        file = self._catalog.find(run)
        if file is None:
            raise NotFound("there is no such run: its results file is gone, or was never here")
        return file

    def _index(self, file: ResultsFile) -> GrowingIndex:
        with self._lock:
            index = self._indexes.pop(file.id, None) or GrowingIndex(file.real)
            self._indexes[file.id] = index
            if len(self._indexes) > KEPT_INDEXES:
                self._indexes.popitem(last=False)  # it is closed when nobody reads it any more
            return index

    def _entries(self, request: Request, run: str, chunk: str) -> Any:
        return self._index(self._file(run)).entries(int(chunk), int(request.query.get("generation", "0")))

    def _compare(self, files: list[ResultsFile]) -> Comparison:
        """Return how two files compare; of the same two, as long as they do not change, only once."""
        with self._comparing:
            paths = [file.real for file in files]
            known = paths, list(map(stamp_of, paths))
            if self._comparison is None or self._comparison[0] != known:
                self._comparison = known, compare_files(paths, CompareOptions(skip_torn=True))[0]
            return self._comparison[1]


def _with_head(state: dict[str, Any], chunks: bytes = b"") -> Answer:
    head = msgspec.json.encode(clean.values(msgspec.to_builtins(state)))
    return Answer(struct.pack("<I", len(head)) + head + chunks, BYTES)


def _problem(text: str, status: HTTPStatus) -> Answer:
    return Answer(clean(f"{text}\n").encode("utf-8", "replace"), status=status)


Route = Callable[..., Answer]
ROUTES: tuple[tuple[str, re.Pattern[str], Route], ...] = (
    ("GET", re.compile(r"/"), Site.list_page),
    ("GET", re.compile(rf"/run/{RUN}"), Site.run_page),
    ("GET", re.compile(r"/compare/(?P<first>[0-9a-f]{16})/(?P<second>[0-9a-f]{16})"), Site.compare_page),
    ("GET", re.compile(r"/assets/(?P<name>[a-z]{1,20}\.(js|css|svg))"), Site.asset),
    ("GET", re.compile(r"/favicon\.ico"), Site.icon),
    ("GET", re.compile(r"/api/runs"), Site.list_runs),
    ("GET", re.compile(rf"/api/run/{RUN}/index"), Site.read_index),
    ("GET", re.compile(rf"/api/run/{RUN}/results/(?P<chunk>\d{{1,9}})"), Site.read_results),
    ("GET", re.compile(rf"/api/run/{RUN}/snippets/(?P<chunk>\d{{1,9}})"), Site.read_snippets),
    ("POST", re.compile(r"/api/describe"), Site.describe),
    ("GET", re.compile(rf"/review(/{RUN})?"), Site.review_page),
    ("GET", re.compile(r"/api/review"), Site.review_defaults),
    ("POST", re.compile(r"/api/review"), Site.begin_review),
    ("GET", re.compile(rf"/api/review/{REVIEW}"), Site.show_answer),
    ("POST", re.compile(rf"/api/review/{REVIEW}"), Site.label_answer),
)
"""Method, address and what answers: the first that fits."""
