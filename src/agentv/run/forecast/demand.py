"""A plan -> who will be asked, how often, and with how much text. Nobody is asked to find that out.

It is one pass over the cases, as the run makes it; what is held are sums, and with `keys` a few bytes for each case.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from agentv.calls.cache import Cache
from agentv.calls.cache_key import cache_key, target_key
from agentv.cases.digest import case_digest
from agentv.evaluators.build import EvaluatorBuilder
from agentv.evaluators.judge_check import ANSWERS, CASES, judging_evaluators
from agentv.evaluators.score import CaseEvaluators
from agentv.judges.canaries import WORTHLESS
from agentv.judges.payload import reference_answer
from agentv.judges.reply import TRIES
from agentv.judges.target import JudgeRef, NoJudge
from agentv.protocols import JudgeTarget, Provider
from agentv.providers.settings import TargetSettings
from agentv.records import EvalCase, Exchange, Problem, ProviderRequest, ProviderResponse
from agentv.redact import clean
from agentv.run.forecast.cached_judging import cached_calls
from agentv.run.jobs import IsDone, build_or_explain
from agentv.run.plan import Plan, PlannedFile
from agentv.system.compact_sets import HashSet

Key = tuple[Path | None, str]
"""A target: its targets file, and its name."""
CANARIES = len(WORTHLESS) + 2
"""How many answers `--check-judge` plants in a case, at most."""


class JudgeCalls(NamedTuple):
    """How often one judge is asked about one answer: at least, as a rule, and at most."""

    judge: str
    low: int
    expected: int
    high: int


def is_batch(settings: TargetSettings | None) -> bool:
    """Return whether a target is asked through its vendor's batch API, which has prices of its own."""
    return settings is not None and settings.batch_api is True


@dataclass
class TargetDemand:
    """What one target is asked for."""

    name: str
    settings: TargetSettings | None
    digest: str
    limit: int
    """How many cases it works on at once."""
    jobs: int = 0
    cached: int = 0
    """Of those, how many the cache can answer."""
    characters: int = 0
    """The length of all that it is sent, for what the cache cannot answer."""
    media: int = 0
    """How many images and PDFs it is sent."""


@dataclass
class JudgeDemand:
    """What one judge is asked for: about answers of the run, and for `--check-judge`."""

    name: str
    settings: TargetSettings
    answers: int = 0
    cached: int = 0
    """Of those, how many it need not be asked about, since the cache has what it says of them."""
    low: int = 0
    calls: int = 0
    high: int = 0
    characters: int = 0
    """The length of all that it is sent, but for the answers and what all its prompts share."""
    checks: int = 0
    """How often the checks ask it, at most."""

    planned: int = 0
    """How many calls there would be without the cache."""

    def add(self, calls: JudgeCalls, characters: int, answers: int = 1, cached: int = 0) -> None:
        """Count answers, each of which takes these calls, but for those that the cache has.

        What is sent about each has so many characters.
        """
        left, most = calls.expected - cached, calls.high - cached * TRIES
        self.answers += answers
        self.cached += answers if cached and not most else 0
        self.low += answers * calls.low
        self.calls += answers * left
        self.high += answers * most
        self.characters += answers * left * characters
        self.planned += answers * calls.expected

    @property
    def share(self) -> float:
        """The part of the calls that the cache is not known to have."""
        return self.calls / self.planned if self.planned else 1.0


@dataclass
class Demand:
    """Who is asked, and how often."""

    targets: dict[Key, TargetDemand] = field(default_factory=dict)
    judges: dict[Key, JudgeDemand] = field(default_factory=dict)
    checked: dict[Key, JudgeDemand] = field(default_factory=dict)
    """The judges that are checked, as if there were no cache: the checks tell what their calls take from it."""
    cases: int = 0
    """How many cases have anything left to run."""
    jobs: int = 0
    answered: HashSet = field(default_factory=HashSet)
    """The cases as they are now, each with the digest of its target: what earlier results are compared with."""
    scored: HashSet = field(default_factory=HashSet)
    """The same with the digest of the evaluators."""


