"""The settings of a case's evaluators, as written in the file."""

from collections.abc import Sequence
from contextlib import suppress

from agentv.placeholders import VARS, UnknownName, fill_text, lookup
from agentv.records import EvalCase, Json


def configs_of(case: EvalCase) -> Sequence[Json]:
    """Return the settings of each evaluator of a case: its evaluators and its rubrics, or else the default."""
    configs = list(case.evaluators)
    if case.rubrics:
        configs.append({"type": "rubric", "rubrics": list(case.rubrics)})
    if not configs:
        configs.append({"type": case.evaluator})
    return configs


def evaluator_names(case: EvalCase) -> list[str]:
    """Return the names of the evaluators of a case."""
    names = []
    for config in configs_of(case):
        name = config.get("name") or config.get("type") or ""
        names.append(_fill_name(str(name), case))
    return names


def _fill_name(name: str, case: EvalCase) -> str:
    """Return the name of an evaluator with the variables of its case. If one does not exist, return it unchanged."""
    with suppress(UnknownName):
        return fill_text(name, lambda placeholder: lookup(placeholder, VARS, case.vars))
    return name
