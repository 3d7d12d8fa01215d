"""Count the calls and the text that a run sends to each target and judge, without calling anything.

The cases are read once, as a stream. Memory holds only sums, and a few bytes per case if there are earlier runs to
compare with.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from agentv.calls.cache import Cache
from agentv.calls.cache_key import cache_key, target_key
from agentv.cases.digest import case_digests
from agentv.evaluators.build import EvaluatorBuilder
from agentv.evaluators.judging.payload import reference_answer
from agentv.evaluators.judging.reply import TRIES
from agentv.evaluators.judging.target import JudgeRef, NoJudge
from agentv.evaluators.score import CaseEvaluators, judging_evaluators
from agentv.files.compact_sets import HashSet
from agentv.files.state import state_folder
from agentv.log import ignore
from agentv.protocols import JudgeTarget, Provider
from agentv.providers.settings import TargetSettings
from agentv.records import EvalCase, ProviderRequest
from agentv.redact import clean
from agentv.run.jobs import IsDone, build_or_explain
from agentv.run.options import EvalOptions
from agentv.run.planning.plan import Plan, PlannedFile, PlannedTarget, file_finder

CasesOf = Callable[[PlannedFile], Iterable[EvalCase]]
"""Return the cases of a file."""
TargetId = tuple[Path | None, str]
"""The targets file and the name of a target."""


class JudgeCalls(NamedTuple):
    """The number of calls of one judge per answer: minimum, expected and maximum."""

    judge: str
    low: int
    expected: int
    high: int


def is_batch(settings: TargetSettings | None) -> bool:
    """Return whether a target is called through its vendor's batch API, which has its own prices."""
    return settings is not None and settings.batch_api is True


@dataclass
class TargetDemand:
    """The requests to one target."""

    name: str
    settings: TargetSettings | None
    digest: str
    limit: int
    """The maximum number of concurrent cases."""
    jobs: int = 0
    cached: int = 0
    """The number of jobs whose answer is in the cache."""
    characters: int = 0
    """The total length of the requests whose answer is not in the cache."""
    media: int = 0
    """The number of images and PDFs in these requests."""

    batches: set[tuple[Path, int]] = field(default_factory=set)
    """The file and the trial of each call of a batch program."""

    @property
    def requests(self) -> int:
        """The number of jobs whose answer is not in the cache."""
        return self.jobs - self.cached

    @property
    def calls(self) -> int:
        """The number of calls without retries. A batch program answers all requests of a file with one call."""
        return len(self.batches) or self.requests


@dataclass
class JudgeDemand:
    """The requests to one judge: for the answers of the run, and for `--check-judge`."""

    name: str
    settings: TargetSettings
    answers: int = 0
    low: int = 0
    """The minimum number of calls: 0 with a cache, which may contain all of them."""
    calls: int = 0
    """The expected number of calls."""
    high: int = 0
    """The maximum number of calls."""
    characters: int = 0
    """The total length of the prompts, without answers and the part that all prompts share."""
    checks: int = 0
    """The maximum number of calls for `--check-judge`."""

    def add(
        self,
        calls: JudgeCalls,
        characters: int,
        answers: int,
    ) -> None:
        """Count answers with these calls each; every call sends this number of characters."""
        self.answers += answers
        self.low += answers * calls.low
        self.calls += answers * calls.expected
        self.high += answers * calls.high
        self.characters += answers * calls.expected * characters


@dataclass
class Demand:
    """The requests of a run, by target and judge."""

    targets: dict[TargetId, TargetDemand] = field(default_factory=dict)
    judges: dict[TargetId, JudgeDemand] = field(default_factory=dict)
    cases: int = 0
    """The number of cases with at least one trial left to run."""
    jobs: int = 0
    answered: HashSet = field(default_factory=HashSet)
    """The current cases with the digests of their targets, to recognize earlier results."""
    scored: HashSet = field(default_factory=HashSet)
    """The current cases with the digests of their evaluators."""


def runs_folder(options: EvalOptions) -> Path | None:
    """Return the folder with the records of earlier runs, or None if there are none: no keys of cases are needed."""
    folder = options.output.runs_folder or state_folder("runs")
    if next(folder.glob("*.json"), None) is None:
        return None
    return folder


