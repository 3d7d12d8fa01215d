"""Which cases belong to one of N shards: by a hash of dataset and id, the same on every machine and in every Python.

A case is in the same shard whatever other cases there are and in whatever order. `auto` asks the variables that
schedulers set for the jobs of a set.
"""

import re
from collections.abc import Mapping
from hashlib import blake2b
from typing import NamedTuple, Self

from agentv.errors import ConfigError

AUTO = "auto"
HINT = "--shard takes I/N with 1 ≤ I ≤ N, as 2/4, or auto"
_SHARD = re.compile(r"([0-9]{1,9})/([0-9]{1,9})")


class Shard(NamedTuple):
    """The shard `number` of `total`; the first is 1."""

    number: int
    total: int

    def __str__(self) -> str:
        return f"{self.number}/{self.total}"

    def includes(self, dataset: str, eval_id: str) -> bool:
        """Return whether the case of this dataset and id is in the shard."""
        return shard_of(dataset, eval_id, self.total) == self.number

    @classmethod
    def parse(cls, text: str, environment: Mapping[str, str]) -> Self:
        """Return the shard that `--shard` names; raise `ConfigError` if it names none.

        `auto` takes it from the variables of a scheduler in the environment.
        """
        if text == AUTO:
            return cls(*_from_scheduler(environment))
        found = _SHARD.fullmatch(text)
        if found is None:
            raise ConfigError(f"--shard: {text!r} is no shard", hint=HINT)
        number, total = int(found[1]), int(found[2])
        if total < 1:
            raise ConfigError(f"--shard: {text!r}: there must be at least one shard", hint=HINT)
        if not 1 <= number <= total:
            raise ConfigError(f"--shard: {text!r}: the first number must be from 1 to {total}", hint=HINT)
        return cls(number, total)


def shard_of(dataset: str, eval_id: str, total: int) -> int:
    """Return the number of the shard, from 1 to `total`, that a case is in."""
    name = dataset.encode("utf-8", "surrogatepass")
    text = len(name).to_bytes(8) + name + eval_id.encode("utf-8", "surrogatepass")
    return int.from_bytes(blake2b(text, digest_size=8).digest()) % total + 1


class _Scheduler(NamedTuple):
    """The variables with which a scheduler tells a job its number, and how many jobs there are."""

    name: str
    number: str
    total: str
    first: int
    """What the first job has as its number."""
    total_hint: str = ""


_SCHEDULERS = (
    _Scheduler("GitLab", "CI_NODE_INDEX", "CI_NODE_TOTAL", 1),
    _Scheduler("Slurm", "SLURM_ARRAY_TASK_ID", "SLURM_ARRAY_TASK_COUNT", 0),
    _Scheduler(
        "Kubernetes",
        "JOB_COMPLETION_INDEX",
        "JOB_COMPLETIONS",
        0,
        "; Kubernetes does not set it: give the container the job's 'completions' in it",
    ),
    _Scheduler("CircleCI", "CIRCLE_NODE_INDEX", "CIRCLE_NODE_TOTAL", 0),
    _Scheduler("Buildkite", "BUILDKITE_PARALLEL_JOB", "BUILDKITE_PARALLEL_JOB_COUNT", 0),
)
_SLURM_FIRST, _SLURM_STEP = "SLURM_ARRAY_TASK_MIN", "SLURM_ARRAY_TASK_STEP"


def _from_scheduler(environment: Mapping[str, str]) -> tuple[int, int]:
    """Return number and total; raise `ConfigError` if no scheduler tells them, or two tell different ones."""
    found = {each: _read(each, environment) for each in _SCHEDULERS if environment.get(each.number)}
    if not found:
        if environment.get("CI_NODE_TOTAL") == "1":  # what GitLab sets for a job that is alone
            return 1, 1
        known = ", ".join(f"{each.number} with {each.total} ({each.name})" for each in _SCHEDULERS)
        raise ConfigError("--shard auto: no variable of a scheduler is set", hint=f"it reads {known}; {HINT}")
    if len(set(found.values())) > 1:
        told = " and ".join(f"{each.number} says {number}/{total}" for each, (number, total) in found.items())
        raise ConfigError(f"--shard auto: the variables do not fit together: {told}", hint=HINT)
    return next(iter(found.values()))


def _read(scheduler: _Scheduler, environment: Mapping[str, str]) -> tuple[int, int]:
    """Return number and total; raise `ConfigError` if the variables of the scheduler do not tell them."""
    if not environment.get(scheduler.total):
        message = f"--shard auto: {scheduler.number} is set, and {scheduler.total} is not"
        raise ConfigError(message, hint=f"{scheduler.total} says how many shards there are{scheduler.total_hint}")
    number, total = _number(scheduler.number, environment), _number(scheduler.total, environment)
    first, step = scheduler.first, 1
    told, hint = "", f"{scheduler.name} counts from {first} to {total - 1 + first}"
    if scheduler.name == "Slurm":
        first = _number(_SLURM_FIRST, environment, default=first)
        step = _number(_SLURM_STEP, environment, default=step) or 1
        told, hint = f", the first is {first}, the step {step}", "an array must have no gaps, as --array=1-4 or 0-6:2"
    place, rest = divmod(number - first, step)
    if rest or not 0 <= place < total:
        told = f"{scheduler.number} is {number}, {scheduler.total} is {total}{told}"
        raise ConfigError(f"--shard auto: the variables do not fit together: {told}", hint=hint)
    return place + 1, total


def _number(name: str, environment: Mapping[str, str], default: int | None = None) -> int:
    text = environment.get(name)
    if not text and default is not None:
        return default
    if text is None or not re.fullmatch("[0-9]{1,9}", text):
        raise ConfigError(f"--shard auto: {name} is no number: {text!r}", hint=HINT)
    return int(text)
