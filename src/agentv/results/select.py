"""Results of a file, chosen and in order: what is held is a few bytes for each, and they are read again when shown."""

from array import array
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from agentv.errors import ResultsError
from agentv.notices import warn
from agentv.records import Problem
from agentv.results.formats import DECODE_ERRORS, ResultFormat, format_for, sniff
from agentv.results.read import TORN_HINT
from agentv.results.views import TrialView

_START_BYTES = 4096


class Chosen(NamedTuple):
    """Results of a file: where each begins and how long it is, in the order in which they are shown."""

    path: Path
    form: ResultFormat
    offsets: "array[int]"
    sizes: "array[int]"
    ids: frozenset[str]
    """Those of the ids that were asked for that are there."""

    def read(self) -> Iterator[tuple[bytes, Any]]:
        """Yield each result as it is written, and as plain values."""
        decode = self.form.decoder(dict)
        with self.path.open("rb") as file:
            for offset, size in zip(self.offsets, self.sizes, strict=True):
                file.seek(offset)
                raw = file.read(size)
                yield raw, decode(raw)


def choose(path: Path, wanted: Callable[[TrialView], bool], ids: frozenset[str] = frozenset()) -> Chosen:
    """Return the wanted results of a file, worst first; those of equal score in the order of the file.

    Results that were not scored come before all others. A torn last result is a warning. Raise `ResultsError` for a
    file that cannot be read, and for a record that is no result.
    """
    offsets, sizes, scores = array("Q"), array("Q"), array("d")
    found: set[str] = set()
    try:
        with path.open("rb") as file:
            form = sniff(file.peek(_START_BYTES)) or format_for(path)
            decode = form.decoder(TrialView)
            offset = 0
            for number, raw in enumerate(form.split(file), 1):
                start, offset = offset, offset + len(raw)
                if not raw.strip():
                    continue
                view = _decode(decode, raw, form, path, number)
                if view is None:
                    break
                if view.eval_id in ids:
                    found.add(view.eval_id)
                if wanted(view):
                    offsets.append(start)
                    sizes.append(len(raw))
                    scores.append(-1.0 if view.is_unscored else view.score)
    except OSError as error:
        hint = "name a results file of 'agentv eval'; 'agentv runs' lists those of this folder"
        problem = Problem(message=f"cannot be read: {error.strerror}", file=path, hint=hint)
        raise ResultsError([problem]) from error
    order = sorted(range(len(scores)), key=scores.__getitem__)
    begins, lengths = (array("Q", map(column.__getitem__, order)) for column in (offsets, sizes))
    return Chosen(path, form, begins, lengths, frozenset(found))


def _decode(decode: Callable[[bytes], Any], raw: bytes, form: ResultFormat, path: Path, number: int) -> Any:
    """Return a record; None for one that is torn, of which the user is warned."""
    try:
        return decode(raw)
    except DECODE_ERRORS as error:
        if form.is_torn(raw):
            message = f"the last {form.record} is cut off and left out"
            warn(Problem(message=message, severity="warning", file=path, line=None, hint=TORN_HINT))
            return None
        hint = "name a results file of 'agentv eval'"
        line = number if form.record == "line" else None
        problem = Problem(message=f"{form.record} {number} is no result of agentv", file=path, line=line, hint=hint)
        raise ResultsError([problem]) from error
