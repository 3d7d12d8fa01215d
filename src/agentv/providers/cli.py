"""A command: one process for each case, or one for all of them."""

from typing import Annotated, ClassVar

import msgspec
from msgspec import Meta

from agentv.providers.settings import Amount, Flag, TargetSettings, Text


class HttpCheck(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="type", tag="http"):
    """The target is ready when this address answers."""

    url: Text
    timeout_seconds: Amount | None = None


class CommandCheck(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="type", tag="command"
):
    """The target is ready when this command succeeds."""

    command_template: Text
    cwd: Text | None = None
    timeout_seconds: Amount | None = None


class CliSettings(TargetSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A command that answers on standard output or in {OUTPUT_FILE}."""

    reads_files: ClassVar[bool] = True

    command_template: Annotated[Text, Meta(description="The command, with {PROMPT} and other placeholders.")]
    cwd: Annotated[Text | None, Meta(description="Its folder, relative to the eval file's.")] = None
    timeout_seconds: Annotated[Amount | None, Meta(description="How long one case may take.")] = None
    files_format: Annotated[Text | None, Meta(description="How {FILES} shows each file: {path}, {basename}.")] = None
    keep_temp_files: Annotated[Flag | None, Meta(description="Keep prompt and output files for a look.")] = None
    verbose: Annotated[Flag | None, Meta(description="Say what is run.")] = None
    healthcheck: Annotated[HttpCheck | CommandCheck | None, Meta(description="Tried once before the first case.")] = (
        None
    )
