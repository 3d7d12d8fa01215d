"""Check cases that arrive while their run is under way, one at a time."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from agentv.cases.objects import READ_AHEAD, without_file
from agentv.cases.origin import case_problem
from agentv.errors import ConfigError, PlanFailed
from agentv.evaluators.judging.target import JudgeRef
from agentv.providers.workspaces.settings import has_workspaces
from agentv.records import EvalCase, Problem
from agentv.run.planning.check import CaseCheck
from agentv.run.planning.plan import PlannedTarget, Selection

_HINT = f"the first {READ_AHEAD} cases of an iterable decide which targets and judges a run uses: pass a list instead"


@dataclass
class ArrivalCheck:
    """Checks a case like the planner, and that the run has its target and its judges."""

    check: CaseCheck
    problems: list[Problem]
    """The reports of the check."""
    selection: Selection
    targets: Mapping[str, PlannedTarget]
    judges: Collection[JudgeRef] | None
    """The judges of the run; None if it calls none."""
    has_stand_in: bool
    """Whether a stand-in, which has no workspaces, answers instead of the targets."""

    def __call__(self, case: EvalCase) -> None:
        """Raise `AgentvError` if the case cannot be run."""
        target = self.selection.target_of(case)
        self.check.check(case, target)
        needs_workspace = self.check.needs.workspaces.pop(target, {})
        errors = [without_file(problem) for problem in self.problems if problem.severity == "error"]
        self.problems.clear()
        if errors:
            raise PlanFailed(errors)
        if target not in self.targets:
            raise _not_planned(case, f"no earlier case uses target {target!r}")
        if needs_workspace and self._lacks_workspaces(target):
            raise PlanFailed([without_file(problem) for problem in needs_workspace])
        missing = self.check.needs.missing.get(target)
        if missing:
            first = next(iter(missing.values()))
            unknown = first.unknown
            message = f"case {case.id!r}: target {target!r}: {unknown}"
            raise ConfigError(message, hint=unknown.hint)
        if self.judges is None:
            return
        for ref in self.check.needs.judges.cases:
            if ref not in self.judges:
                judge = f"judge {ref.name!r}"
                if ref.name is None:
                    judge = f"the judge of target {ref.target!r}"
                raise _not_planned(case, f"no earlier case uses {judge}")

    def _lacks_workspaces(self, target: str) -> bool:
        if self.judges is None:
            return False  # a dry run does not call evaluators that need one
        settings = self.targets[target].settings
        return self.has_stand_in or settings is None or not has_workspaces(settings)


def _not_planned(case: EvalCase, message: str) -> ConfigError:
    """Return the error for a case that uses something that was not prepared at the start of the run."""
    return ConfigError.of(case_problem(case, message, _HINT))
