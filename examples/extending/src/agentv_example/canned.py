"""A target that gives recorded answers."""

from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from agentv.extend import ConfigError, ProviderError, ProviderRequest, ProviderResponse, TargetSettings, Text


class CannedSettings(TargetSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What stands in the targets file, besides what every target has."""

    answers: Annotated[Text, Meta(description="A JSON file: an answer under the id of each case.")]

    def open(self, folder: Path) -> "Canned":
        """Called once, before the first case; what is wrong is told then, and nothing runs."""
        try:
            content = (folder / self.answers).read_text(encoding="utf-8")
            return Canned(msgspec.json.decode(content, type=dict[str, str]))
        except (OSError, ValueError, msgspec.MsgspecError) as error:
            raise ConfigError(f"answers: {self.answers} cannot be used: {error}") from error


class Canned:
    """Answers by the id of a case. One instance serves all of them, many at a time."""

    def __init__(self, answers: dict[str, str]):
        self._answers = answers

    async def invoke(self, request: ProviderRequest) -> ProviderResponse:
        if request.eval_id not in self._answers:
            raise ProviderError("no answer was recorded")  # an error of this case; the others go on
        return ProviderResponse(text=self._answers[request.eval_id])