def demand_of(
    plan: Plan,
    options: EvalOptions,
    cases_of: CasesOf,
    is_done: IsDone | None = None,
) -> Demand:
    """Return the requests of a run of these cases of the plan. `is_done` excludes trials that need not run."""
    counter = _DemandCounter(plan, options)
    all_trials = list(range(1, plan.trials + 1))
    for file in plan.files:
        for case in cases_of(file):
            trials = all_trials
            if is_done is not None:
                trials = [trial for trial in all_trials if not is_done(case, trial)]
            if trials:
                counter.add(file, case, trials)
    if options.check_judge:
        counter.add_checks()
    return counter.demand


class _DemandCounter:
    """Adds up the requests of a run, case by case."""

    def __init__(self, plan: Plan, options: EvalOptions):
        self.demand = Demand()
        self._plan = plan
        self._options = options
        self._builder = EvaluatorBuilder(
            NamedJudges(plan),
            dry_run=plan.dry_run,
            warn=ignore,
            targets=options.project.targets,
        )
        self._cache: Cache | None = None
        if options.run.cache and not options.mock.dry_run:
            self._cache = Cache(state_folder("cache"), clean)
        self._has_runs = runs_folder(options) is not None
        self._target_keys: dict[tuple[Path | None, str, Path], Any] = {}
        self._last_evaluators: CaseEvaluators | None = None
        self._last_calls: list[JudgeCalls] = []
        self._calls_per_answer: dict[TargetId, int] = {}
        """The calls of each judge per answer, for the case with the most."""
        self._planted_cases = 0
        """The number of cases in which `--check-judge` can plant answers."""
        self._planted_calls: dict[TargetId, int] = {}
        """The calls of each judge for the answers planted in a case, for the case with the most."""

    def add(
        self,
        file: PlannedFile,
        case: EvalCase,
        trials: list[int],
    ) -> None:
        """Count the given trials of a case."""
        demand = self.demand
        name = self._plan.selection.target_of(case)
        planned = file.targets[name]
        request, _ = build_or_explain(case, file, planned)
        target = self._target_demand(file, planned)
        demand.cases += 1
        demand.jobs += len(trials)
        target.jobs += len(trials)
        if request is None:
            # The case ends in an error and sends nothing.
            return
        length = len(request.question) + len(request.guidelines)
        cached = self._count_cached(file, planned.name, request, trials)
        sent = len(trials) - cached
        target.cached += cached
        target.characters += sent * length
        target.media += sent * len(request.media)
        if sent and self._is_batch_program(planned):
            target.batches.update((file.path, trial) for trial in trials)
        evaluators = self._builder.build(case, planned.name)
        if self._has_runs:
            case_key = (
                clean(case.dataset),
                clean(case.id),
                case_digests(case, request).case,
            )
            demand.answered.add((*case_key, planned.digest))
            demand.scored.add((*case_key, evaluators.digests["evaluators"]))
        if evaluators.has_judges and not self._plan.dry_run:
            characters = length + len(case.expected_outcome) + len(reference_answer(case))
            for calls in self._judge_calls(evaluators):
                self._add_judge(file, calls, characters, len(trials))
            if self._options.check_judge:
                self._add_planted(file, case, evaluators)

    def _is_batch_program(self, planned: PlannedTarget) -> bool:
        """Return whether one call of the target answers all cases of a file."""
        settings = planned.settings
        if settings is None or self._plan.stand_in is not None:
            return False
        return settings.answers_batches and settings.provider_batching is True

    def _target_demand(
        self,
        file: PlannedFile,
        planned: PlannedTarget,
    ) -> TargetDemand:
        key = (file.targets_file, planned.name)
        target = self.demand.targets.get(key)
        if target is None:
            target = TargetDemand(
                name=planned.name,
                settings=planned.settings,
                digest=planned.digest,
                limit=planned.limit(self._options.run.workers),
            )
            self.demand.targets[key] = target
        return target

    def _add_judge(
        self,
        file: PlannedFile,
        calls: JudgeCalls,
        characters: int,
        answers: int,
    ) -> None:
        key = (file.targets_file, calls.judge)
        judge = self.demand.judges.get(key)
        if judge is None:
            settings = file.settings[calls.judge]
            judge = JudgeDemand(calls.judge, settings)
            self.demand.judges[key] = judge
        if self._cache is not None:
            # The prompt of a judge is not known before its case runs, so the cache may have all calls or none.
            calls = calls._replace(low=0)
        judge.add(calls, characters, answers)
        most = self._calls_per_answer.get(key, 0)
        self._calls_per_answer[key] = max(most, calls.expected)

    def add_checks(self) -> None:
        """Count the calls of `--check-judge`: those for planted answers and for answers that are judged twice."""
        from agentv.trust.judge_check import ANSWERS, CASES  # few runs check their judges

        cases = min(CASES, self._planted_cases)
        answers = min(ANSWERS, self.demand.jobs)
        for key, calls in self._calls_per_answer.items():
            planted = self._planted_calls.get(key, 0)
            self.demand.judges[key].checks = planted * cases + calls * answers

    def _add_planted(
        self,
        file: PlannedFile,
        case: EvalCase,
        evaluators: CaseEvaluators,
    ) -> None:
        """Count the calls for the answers that `--check-judge` would plant in a case."""
        from agentv.trust.canaries import count_canaries

        sums: Counter[TargetId] = Counter()
        for _, configured in judging_evaluators(evaluators.evaluators):
            panel: Any = getattr(configured.evaluator, "panel", None)
            for judge in panel.judges:
                sums[file.targets_file, judge.name] += panel.repeats * count_canaries(case, configured)
        if any(sums.values()):
            self._planted_cases += 1
        for key, calls in sums.items():
            most = self._planted_calls.get(key, 0)
            self._planted_calls[key] = max(most, calls)

    def _judge_calls(self, evaluators: CaseEvaluators) -> list[JudgeCalls]:
        """Return the calls of each judge per answer."""
        # most cases share their evaluators with the case before
        if self._last_evaluators is not evaluators:
            self._last_evaluators = evaluators
            self._last_calls = _sum_by_judge(evaluators)
        return self._last_calls

    def _count_cached(
        self,
        file: PlannedFile,
        name: str,
        request: ProviderRequest,
        trials: list[int],
    ) -> int:
        """Return the number of trials whose answer is in the cache."""
        if self._cache is None or self._plan.stand_in is not None:
            return 0
        if name not in file.settings:
            return 0
        own_key = self._target_key(file, name)
        cached = 0
        for trial in trials:
            if trial > 1:
                request = msgspec.structs.replace(request, trial=trial)
            key = cache_key(own_key, request)
            if self._cache.get(key) is not None:
                cached += 1
        return cached

    def _target_key(self, file: PlannedFile, name: str) -> Any:
        folder = (self._plan.folder / file.path).parent
        key = (file.targets_file, name, folder)
        if key not in self._target_keys:
            settings = file.settings[name]
            self._target_keys[key] = target_key(settings, folder, file.targets_file)
        return self._target_keys[key]