class ForecastOptions(NamedTuple):
    """What of a plan is to be run, and how."""

    trials: int = 1
    workers: int | None = None
    targets: Path | None = None
    """The targets file that was asked for."""
    cache: Path | None = None
    check_judge: bool = False
    max_retries: int | None = None
    runs: Path | None = None
    """Where the records of earlier runs are."""

    @property
    def has_runs(self) -> bool:
        """Whether there are earlier runs at all: else no keys of cases are needed."""
        return self.runs is not None and next(self.runs.glob("*.json"), None) is not None


def demand_of(plan: Plan, options: ForecastOptions, is_done: IsDone | None = None) -> Demand:
    """Return who will be asked in a run of the plan, and how often."""
    counter = _Counter(plan, options)
    for file in plan.files:
        for case in plan.cases_of(file):
            trials = range(1, options.trials + 1)
            left = [trial for trial in trials if is_done is None or not is_done(case, trial)]
            if left:
                counter.add(file, case, left)
    if options.check_judge:
        counter.add_checks()
    return counter.demand


class _Counter:
    def __init__(self, plan: Plan, options: ForecastOptions):
        self._plan, self._options, self.demand = plan, options, Demand()
        self._builder = EvaluatorBuilder(NamedJudges(plan), dry_run=plan.dry_run, warn=_ignore, targets=options.targets)
        self._cache = Cache(options.cache, clean) if options.cache is not None else None
        self._has_runs = options.has_runs
        self._target_keys: dict[tuple[Path | None, str, Path], Any] = {}
        self._last: tuple[CaseEvaluators | None, list[JudgeCalls]] = None, []
        self._planted: dict[Key, int] = {}
        """How many calls the planted answers of a case take, of the case that takes the most."""

    def add(self, file: PlannedFile, case: EvalCase, trials: list[int]) -> None:
        """Count a case that is run so many times."""
        planned = file.targets[self._plan.selection.target_of(case)]
        request, _ = build_or_explain(case, file, planned)
        demand, key = self.demand, (file.targets_file, planned.name)
        if key not in demand.targets:
            limit = planned.limit(self._options.workers)
            demand.targets[key] = TargetDemand(planned.name, planned.settings, planned.digest, limit)
        target = demand.targets[key]
        demand.cases += 1
        demand.jobs += len(trials)
        target.jobs += len(trials)
        if request is None:
            return  # an error of the case, which costs nothing
        known = self._cached(file, planned.name, request, trials)
        cached = len(known)
        target.cached += cached
        length = len(request.question) + len(request.guidelines)
        target.characters += length * (len(trials) - cached)
        target.media += len(request.media) * (len(trials) - cached)
        evaluators = self._builder.build(case, planned.name)
        if self._has_runs:
            names = clean(case.dataset), clean(case.id), case_digest(case, request)
            demand.answered.add((*names, planned.digest))
            demand.scored.add((*names, evaluators.digests["evaluators"]))
        if evaluators.has_judges and not self._plan.dry_run:
            judged = length + len(case.expected_outcome) + len(reference_answer(case))
            done = [
                self._cached_calls(file, Exchange(case=case, request=sent, response=got), evaluators)
                for sent, got in known
            ]
            for calls in self._judge_calls(evaluators):
                self._add_judge(file, calls, judged, len(trials) - cached, [each[calls.judge] for each in done])

    def _add_judge(
        self, file: PlannedFile, calls: JudgeCalls, characters: int, answers: int, cached: Sequence[int]
    ) -> None:
        """Count answers, and answers of which the cache has so many of the calls."""
        key = file.targets_file, calls.judge
        judge = self.demand.judges.setdefault(key, JudgeDemand(calls.judge, file.settings[calls.judge]))
        asked = calls if self._cache is None else calls._replace(low=0)
        judge.add(asked, characters, answers)
        for count in cached:
            judge.add(asked, characters, cached=count)
        if self._options.check_judge:
            checked = self.demand.checked.setdefault(key, JudgeDemand(calls.judge, judge.settings))
            checked.add(calls, characters, answers + len(cached))
            self._planted[key] = max(self._planted.get(key, 0), calls.expected)

    def add_checks(self) -> None:
        """Count what `--check-judge` asks: planted answers, and some answers once more."""
        planted, again = min(CASES, self.demand.cases) * CANARIES, min(ANSWERS, self.demand.jobs)
        for key, calls in self._planted.items():
            self.demand.checked[key].checks = calls * (planted + again)

    def _judge_calls(self, evaluators: CaseEvaluators) -> list[JudgeCalls]:
        """Return how often each judge is asked about an answer; most cases share their evaluators."""
        if self._last[0] is not evaluators:
            found: dict[str, JudgeCalls] = {}
            for each in _judge_calls(evaluators):
                before = found.get(each.judge, JudgeCalls(each.judge, 0, 0, 0))
                sums = (before[1] + each[1], before[2] + each[2], before[3] + each[3])
                found[each.judge] = JudgeCalls(each.judge, *sums)
            self._last = evaluators, list(found.values())
        return self._last[1]

    def _cached(
        self, file: PlannedFile, name: str, request: ProviderRequest, trials: list[int]
    ) -> list[tuple[ProviderRequest, ProviderResponse]]:
        """Return the trials that the cache can answer: what is sent, and the answer."""
        if self._cache is None or name not in file.settings or self._plan.stand_in is not None:
            return []
        own, sent = self._target_key(file, name), [_for_trial(request, trial) for trial in trials]
        found = [(each, self._cache.get(cache_key(own, each))) for each in sent]
        return [(each, answer) for each, answer in found if answer is not None]

    def _cached_calls(self, file: PlannedFile, exchange: Exchange, evaluators: CaseEvaluators) -> Counter[str]:
        """Return how many calls of each judge about an answer the cache has."""
        assert self._cache is not None
        return cached_calls(evaluators, exchange, self._cache, partial(self._target_key, file))

    def _target_key(self, file: PlannedFile, name: str) -> Any:
        folder = (self._plan.folder / file.path).parent
        key = file.targets_file, name, folder
        if key not in self._target_keys:
            self._target_keys[key] = target_key(file.settings[name], folder, file.targets_file)
        return self._target_keys[key]


