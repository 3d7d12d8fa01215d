"""Whose results several files have -> whether these are all the shards of one plan."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from agentv.records import Problem, ShardPlan
from agentv.results.merging.stamps import ShardStamp

FileStamps = tuple[Path, Mapping[ShardStamp, int], int]
"""A file, how many results it has of which shard, and how many of none."""
PARTIAL = "'agentv merge --partial' takes what is there"


class Shards(NamedTuple):
    """What the shards in some files come to."""

    plan: ShardPlan | None
    """The plan of all of them; None for results of runs that were not divided."""
    problems: Sequence[Problem]
    """Why these are not shards of one run."""
    missing: Sequence[Problem]
    """What they lack."""


def check_shards(files: Sequence[FileStamps], repeated: Mapping[ShardStamp, int] | None = None) -> Shards:
    """Return what the shards come to.

    `repeated` is how many results of each shard do not count, as they are there twice; None if that is not known yet.
    """
    counts: Counter[ShardStamp] = Counter()
    first: dict[ShardStamp, Path] = {}
    for path, stamps, _ in files:
        counts.update(stamps)
        for stamp in stamps:
            first.setdefault(stamp, path)
    if not counts:
        return Shards(None, (), ())
    if problems := list(_mixed(files, first)):
        return Shards(None, problems, ())
    counts.subtract(repeated or {})
    plan = next(iter(counts)).plan
    surplus = list(_surplus(counts, first)) if repeated is not None else []
    return Shards(plan, surplus, list(_lacking(counts, first, plan)))


def _mixed(files: Sequence[FileStamps], first: Mapping[ShardStamp, Path]) -> Iterator[Problem]:
    """Yield why the files are not of one plan."""
    hint = "merge the shards of one run only, all with the same --shard I/N"
    for path, _, unstamped in files:
        if unstamped:
            yield Problem(message="it has results of a run without --shard, and other files have shards", file=path)
    one, *others = first
    for other in others:
        there = first[one]
        if (other.plan.digest, other.plan.cases) != (one.plan.digest, one.plan.cases):
            message = f"{_of_plan(other)}, and {there}: {_of_plan(one)}"
            why = "the cases, targets, evaluators or trials were not the same"
            yield Problem(message=message, file=first[other], hint=f"{why}: run the shards again")
            return
        if total_of(other) != total_of(one):
            message = f"it is shard {other.shard}, and {there} is shard {one.shard}"
            yield Problem(message=message, file=first[other], hint=hint)
            return
        if other.shard == one.shard:
            counts = other.plan.shard_cases, one.plan.shard_cases
            message = f"shard {one.shard} should have {counts[0]} results, and {counts[1]} by {there}"
            yield Problem(message=message, file=first[other], hint=hint)
            return


def _of_plan(stamp: ShardStamp) -> str:
    return f"shard {stamp.shard} is of plan {stamp.plan.digest} ({stamp.plan.cases} results)"


def _surplus(counts: Mapping[ShardStamp, int], first: Mapping[ShardStamp, Path]) -> Iterator[Problem]:
    """Yield the shards that have more results than they should."""
    for stamp, count in counts.items():
        if count > stamp.plan.shard_cases:
            message = f"shard {stamp.shard} has {count} results, and {stamp.plan.shard_cases} were planned"
            yield Problem(message=message, file=first[stamp], hint="run the shard again, into a file of its own")


def _lacking(counts: Mapping[ShardStamp, int], first: Mapping[ShardStamp, Path], plan: ShardPlan) -> Iterator[Problem]:
    """Yield the shards that are incomplete, and those that are not there."""
    for stamp, count in counts.items():
        if count < stamp.plan.shard_cases:
            message = f"shard {stamp.shard} is incomplete: it has {count} of {stamp.plan.shard_cases} results"
            hint = f"go on with 'agentv eval --shard {stamp.shard} --resume'; {PARTIAL}"
            yield Problem(message=message, file=first[stamp], hint=hint)
    missing = plan.cases - sum(stamp.plan.shard_cases for stamp in counts)
    if missing <= 0:
        return  # the others are empty
    total = total_of(next(iter(counts)))
    seen = {stamp.shard for stamp in counts}
    names = [name for number in range(1, min(total, 1000) + 1) if (name := f"{number}/{total}") not in seen]
    shown = ", ".join(names[:10]) + (f" and {len(names) - 10} more" if len(names) > 10 else "")
    if len(names) == 1:
        message = f"shard {shown} of this run is missing, with {missing} of {plan.cases} results"
    else:
        message = f"shards {shown} of this run are missing, with {missing} of {plan.cases} results in all"
    yield Problem(message=message, file=min(first.values()), hint=f"name the files of all shards; {PARTIAL}")


def total_of(stamp: ShardStamp) -> int:
    """Return how many shards there are; 0 if the stamp is none of ours."""
    total = stamp.shard.rpartition("/")[2]
    return int(total) if total.isdecimal() and len(total) < 10 else 0
