"""Find cases in several eval files that have the same id, which `compare` and readers may confuse."""

from pathlib import Path

from agentv.errors import ConfigError
from agentv.files.compact_sets import DuplicateFinder
from agentv.log import warn
from agentv.records import EvalCase, Problem
from agentv.run.planning.plan import Plan


def check_trial_names(plan: Plan) -> None:
    """Raise `ConfigError` if the trials of two cases would be indistinguishable."""
    if plan.trials == 1 or len(plan.files) == 1:
        return
    names = DuplicateFinder()
    for file in plan.files:
        names.add((case.dataset, case.id) for case in plan.cases_of(file))
    if names.duplicate_hashes():
        raise ConfigError(
            "--trials: two eval files have the same dataset name and the same ids",
            hint="change 'dataset:' in one of the files",
        )


def warn_of_equal_ids(plan: Plan) -> None:
    """Warn if several eval files contain the same id: `compare` and readers identify a case by its id alone."""
    if len(plan.files) == 1:
        return
    ids = DuplicateFinder()
    for file in plan.files:
        ids.add(case.id for case in plan.cases_of(file))
    hashes = ids.duplicate_hashes()
    if not hashes:
        return
    first_files: dict[str, Path] = {}
    for file in plan.files:
        for case in plan.cases_of(file):
            if hash(case.id) not in hashes:
                continue
            first_file = first_files.setdefault(case.id, file.path)
            if first_file != file.path:
                warn(_equal_id(case, file.path, first_file, len(hashes) - 1))
                return


def _equal_id(
    case: EvalCase,
    file: Path,
    first_file: Path,
    more: int,
) -> Problem:
    """Return a warning about an id that is in two files; `more` other ids are as well."""
    message = f"duplicate id {case.id!r}, also in {first_file}"
    if more == 1:
        message += ", and 1 more id is duplicated"
    elif more:
        message += f", and {more} more ids are duplicated"
    return Problem(
        message=message,
        severity="warning",
        file=file,
        line=case.line,
        column=1,
        hint="use unique ids: otherwise only the dataset distinguishes the results",
    )
