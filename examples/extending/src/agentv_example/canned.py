"""A target that returns recorded answers."""

from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from agentv.extend import ConfigError, ProviderError, ProviderRequest, ProviderResponse, TargetSettings, Text


class CannedSettings(TargetSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The settings in the targets file, in addition to those common to all targets."""

    answers: Annotated[Text, Meta(description="A JSON file that maps case ids to answers.")]

    def open(self, folder: Path) -> "Canned":
        """Called once, before the first case. An error here stops the run before it starts."""
        try:
            content = (folder / self.answers).read_text(encoding="utf-8")
            return Canned(msgspec.json.decode(content, type=dict[str, str]))
        except (OSError, ValueError, msgspec.MsgspecError) as error:
            raise ConfigError(f"answers: {self.answers} cannot be used: {error}") from error


class Canned:
    """Looks up answers by case id. One instance serves all cases concurrently."""

    def __init__(self, answers: dict[str, str]):
        self._answers = answers

    async def invoke(self, request: ProviderRequest) -> ProviderResponse:
        if request.eval_id not in self._answers:
            raise ProviderError("no answer was recorded")  # an error for this case; the others run
        return ProviderResponse(text=self._answers[request.eval_id])
