"""The images and PDFs of a request. Their bytes are read when they are sent, not before."""

from base64 import b64encode
from collections.abc import Mapping
from typing import NamedTuple

from agentv.errors import ProviderError
from agentv.processes.threads import run_in_thread
from agentv.records import Media, ProviderRequest


class LoadedMedia(NamedTuple):
    """An image or a PDF with its bytes."""

    name: str
    type: str
    data: bytes

    @property
    def is_image(self) -> bool:
        return self.type.startswith("image/")

    @property
    def base64(self) -> str:
        return b64encode(self.data).decode()

    @property
    def data_url(self) -> str:
        return f"data:{self.type};base64,{self.base64}"


async def load_media(request: ProviderRequest) -> Mapping[str, LoadedMedia]:
    """Return the images and PDFs of a request, by their paths as written. Raise `ProviderError` if one is missing."""
    if not request.media:
        return {}

    def load_all() -> dict[str, LoadedMedia]:
        return {media.value: _load(media) for media in request.media}

    loaded: Mapping[str, LoadedMedia] = await run_in_thread(load_all)
    return loaded


def _load(media: Media) -> LoadedMedia:
    try:
        return LoadedMedia(media.path.name, media.type, media.path.read_bytes())
    except OSError as error:
        raise ProviderError(f"{media.value} cannot be read: {error.strerror or error}") from error
