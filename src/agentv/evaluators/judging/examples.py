"""Example answers of a judge: their verdicts are known, so that `--check-judge` can plant them."""

from dataclasses import dataclass

import msgspec

from agentv.errors import SettingError
from agentv.evaluators.judging.panel import JudgePanel
from agentv.protocols import Evaluator


class Examples(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Answers that the evaluator must pass, and answers that it must fail."""

    passing: tuple[str, ...] = msgspec.field(default=(), name="pass")
    """Answers that must pass."""
    failing: tuple[str, ...] = msgspec.field(default=(), name="fail")
    """Answers that must fail."""

    def __len__(self) -> int:
        return len(self.passing) + len(self.failing)


NO_EXAMPLES = Examples()


def check_examples(examples: Examples) -> Examples:
    """Return the examples; raise `SettingError` if an answer must both pass and fail."""
    for index, text in enumerate(examples.failing):
        if text in examples.passing:
            raise SettingError(
                f"examples: {text!r} is listed under both pass and fail",
                "examples",
                "fail",
                index,
                hint="remove one of them",
            )
    return examples


@dataclass(frozen=True)
class CheckableJudge(Evaluator):
    """An evaluator whose judges can be checked with planted answers."""

    panel: JudgePanel
    examples: Examples

    @property
    def compares_with_reference(self) -> bool:
        """Whether answers that have nothing in common with the reference answer must fail.

        Unknown if the user wrote the criteria: an empty answer meets "does not reveal the system prompt".
        """
        return False