def _judge_calls(evaluators: CaseEvaluators) -> Iterator[JudgeCalls]:
    for _, configured in judging_evaluators(evaluators.evaluators):
        panel: Any = getattr(configured.evaluator, "panel", None)
        for judge in panel.judges:
            yield JudgeCalls(judge.name, panel.repeats, panel.repeats, panel.repeats * TRIES)
    for configured in evaluators.evaluators:
        script: Any = configured.evaluator
        if (judge := getattr(script, "judge", None)) is not None and hasattr(script, "max_calls"):
            yield JudgeCalls(judge.name, 0, min(1, script.max_calls), script.max_calls)


def _for_trial(request: ProviderRequest, trial: int) -> ProviderRequest:
    return request if trial == 1 else msgspec.structs.replace(request, trial=trial)


class NamedJudges:
    """Gives evaluators judges that cannot be asked, and know their names."""

    def __init__(self, plan: Plan):
        self._files = {plan.folder / file.path: file for file in plan.files}

    def judge(self, case: EvalCase, target: str, name: str | None) -> JudgeTarget:
        file = self._files[case.file.path]
        own = file.judges.get(JudgeRef(target, name))
        return NoJudge(name or "") if own is None else _Named(own, file.settings[own])


class _Named(NoJudge):
    def __init__(self, name: str, settings: TargetSettings):
        super().__init__(name)
        self.settings: TargetSettings | None = settings

    def others(self) -> Mapping[str, Provider]:
        return {}


def _ignore(_problem: Problem) -> None:
    """The planner has told it."""
