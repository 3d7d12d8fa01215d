"""The settings that several providers share. What belongs to one provider alone is in its own file.

A setting that is no string may also be a `${{ VARIABLE }}`, which is filled in before it is used.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, ClassVar

import msgspec
from msgspec import Meta

from agentv.errors import ConfigError
from agentv.formats.conversion import Misfit
from agentv.formats.fingerprint import digest
from agentv.protocols import BatchProvider, Provider

VARIABLE = r"^\$\{\{.*\}\}$"
Variable = Annotated[str, Meta(pattern=VARIABLE)]
Text = Annotated[str, Meta(min_length=1)]
Flag = bool | Variable
Count = Annotated[int, Meta(ge=1)] | Variable
Whole = Annotated[int, Meta(ge=0)] | Variable
Amount = Annotated[float, Meta(ge=0)] | Variable
Seconds = Annotated[float, Meta(gt=0)] | Variable
Rate = Annotated[float, Meta(gt=0)] | Variable
Number = float | Variable


class TargetSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What every target has."""

    name: Annotated[Text, Meta(description="How eval files and --target call it.")]
    provider: Annotated[Text, Meta(description="What kind of target it is.")]
    judge_target: Annotated[Text | None, Meta(description="The target that grades its answers.")] = None
    workers: Annotated[Count | None, Meta(description="How many cases it may work on at once.")] = None
    provider_batching: Annotated[Flag | None, Meta(description="One call answers all the cases of a file.")] = None

    needs_one: ClassVar[tuple[str, ...]] = ()
    """Settings of which one must be given, though none has to."""

    reads_files: ClassVar[bool] = False
    """Whether the target reads files itself, so that a prompt only refers to them."""

    answers_batches: ClassVar[bool] = False
    """Whether one call can answer many requests, as `provider_batching` asks."""

    is_alone: ClassVar[bool] = False
    """Whether the target can only do one thing at a time."""

    def misfits(self) -> Iterator[Misfit]:
        """What is wrong with the settings that no type can tell."""
        if self.provider_batching is True and not self.answers_batches:
            message = f"targets of the kind {self.provider!r} answer no batches"
            yield Misfit(("provider_batching",), message, "each case is sent alone", "warning")

    def open(self, folder: Path) -> Provider | BatchProvider:
        """The provider that answers for this target; `folder` is the eval file's."""
        raise ConfigError(f"targets of the kind {self.provider!r} cannot be run by this version of agentv")


class RetrySettings(TargetSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A target that is asked over the network, where a second try may help."""

    retries: ClassVar[int] = 0
    """How often a failed request is repeated if nothing is set."""

    max_retries: Annotated[Whole | None, Meta(description="How often a failed request is repeated.")] = None
    initial_delay_ms: Annotated[Amount | None, Meta(description="The wait before the first repetition.")] = None
    max_delay_ms: Annotated[Amount | None, Meta(description="The longest wait.")] = None
    backoff_factor: Annotated[Amount | None, Meta(description="By how much each wait is longer.")] = None
    retryable_status_codes: Annotated[
        tuple[int, ...] | None, Meta(description="HTTP statuses after which a request is repeated.")
    ] = None
    requests_per_minute: Annotated[Rate | None, Meta(description="A limit of your own.")] = None
    tokens_per_minute: Annotated[Rate | None, Meta(description="A limit of your own.")] = None


class Pricing(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """USD for a million tokens."""

    input: Amount | None = None
    output: Amount | None = None
    cached: Amount | None = None


class LanguageModelSettings(RetrySettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A language model behind a vendor's API."""

    retries: ClassVar[int] = 3

    model: Annotated[Text | None, Meta(description="The model's name, as the vendor calls it.")] = None
    api_key: Annotated[Text | None, Meta(description="Write ${{ VARIABLE }}: keys do not belong in Git.")] = None
    temperature: Annotated[Number | None, Meta(description="Not sent if left out.")] = None
    max_output_tokens: Annotated[Count | None, Meta(description="Not sent if left out.")] = None
    system_prompt: Annotated[str | None, Meta(description="Goes before the case's own system message.")] = None
    options: Annotated[dict[str, Any] | None, Meta(description="Goes into the vendor's request as it is.")] = None
    pricing: Annotated[Pricing | None, Meta(description="What tokens cost, to report what a run cost.")] = None


SECRET_FIELDS = ("api_key", "headers")


def target_digest(settings: TargetSettings) -> str:
    """Stands for a target's settings, without its secrets."""
    fields = {name: getattr(settings, name) for name in settings.__struct_fields__ if name not in SECRET_FIELDS}
    return digest({name: value for name, value in fields.items() if value is not None})
