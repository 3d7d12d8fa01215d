"""A Python function, called in agentv's own process."""

from typing import Annotated

from msgspec import Meta

from agentv.providers.settings import TargetSettings, Text


class PythonSettings(TargetSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A function that takes the question and returns the answer."""

    function: Annotated[Text, Meta(description="path/to/file.py:name or package.module:name")]
