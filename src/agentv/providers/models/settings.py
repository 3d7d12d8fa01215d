"""The settings that all language models share."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar

from msgspec import Meta

from agentv.files.conversion import Misfit
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
        Meta(description="The vendor's name of the model."),
    ] = None
    api_key: Annotated[
        Secret | None,
        Meta(description="Use ${{ VARIABLE }} to keep keys out of Git."),
    ] = None
    temperature: Annotated[
        Number | None,
        Meta(description="Not sent by default."),
    ] = None
    max_output_tokens: Annotated[
        Count | None,
        Meta(description="Not sent by default."),
    ] = None
    system_prompt: Annotated[
        str | None,
        Meta(description="Prepended to the case's own system message."),
    ] = None
    options: Annotated[
        dict[str, Any] | None,
        Meta(description="Added to the vendor's request unchanged."),
    ] = None
    pricing: Annotated[
        Pricing | None,
        Meta(description="Token prices, to report the cost of a run."),
        IS_PRICE,
    ] = None
    reasoning_effort: Annotated[
        Text | None,
        Meta(description="The reasoning effort, as the vendor names it; not sent by default."),
    ] = None
    stream: Annotated[
        Flag | None,
        Meta(description="Stream the answer and record the time to the first token."),
    ] = None

    batch_poll_seconds: Annotated[
        Seconds | None,
        Meta(description="The interval between two polls of a batch; by default 1, increasing to 30."),
        NOT_IN_CACHE_KEY,
    ] = None

    def validate(self) -> Iterator[Misfit]:
        yield from super().validate()
        if self.batch_api is True and self.stream is True:
            yield Misfit(
                ("stream",),
                "'batch_api' is set as well, and batches cannot be streamed",
                "remove one of them",
            )
        effort = self.reasoning_effort
        if effort is not None and effort not in self.efforts and not effort.startswith("${{"):
            hint = "remove it"
            if self.efforts:
                hint = f"one of {', '.join(self.efforts)}"
            yield Misfit(
                ("reasoning_effort",),
                f"{self.provider} does not support effort {effort!r}",
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
        message = f"{what} {total / 1e6:.1f} MB, but {self.provider} accepts at most {most / 1e6:.0f} MB in a request"
        return Misfit((), message, "make it smaller, or attach only the pages that matter")


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0  # reading the file reports the error
