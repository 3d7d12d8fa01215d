"""Read the project's config file: the nearest `.agentv/config.yaml` or `.agentv.yaml` at or above an eval file."""

from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from agentv.errors import ConfigError
from agentv.formats.conversion import read_record
from agentv.system.folders import first_file, folders_upward

CONFIG_NAMES = (".agentv/config.yaml", ".agentv.yaml")
GUIDELINE_PATTERNS = ("**/*.instructions.md", "**/instructions/**", "**/*.prompt.md", "**/prompts/**")
NonEmpty = Annotated[str, Meta(min_length=1)]


class Config(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The settings of a project for all of its eval files."""

    schema_: Annotated[str | None, Meta(description="For editors.")] = msgspec.field(name="$schema", default=None)
    guideline_patterns: Annotated[
        tuple[NonEmpty, ...] | None,
        Meta(description="Files that match one of these are guidelines; without a slash, in any folder."),
    ] = None
    strict: Annotated[
        bool | None, Meta(description="Whether a case that would be left out as invalid stops a run before it starts.")
    ] = None
    prices: Annotated[
        NonEmpty | None, Meta(description="The price list, a JSON file; its path is from the folder of this file.")
    ] = None


def read_config(folder: Path) -> Config:
    """Return the config for the eval files in `folder`; raise `ConfigError` if it is invalid."""
    path = first_file(folders_upward(folder), CONFIG_NAMES)
    if path is None:
        return Config()
    config, problems = read_record(path, Config, ConfigError)
    if config is None:
        raise ConfigError.of(problems[0])
    if config.prices is None:
        return config
    # A relative path is resolved against the folder of the config file.
    prices = path.parent / Path(config.prices).expanduser()
    return msgspec.structs.replace(config, prices=str(prices))


def guideline_patterns(folder: Path) -> tuple[str, ...]:
    """Return the glob patterns of guideline files for the eval files in `folder`.

    Raise `ConfigError` if the config is invalid.
    """
    patterns = read_config(folder).guideline_patterns
    if patterns is None:
        return GUIDELINE_PATTERNS
    return patterns


def prices_file(folder: Path) -> Path | None:
    """Return the price list for the eval files in `folder`, or None if their config names none."""
    path = read_config(folder).prices
    if path is None:
        return None
    return Path(path)
