"""Check that several results files are all the shards of one plan."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from agentv.records import Problem, ShardPlan
from agentv.results.merging.stamps import ShardStamp
from agentv.text import join_names

FileStamps = tuple[Path, Mapping[ShardStamp, int], int]
"""A file, its number of results by shard, and its number of results without a shard."""
PARTIAL = "to merge incomplete results, use 'agentv merge --partial'"
MAX_NAMES = 10
MAX_TOTAL = 1000


class Shards(NamedTuple):
    """The outcome of checking the shards of several files."""

    plan: ShardPlan | None
    """The plan of all shards, or None for results of runs without shards."""
    problems: Sequence[Problem]
    """Why the files are not shards of one run."""
    missing: Sequence[Problem]
    """The missing and incomplete shards."""


def check_shards(files: Sequence[FileStamps], repeated: Mapping[ShardStamp, int] | None = None) -> Shards:
    """Check that the files are all the shards of one plan.

    `repeated` is the number of duplicate results of each shard, which do not count, or None if it is not known yet.
    """
    counts: Counter[ShardStamp] = Counter()
    first_files: dict[ShardStamp, Path] = {}
    for path, stamps, _ in files:
        counts.update(stamps)
        for stamp in stamps:
            first_files.setdefault(stamp, path)
    if not counts:
        return Shards(plan=None, problems=(), missing=())
    mixed = _unstamped_problems(files)
    differing = _differing_stamp(first_files)
    if differing is not None:
        mixed.append(differing)
    if mixed:
        return Shards(plan=None, problems=mixed, missing=())
    plan = next(iter(counts)).plan
    surplus: list[Problem] = []
    if repeated is not None:
        counts.subtract(repeated)
        surplus = list(_surplus(counts, first_files))
    missing = list(_incomplete(counts, first_files))
    missing += _absent(counts, first_files, plan)
    return Shards(plan=plan, problems=surplus, missing=missing)


def _unstamped_problems(files: Sequence[FileStamps]) -> list[Problem]:
    """Return a problem for each file that has results without a shard."""
    problems: list[Problem] = []
    for path, _, unstamped in files:
        if unstamped:
            message = "the file is not a shard, but other files are"
            problems.append(Problem(message=message, file=path))
    return problems


def _differing_stamp(first_files: Mapping[ShardStamp, Path]) -> Problem | None:
    """Return a problem for the first shard that does not belong to the same plan as the others."""
    hint = "merge the shards of one run only, all with the same --shard I/N"
    one, *others = first_files
    there = first_files[one]
    for other in others:
        if (other.plan.digest, other.plan.cases) != (one.plan.digest, one.plan.cases):
            why = "the cases, targets, evaluators or trials were not the same"
            return Problem(
                message=f"{_of_plan(other)}, and {there}: {_of_plan(one)}",
                file=first_files[other],
                hint=f"{why}: re-run the shards",
            )
        if shard_count(other) != shard_count(one):
            return Problem(
                message=f"it is shard {other.shard}, and {there} is shard {one.shard}",
                file=first_files[other],
                hint=hint,
            )
        if other.shard == one.shard:
            here_count = other.plan.shard_cases
            there_count = one.plan.shard_cases
            return Problem(
                message=f"shard {one.shard} should have {here_count} results, and {there_count} by {there}",
                file=first_files[other],
                hint=hint,
            )
    return None


def _of_plan(stamp: ShardStamp) -> str:
    return f"shard {stamp.shard} is of plan {stamp.plan.digest} ({stamp.plan.cases} results)"


def _surplus(counts: Mapping[ShardStamp, int], first_files: Mapping[ShardStamp, Path]) -> Iterator[Problem]:
    """Yield a problem for each shard that has more results than planned."""
    for stamp, count in counts.items():
        planned = stamp.plan.shard_cases
        if count > planned:
            yield Problem(
                message=f"shard {stamp.shard} has {count} results, but {planned} were planned",
                file=first_files[stamp],
                hint="re-run the shard with a new --out",
            )


def _incomplete(counts: Mapping[ShardStamp, int], first_files: Mapping[ShardStamp, Path]) -> Iterator[Problem]:
    """Yield a problem for each shard that has fewer results than planned."""
    for stamp, count in counts.items():
        planned = stamp.plan.shard_cases
        if count < planned:
            yield Problem(
                message=f"shard {stamp.shard} is incomplete: it has {count} of {planned} results",
                file=first_files[stamp],
                hint=f"continue it with 'agentv eval --shard {stamp.shard} --resume'; {PARTIAL}",
            )


def _absent(
    counts: Mapping[ShardStamp, int],
    first_files: Mapping[ShardStamp, Path],
    plan: ShardPlan,
) -> Iterator[Problem]:
    """Yield a problem if results of shards without a file are missing."""
    missing = plan.cases - sum(stamp.plan.shard_cases for stamp in counts)
    if missing <= 0:
        return  # shards without a file are empty
    names = _absent_names(counts)
    shown = join_names(names, MAX_NAMES)
    if len(names) == 1:
        message = f"shard {shown} of this run is missing, with {missing} of {plan.cases} results"
    else:
        message = f"shards {shown} of this run are missing, with {missing} of {plan.cases} results in all"
    yield Problem(
        message=message,
        file=min(first_files.values()),
        hint=f"pass the files of all shards; {PARTIAL}",
    )


def _absent_names(counts: Mapping[ShardStamp, int]) -> list[str]:
    """Return the names of the shards without a file, such as `3/4`."""
    total = shard_count(next(iter(counts)))
    seen = {stamp.shard for stamp in counts}
    names: list[str] = []
    # a corrupt file may claim any total
    for number in range(1, min(total, MAX_TOTAL) + 1):
        name = f"{number}/{total}"
        if name not in seen:
            names.append(name)
    return names


def shard_count(stamp: ShardStamp) -> int:
    """Return the number of shards, or 0 if the stamp was not written by agentv."""
    total = stamp.shard.rpartition("/")[2]
    if not total.isdecimal() or len(total) >= 10:
        return 0
    return int(total)
