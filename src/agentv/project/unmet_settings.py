"""Find settings of evaluators that fit none of the cases of a file, such as a path that no expected answer has."""

from collections.abc import Iterator

import msgspec

from agentv.errors import SettingError
from agentv.evaluators.build import EvaluatorBuilder
from agentv.evaluators.score import CaseSettings
from agentv.files.yaml import Steps
from agentv.records import EvalCase, Problem


class _Seen(msgspec.Struct):
    """Settings of at least one case, and the errors that all of these cases share."""

    first: CaseSettings
    unmet: dict[Steps, SettingError]


class UnmetSettings:
    """Collects the settings that fit none of the cases so far. Evaluators with equal settings count as one."""

    def __init__(self, builder: EvaluatorBuilder):
        self._builder = builder
        self._seen: dict[bytes, _Seen] = {}

    def add(self, case: EvalCase) -> None:
        """Check the settings of a case."""
        for found in self._builder.case_settings(case, case.target):
            key = msgspec.json.encode(found.settings)
            seen = self._seen.get(key)
            if seen is not None and not seen.unmet:
                continue  # each setting fits an earlier case
            unmet = {error.steps: error for error in found.settings.unmet(case)}
            if seen is None:
                self._seen[key] = _Seen(found, unmet)
            else:
                seen.unmet = {steps: error for steps, error in seen.unmet.items() if steps in unmet}

    def problems(self) -> Iterator[Problem]:
        """Yield an error for each setting that fits none of the cases."""
        for seen in self._seen.values():
            for error in seen.unmet.values():
                yield Problem.of(seen.first.locate(error))