def _sum_by_judge(evaluators: CaseEvaluators) -> list[JudgeCalls]:
    """Return the calls per answer by judge, over all evaluators."""
    sums: dict[str, JudgeCalls] = {}
    for calls in _calls_of_evaluators(evaluators):
        nothing = JudgeCalls(calls.judge, 0, 0, 0)
        before = sums.get(calls.judge, nothing)
        sums[calls.judge] = JudgeCalls(
            judge=calls.judge,
            low=before.low + calls.low,
            expected=before.expected + calls.expected,
            high=before.high + calls.high,
        )
    return list(sums.values())


def _calls_of_evaluators(evaluators: CaseEvaluators) -> Iterator[JudgeCalls]:
    """Yield the calls per answer of each evaluator and judge."""
    for _, configured in judging_evaluators(evaluators.evaluators):
        panel: Any = getattr(configured.evaluator, "panel", None)
        for judge in panel.judges:
            yield JudgeCalls(
                judge=judge.name,
                low=panel.repeats,
                expected=panel.repeats,
                high=panel.repeats * TRIES,
            )
    for configured in evaluators.evaluators:
        script: Any = configured.evaluator
        judge = getattr(script, "judge", None)
        if judge is not None and hasattr(script, "max_calls"):
            yield JudgeCalls(
                judge=judge.name,
                low=0,
                expected=min(1, script.max_calls),
                high=script.max_calls,
            )


class NamedJudges:
    """Provides evaluators with judges that have names and settings but cannot be called."""

    def __init__(self, plan: Plan):
        self._file_of = file_finder(plan)

    def judge(
        self,
        case: EvalCase,
        target: str,
        name: str | None,
    ) -> JudgeTarget:
        file = self._file_of(case)
        own = file.judges.get(JudgeRef(target, name))
        if own is None:
            return NoJudge(name or "")
        return _NamedJudge(own, file.settings[own])


class _NamedJudge(NoJudge):
    def __init__(self, name: str, settings: TargetSettings):
        super().__init__(name)
        self.settings: TargetSettings | None = settings

    def others(self) -> Mapping[str, Provider]:
        return {}
