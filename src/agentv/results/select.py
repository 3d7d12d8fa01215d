"""Select and order results of a file. Only their positions are held; each result is read again when it is shown."""

from array import array
from collections.abc import Callable, Collection, Iterator, Sequence
from fnmatch import fnmatchcase
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

from agentv.errors import ConfigError
from agentv.filters.match import NO_MATCH, Filter
from agentv.results.formats import ResultFormat, format_for, sniff
from agentv.results.read import read_result_blocks
from agentv.results.views import FilterRow, ResultRow

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
    """Whether the file has no results at all, or none that match the filter."""

    def read(self) -> Iterator[tuple[bytes, Any, ResultFormat]]:
        """Yield each result as bytes and as plain values, with the format of the file."""
        with self.path.open("rb") as file:
            start = file.peek(_START_BYTES)
            form = sniff(start) or format_for(self.path)
            decode = form.decoder(dict)
            places = zip(self.offsets, self.sizes, strict=True)
            for offset, size in places:
                file.seek(offset)
                raw = file.read(size)
                yield raw, decode(raw), form


def choose(
    path: Path,
    ids: Collection[str] = (),
    *,
    failed: bool = False,
    run_ids: Collection[str] | None = None,
    condition: Filter | None = None,
) -> Chosen:
    """Return the results with these ids or globs, worst first, with ties in file order.

    Without ids, all results are selected; with `failed`, only those that did not pass; with `run_ids`, only those of
    these runs; with `condition`, only those that match it. Unscored results come first. A truncated last result causes
    a warning. Raise `ResultsError` with all other problems.
    """
    offsets = array("Q")
    sizes = array("Q")
    scores = array("d")
    found: set[str] = set()
    is_empty = True
    plain = frozenset(ids)
    globs = [id_ for id_ in ids if not _GLOB_CHARACTERS.isdisjoint(id_)]
    row_type = ResultRow
    if condition is not None:
        row_type = FilterRow
    blocks = read_result_blocks(
        path,
        row_type,
        skip=_skip_others(plain, globs),
    )
    for block in blocks:
        if condition is None:
            is_empty = False  # the file has results, even if none of them is chosen
        for view, offset, size in block.places():
            if run_ids is not None and view.run_id not in run_ids:
                continue
            name = view.eval_id
            if name in plain:
                found.add(name)
            elif ids and not _matches_any(name, globs):
                continue
            if condition is not None and not condition.matches(view):
                continue
            is_empty = False
            if failed and view.has_passed:
                continue
            offsets.append(offset)
            sizes.append(size)
            if view.is_unscored:
                scores.append(_UNSCORED_RANK)
            else:
                scores.append(view.score)
    numbers = range(len(scores))
    order = sorted(numbers, key=scores.__getitem__)
    return Chosen(
        path=path,
        offsets=_in_order(offsets, order),
        sizes=_in_order(sizes, order),
        ids=frozenset(found),
        is_empty=is_empty,
    )


def nothing_matches(condition: Filter, path: Path) -> ConfigError:
    """Return the error that no result of a file matches a filter."""
    return ConfigError(f"no result matches the filter '{condition}'", file=path, hint=NO_MATCH)


def _matches_any(name: str, globs: Sequence[str]) -> bool:
    return any(fnmatchcase(name, glob) for glob in globs)


def _in_order(values: "array[int]", order: Sequence[int]) -> "array[int]":
    """Return the values with these indexes, in this order."""
    ordered = map(values.__getitem__, order)
    return array("Q", ordered)


def _skip_others(ids: frozenset[str], globs: Sequence[str]) -> Callable[[Sequence[ResultRow]], bool] | None:
    """Return a predicate for blocks that contain none of the ids, or None if every block must be read."""
    if not ids or globs:
        return None

    def has_none(views: Sequence[ResultRow]) -> bool:
        found = map(_id_of, views)
        return ids.isdisjoint(found)

    return has_none
