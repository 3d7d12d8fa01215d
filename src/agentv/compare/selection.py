"""Select the cases of two runs by a filter, before the runs are compared."""

from collections.abc import Iterator

from agentv.errors import ConfigError, OutputError
from agentv.files.compact_sets import HashSet
from agentv.filters.match import NO_MATCH, Filter
from agentv.log import ignore
from agentv.results.run_files import RunFiles, files_of, read_views
from agentv.results.views import FilterRow

ANY_DATASET = ""
"""The dataset in the keys of cases that are known by their id alone."""


class CaseSelection:
    """The cases that a filter selects: by their results in the second run, or in the first if only that has them.

    A case with several results is selected if one of them matches. Only hashes of the cases are in memory.
    """

    def __init__(self, first: RunFiles, second: RunFiles, condition: Filter):
        """Read both runs. Raise `AgentvError` if they cannot be read, or if the filter selects nothing."""
        self._condition = condition
        self._in_second = HashSet()
        self._only_in_first = HashSet()
        self._selected = HashSet()
        self._is_empty = True
        for row in _rows(second):
            self._in_second.add((row.dataset, row.eval_id))
            self._in_second.add((ANY_DATASET, row.eval_id))
            self._select(row)
        for row in _rows(first):
            key = (row.dataset, row.eval_id)
            any_key = (ANY_DATASET, row.eval_id)
            if key in self._in_second or any_key in self._in_second:
                continue
            self._only_in_first.add(key)
            self._select(row)
        if self._is_empty:
            raise ConfigError(f"no result matches the filter '{condition}'", hint=NO_MATCH)

    def _select(self, row: FilterRow) -> None:
        if not self._condition.matches(row):
            return
        self._is_empty = False
        self._selected.add((row.dataset, row.eval_id))
        self._selected.add((ANY_DATASET, row.eval_id))

    def includes(self, dataset: str, eval_id: str) -> bool:
        """Return whether a case is selected. With another dataset than in the second run, its id decides."""
        key = (dataset, eval_id)
        if key in self._in_second or key in self._only_in_first:
            return key in self._selected
        return (ANY_DATASET, eval_id) in self._selected


def _rows(run: RunFiles) -> Iterator[FilterRow]:
    """Return the results of a run."""
    for path in files_of(run):
        if path.exists() and not path.is_file():
            raise OutputError("filters need a regular file, which is read twice", file=path, hint="write it to a file")
    return read_views(run, FilterRow, ignore)
