"""Find the cases that a run should have had: those of the earlier run that are still in its eval files."""

from collections.abc import Collection, Iterator
from pathlib import Path

from agentv.cases.read import calls_function, read_eval_file
from agentv.compare.pairs import Pairs
from agentv.errors import EvalFileError
from agentv.files.folders import project_root
from agentv.records import CaseKey, Problem


def find_missing(pairs: Pairs, folder: Path | None = None) -> list[CaseKey]:
    """Return the cases that only the first run has, although they are still in the eval files of the second.

    Eval files are relative to the root of the project that `folder` belongs to, by default the current one. A file that
    is unknown, or invalid, counts as containing all cases, and so does a file with `cases_from`: no user code runs to
    look up a case. Cases that are marked with `skip` are not missing.
    """
    only_first = pairs.only_first()
    if not only_first:
        return []
    start = folder or Path.cwd()
    root = project_root(start) or start
    present = _cases_in(pairs.eval_files, root)
    if present is None:
        return only_first
    ids = {case.eval_id for case in present}
    missing = []
    for case in only_first:
        if case in present or (not case.dataset and case.eval_id in ids):
            missing.append(case)
    return missing


def _cases_in(files: Collection[str | None], root: Path) -> set[CaseKey] | None:
    """Return the cases of eval files, or None if they are unknown."""
    present: set[CaseKey] = set()
    for file in files:
        if file is None:
            return None
        path = root / file
        try:
            if calls_function(path):
                return None
            present.update(_read_cases(path))
        except EvalFileError:
            return None
    return present


def _read_cases(path: Path) -> Iterator[CaseKey]:
    """Yield the cases of an eval file that are not marked with `skip`.

    Raise `EvalFileError` if it has an invalid case, which may be a missing one.
    """
    for case in read_eval_file(path, _raise_problem):
        if not case.skip:
            yield CaseKey(case.dataset, case.id)


def _raise_problem(problem: Problem) -> None:
    raise EvalFileError.of(problem)
