"""Select and order results of a file. Only their positions are held; each result is read again when it is shown."""

from array import array
from collections.abc import Callable, Collection, Iterator, Sequence
from fnmatch import fnmatchcase
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

from agentv.results.formats import ResultFormat, format_for, sniff
from agentv.results.read import read_result_blocks
from agentv.results.views import VerdictView

_START_BYTES = 4096
_GLOB_CHARACTERS = frozenset("*?[")
_UNSCORED_RANK = -1.0
"""Below every score, so that unscored results come first."""
_id_of = attrgetter("eval_id")


class Chosen(NamedTuple):
    """Selected results of a file: the offset and size of each, in display order."""

    path: Path
    offsets: "array[int]"
    sizes: "array[int]"
    ids: frozenset[str]
    """The requested ids that the file contains."""
    is_empty: bool
    """Whether the file has no results at all."""

    def read(self) -> Iterator[tuple[bytes, Any, ResultFormat]]:
        """Yield each result as bytes and as plain values, with the format of the file."""
        with self.path.open("rb") as file:
            form = sniff(file.peek(_START_BYTES)) or format_for(self.path)
            decode = form.decoder(dict)
            for offset, size in zip(self.offsets, self.sizes, strict=True):
                file.seek(offset)
                raw = file.read(size)
                yield raw, decode(raw), form


def choose(path: Path, ids: Collection[str] = (), *, failed: bool = False) -> Chosen:
    """Return the results with these ids or globs, worst first, with ties in file order.

    Without ids, all results are selected; with `failed`, only those that did not pass. Unscored results come first. A
    truncated last result causes a warning. Raise `ResultsError` with all other problems.
    """
    offsets = array("Q")
    sizes = array("Q")
    scores = array("d")
    found: set[str] = set()
    is_empty = True
    plain = frozenset(ids)
    globs = [id_ for id_ in ids if not _GLOB_CHARACTERS.isdisjoint(id_)]
    for block in read_result_blocks(path, VerdictView, skip=_skip_others(plain, globs)):
        is_empty = False
        for view, offset, size in block.places():
            name = view.eval_id
            if name in plain:
                found.add(name)
            elif ids and not any(fnmatchcase(name, glob) for glob in globs):
                continue
            if failed and view.has_passed:
                continue
            offsets.append(offset)
            sizes.append(size)
            if view.is_unscored:
                scores.append(_UNSCORED_RANK)
            else:
                scores.append(view.score)
    order = sorted(range(len(scores)), key=scores.__getitem__)
    return Chosen(
        path=path,
        offsets=array("Q", map(offsets.__getitem__, order)),
        sizes=array("Q", map(sizes.__getitem__, order)),
        ids=frozenset(found),
        is_empty=is_empty,
    )


def _skip_others(ids: frozenset[str], globs: Sequence[str]) -> Callable[[Sequence[VerdictView]], bool] | None:
    """Return a predicate for blocks that contain none of the ids, or None if every block must be read."""
    if not ids or globs:
        return None

    def has_none(views: Sequence[VerdictView]) -> bool:
        return ids.isdisjoint(map(_id_of, views))

    return has_none
