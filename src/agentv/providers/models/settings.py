"""The settings that all language models share."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar

from msgspec import Meta

from agentv.formats.conversion import Misfit
from agentv.providers.pricing import Pricing
from agentv.providers.settings import (
    IS_PRICE,
    NOT_IN_CACHE_KEY,
    Count,
    Flag,
    Number,
    RetrySettings,
    Seconds,
    Secret,
    Text,
)
from agentv.records import Media


class LanguageModelSettings(RetrySettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A language model behind a vendor's API."""

    retries: ClassVar[int] = 3
    has_batch_api: ClassVar[bool] = True

    efforts: ClassVar[tuple[str, ...]] = ()
    """The values of `reasoning_effort`. Empty if the vendor has no such setting."""

    max_media_bytes: ClassVar[int] = 50_000_000
    """The maximum total size of the images and PDFs of a case."""

    model: Annotated[
        Text | None,
        Meta(description="The model's name, as the vendor calls it."),
    ] = None
    api_key: Annotated[
        Secret | None,
        Meta(description="Write ${{ VARIABLE }}: keys do not belong in Git."),
    ] = None
    temperature: Annotated[
        Number | None,
        Meta(description="Not sent if left out."),
    ] = None
    max_output_tokens: Annotated[
        Count | None,
        Meta(description="Not sent if left out."),
    ] = None
    system_prompt: Annotated[
        str | None,
        Meta(description="Goes before the case's own system message."),
    ] = None
    options: Annotated[
        dict[str, Any] | None,
        Meta(description="Goes into the vendor's request as it is."),
    ] = None
    pricing: Annotated[
        Pricing | None,
        Meta(description="What tokens cost, to report what a run cost."),
        IS_PRICE,
    ] = None
    reasoning_effort: Annotated[
        Text | None,
        Meta(description="How much the model thinks, in the vendor's words; not sent if left out."),
    ] = None
    stream: Annotated[
        Flag | None,
        Meta(description="Take the answer as it is written, and tell the time to the first token."),
    ] = None

    batch_poll_seconds: Annotated[
        Seconds | None,
        Meta(description="The time between two looks at a batch; 1 growing to 30 if left out."),
        NOT_IN_CACHE_KEY,
    ] = None

    def validate(self) -> Iterator[Misfit]:
        yield from super().validate()
        if self.batch_api is True and self.stream is True:
            yield Misfit(
                ("stream",),
                "there is a 'batch_api' too, and nothing is streamed in batches",
                "leave one out",
            )
        effort = self.reasoning_effort
        if effort is not None and effort not in self.efforts and not effort.startswith("${{"):
            hint = "leave it out"
            if self.efforts:
                hint = f"one of {', '.join(self.efforts)}"
            yield Misfit(
                ("reasoning_effort",),
                f"{self.provider} has no effort {effort!r}",
                hint,
            )

    def check_media(self, media: Sequence[Media]) -> Misfit | None:
        if not self.takes_media:
            return super().check_media(media)
        sizes = {each.value: _size(each.path) for each in media}
        total = sum(sizes.values())
        most = self.max_media_bytes
        if total <= most:
            return None
        largest = max(sizes, key=sizes.__getitem__)
        what = f"{largest} has"
        if len(sizes) > 1:
            what = f"{largest} and the other images and PDFs have"
        message = f"{what} {total / 1e6:.1f} MB, and {self.provider} takes at most {most / 1e6:.0f} MB in a request"
        return Misfit((), message, "make it smaller, or attach only the pages that matter")


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0  # reading the file reports the error
