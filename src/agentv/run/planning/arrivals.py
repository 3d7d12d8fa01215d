"""Check cases that arrive while their run is under way, one at a time."""

from collections.abc import Collection
from dataclasses import dataclass

from agentv.cases.objects import without_file
from agentv.errors import ConfigError, PlanFailed
from agentv.evaluators.judging.target import JudgeRef
from agentv.records import EvalCase, Problem
from agentv.run.planning.check import CaseCheck
from agentv.run.planning.plan import Selection

_HINT = "the first cases of an iterable decide what a run uses: pass a list, which is checked as a whole"


@dataclass
class ArrivalCheck:
    """Checks a case like the planner, and that the run has its target and its judges."""

    check: CaseCheck
    problems: list[Problem]
    """What the check reports."""
    selection: Selection
    targets: Collection[str]
    judges: Collection[JudgeRef] | None
    """The judges of the run; None if it calls none."""

    def __call__(self, case: EvalCase) -> None:
        """Raise `AgentvError` if the case cannot be run."""
        target = self.selection.target_of(case)
        self.check.check(case, target)
        errors = [without_file(problem) for problem in self.problems if problem.severity == "error"]
        self.problems.clear()
        if errors:
            raise PlanFailed(errors)
        if target not in self.targets:
            raise ConfigError(f"case {case.id!r}: target {target!r} is not used by earlier cases", hint=_HINT)
        if self.judges is None:
            return
        for ref in self.check.needs.judges.cases:
            if ref not in self.judges:
                judge = ref.name or f"the judge of {ref.target}"
                raise ConfigError(f"case {case.id!r}: {judge!r} does not judge earlier cases", hint=_HINT)
