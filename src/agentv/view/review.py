"""Keeps the reviews of a viewer, and reads the answers for them."""

import secrets
import threading
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path

import msgspec

from agentv.errors import ResultsError
from agentv.log import warn
from agentv.records import Problem
from agentv.results.read import unreadable
from agentv.trust.answers import AnswerIndex, NoAnswers, ReviewConflict
from agentv.trust.review import Review, ReviewDefaults, ReviewOptions, check_labels
from agentv.view.files import ResultsFile
from agentv.view.incremental_reader import Entry, IncrementalReader

KEPT_REVIEWS = 32
KEPT_FILES = 8


class ReviewRequest(ReviewOptions, frozen=True, kw_only=True):
    """The request to start a review."""

    run: str | None = None
    """The id of a run; defaults to the files that the viewer was started with."""


class ReviewStore:
    """Starts reviews, and keeps the latest ones."""

    def __init__(self, defaults: ReviewDefaults):
        self.defaults = defaults
        self._reviews: OrderedDict[str, Review] = OrderedDict()
        self._answers: OrderedDict[Path, AnswerIndex] = OrderedDict()
        self._lock = threading.Lock()

    def check(self, files: Sequence[ResultsFile]) -> None:
        """Raise `AgentvError` if a review of these files cannot start, or if labels cannot be written."""
        check_labels(self.defaults.labels)
        self._read(files)

    def begin(self, files: Sequence[ResultsFile], options: ReviewOptions) -> Review:
        """Start a review of the answers in these files.

        Raise `AgentvError` if a file cannot be read, if no file has an answer, or if the labels file is invalid.
        """
        with self._lock:
            answers = self._read(files)
            seed = secrets.randbits(64)
            review = Review(answers, options, self.defaults.labels, seed)
            self._reviews[review.id] = review
            if len(self._reviews) > KEPT_REVIEWS:
                self._reviews.popitem(last=False)
            return review

    def find(self, review: str) -> Review:
        """Return a review by its id; raise `ReviewConflict` if it is no longer kept."""
        found = self._reviews.get(review)
        if found is None:
            raise ReviewConflict("this review has ended: reload the page")
        return found

    def _read(self, files: Sequence[ResultsFile]) -> list[AnswerIndex]:
        found: list[AnswerIndex] = []
        problem: NoAnswers | None = None
        for file in files:
            try:
                found.append(self._read_file(file))
            except NoAnswers as error:
                # Another file may have answers.
                problem = error
        if not found and problem is not None:
            raise problem
        return found

    def _read_file(self, file: ResultsFile) -> AnswerIndex:
        # Removed and inserted again, so that the least recently used file is the first one.
        answers = self._answers.pop(file.real, None)
        if answers is None or not answers.is_current:
            answers = read_answers(file.real, file.path)
        self._answers[file.real] = answers
        if len(self._answers) > KEPT_FILES:
            self._answers.popitem(last=False)
        return answers


def read_answers(path: Path, name: Path) -> AnswerIndex:
    """Return the answers of a results file. `name` is the path that messages show.

    Raise `ResultsError` with all problems of the file, or `NoAnswers` if it has no answers.
    """
    reader = _AnswerReader(path, name)
    try:
        reader.read_to_end()
    except OSError as error:
        problem = Problem.of(unreadable(error, path))
        raise _named([problem], name) from None
    problems = reader.find_problems()
    if problems.truncated is not None:
        warn(problems.truncated)
    if problems.errors:
        raise _named(problems.errors, name)
    reader.answers.check()
    return reader.answers


def _named(problems: Sequence[Problem], name: Path) -> ResultsError:
    named = [msgspec.structs.replace(problem, file=name) for problem in problems]
    return ResultsError(named)


class _AnswerReader(IncrementalReader):
    """Reads the answers of a file with their positions."""

    def __init__(self, path: Path, name: Path):
        self._name = name
        super().__init__(path)

    def _restart(self) -> None:
        super()._restart()
        self.answers = AnswerIndex(self.path, self._name)

    def _add(self, entry: Entry) -> None:
        super()._add(entry)
        if entry.view is not None:
            self.answers.add(entry.view, entry.offset, entry.size)
