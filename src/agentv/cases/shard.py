"""Assign cases to shards by a hash of dataset and id, which is the same on every machine and Python version.

A case is always in the same shard, regardless of the other cases and their order. `--shard auto` reads the variables
that schedulers set for parallel jobs.
"""

import re
from collections.abc import Mapping
from hashlib import blake2b
from typing import NamedTuple, Self

from agentv.errors import ConfigError

AUTO = "auto"
HINT = "pass I/N, for example 2/4 for the second of four shards, or auto"
_SHARD = re.compile(r"([0-9]{1,9})/([0-9]{1,9})")


class Shard(NamedTuple):
    """The shard `number` of `total`; the first is 1."""

    number: int
    total: int

    def __str__(self) -> str:
        return f"{self.number}/{self.total}"

    def includes(self, dataset: str, eval_id: str) -> bool:
        """Return whether the case with this dataset and id is in the shard."""
        return shard_of(dataset, eval_id, self.total) == self.number

    @classmethod
    def parse(cls, text: str, environment: Mapping[str, str]) -> Self:
        """Return the shard that `--shard` names; raise `ConfigError` if the text is invalid.

        `auto` reads the shard from the scheduler's variables in the environment.
        """
        if text == AUTO:
            return cls(*_from_scheduler(environment))
        found = _SHARD.fullmatch(text)
        if found is None:
            raise ConfigError(f"invalid value for --shard: {text!r} (expected I/N, for example 2/4)", hint=HINT)
        number = int(found[1])
        total = int(found[2])
        if total < 1:
            raise ConfigError(f"invalid value for --shard: {text!r} (N must be at least 1)", hint=HINT)
        if not 1 <= number <= total:
            raise ConfigError(f"invalid value for --shard: {text!r} (I must be between 1 and {total})", hint=HINT)
        return cls(number, total)


def shard_of(dataset: str, eval_id: str, total: int) -> int:
    """Return the number of the shard, from 1 to `total`, that contains a case."""
    return case_hash(dataset, eval_id) % total + 1


def case_hash(dataset: str, eval_id: str) -> int:
    """Return a hash of a case that is the same in every process, unlike `hash`."""
    dataset_bytes = dataset.encode("utf-8", "surrogatepass")
    id_bytes = eval_id.encode("utf-8", "surrogatepass")
    # The length keeps the boundary: without it, "ab" + "c" and "a" + "bc" would have the same hash.
    text = len(dataset_bytes).to_bytes(8) + dataset_bytes + id_bytes
    hash_ = blake2b(text, digest_size=8).digest()
    return int.from_bytes(hash_)


class _Scheduler(NamedTuple):
    """The variables that a scheduler sets: the number of a job, and the number of jobs."""

    name: str
    number: str
    total: str
    first: int
    """The number of the first job."""
    total_hint: str = ""


_SCHEDULERS = (
    _Scheduler("GitLab", "CI_NODE_INDEX", "CI_NODE_TOTAL", first=1),
    _Scheduler("Slurm", "SLURM_ARRAY_TASK_ID", "SLURM_ARRAY_TASK_COUNT", first=0),
    _Scheduler(
        "Kubernetes",
        "JOB_COMPLETION_INDEX",
        "JOB_COMPLETIONS",
        first=0,
        total_hint="; Kubernetes does not set it: set it to the job's 'completions' in the container",
    ),
    _Scheduler("CircleCI", "CIRCLE_NODE_INDEX", "CIRCLE_NODE_TOTAL", first=0),
    _Scheduler("Buildkite", "BUILDKITE_PARALLEL_JOB", "BUILDKITE_PARALLEL_JOB_COUNT", first=0),
)
_SLURM_FIRST = "SLURM_ARRAY_TASK_MIN"
_SLURM_STEP = "SLURM_ARRAY_TASK_STEP"


def _from_scheduler(environment: Mapping[str, str]) -> tuple[int, int]:
    """Return number and total; raise `ConfigError` if no scheduler sets them, or if two schedulers disagree."""
    shards: dict[_Scheduler, tuple[int, int]] = {}
    for scheduler in _SCHEDULERS:
        if environment.get(scheduler.number):
            shards[scheduler] = _read_shard(scheduler, environment)
    if not shards:
        # GitLab sets only the total for a job that is not parallel.
        if environment.get("CI_NODE_TOTAL") == "1":
            return 1, 1
        known = []
        for each in _SCHEDULERS:
            known.append(f"{each.number} with {each.total} ({each.name})")
        raise ConfigError(
            "--shard auto: no CI or scheduler variables are set",
            hint=f"supported: {', '.join(known)}; {HINT}",
        )
    if len(set(shards.values())) > 1:
        claims = []
        for scheduler, (number, total) in shards.items():
            claims.append(f"{scheduler.number} and {scheduler.total} give {number}/{total}")
        listed = ", ".join(claims)
        raise ConfigError(f"--shard auto: the variables are inconsistent: {listed}", hint=HINT)
    return next(iter(shards.values()))


def _read_shard(scheduler: _Scheduler, environment: Mapping[str, str]) -> tuple[int, int]:
    """Return number and total; raise `ConfigError` if the scheduler's variables are missing or inconsistent."""
    if not environment.get(scheduler.total):
        raise ConfigError(
            f"--shard auto: {scheduler.number} is set, but {scheduler.total} is not",
            hint=f"set {scheduler.total} to the number of shards{scheduler.total_hint}",
        )
    number = _read_number(scheduler.number, environment)
    total = _read_number(scheduler.total, environment)
    first = scheduler.first
    step = 1
    details = ""
    hint = f"{scheduler.name} counts from {first} to {total - 1 + first}"
    if scheduler.name == "Slurm":
        # The numbers of an array may start anywhere and have a step: --array=0-6:2.
        first = _read_number(_SLURM_FIRST, environment, default=first)
        step = _read_number(_SLURM_STEP, environment, default=step) or 1
        details = f", the first is {first}, the step {step}"
        hint = "use an array without gaps, for example --array=1-4 or 0-6:2"
    index, remainder = divmod(number - first, step)
    if remainder or not 0 <= index < total:
        values = f"{scheduler.number} is {number}, {scheduler.total} is {total}{details}"
        names = f"{scheduler.number} and {scheduler.total}"
        raise ConfigError(f"--shard auto: {names} are inconsistent: {values}", hint=hint)
    return index + 1, total


def _read_number(
    name: str,
    environment: Mapping[str, str],
    default: int | None = None,
) -> int:
    text = environment.get(name)
    if not text and default is not None:
        return default
    if text is None or not re.fullmatch("[0-9]{1,9}", text):
        raise ConfigError(f"--shard auto: {name} is not a number: {text!r}", hint=HINT)
    return int(text)
