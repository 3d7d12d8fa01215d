"""Records of figures whose fields can also be accessed by name."""

from typing import Any

import msgspec


class Fields(msgspec.Struct, frozen=True, kw_only=True):
    """Base of records whose fields can also be accessed by name, as in the JSON."""

    def __getitem__(self, name: str) -> Any:
        try:
            return getattr(self, name)
        except AttributeError:
            raise KeyError(name) from None
