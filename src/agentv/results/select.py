"""Results of a file, chosen and in order: what is held is a few bytes for each, and they are read again when shown."""

from array import array
from collections.abc import Collection, Iterator, Sequence
from fnmatch import fnmatchcase
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

from agentv.results.formats import ResultFormat, format_for, sniff
from agentv.results.read import read_result_blocks
from agentv.results.views import VerdictView

_START_BYTES = 4096
_id_of = attrgetter("eval_id")


class Chosen(NamedTuple):
    """Results of a file: where each begins and how long it is, in the order in which they are shown."""

    path: Path
    offsets: "array[int]"
    sizes: "array[int]"
    ids: frozenset[str]
    """Those of the ids that were asked for that are there."""
    is_empty: bool
    """Whether the file has no results at all."""

    def read(self) -> Iterator[tuple[bytes, Any, ResultFormat]]:
        """Yield each result as it is written, as plain values, and in which format it is written."""
        with self.path.open("rb") as file:
            form = sniff(file.peek(_START_BYTES)) or format_for(self.path)
            decode = form.decoder(dict)
            for offset, size in zip(self.offsets, self.sizes, strict=True):
                file.seek(offset)
                raw = file.read(size)
                yield raw, decode(raw), form


def choose(path: Path, ids: Collection[str] = (), *, failed: bool = False) -> Chosen:
    """Return the results with these ids, which may be globs; worst first, equal ones in the order of the file.

    Without ids it is all of them, with `failed` only those that did not pass. Results that were not scored come before
    all others. A torn last result is a warning. Raise `ResultsError` with everything else that is wrong.
    """
    offsets, sizes, scores = array("Q"), array("Q"), array("d")
    found: set[str] = set()
    is_empty = True
    plain, globs = frozenset(ids), [id_ for id_ in ids if any(sign in id_ for sign in "*?[")]

    def has_none(views: Sequence[VerdictView]) -> bool:
        return plain.isdisjoint(map(_id_of, views))

    for block in read_result_blocks(path, VerdictView, skip=has_none if ids and not globs else None):
        is_empty = False
        for view, offset, size in block.places():
            name = view.eval_id
            if name in plain:
                found.add(name)
            elif ids and not any(fnmatchcase(name, glob) for glob in globs):
                continue
            if not failed or not view.has_passed:
                offsets.append(offset)
                sizes.append(size)
                scores.append(-1.0 if view.is_unscored else view.score)
    order = sorted(range(len(scores)), key=scores.__getitem__)
    begins, lengths = (array("Q", map(column.__getitem__, order)) for column in (offsets, sizes))
    return Chosen(path, begins, lengths, frozenset(found), is_empty)
