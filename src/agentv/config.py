"""Read the project's config file: the nearest `.agentv/config.yaml` or `.agentv.yaml` at or above an eval file."""

from collections.abc import Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from agentv.errors import ConfigError
from agentv.files.conversion import read_record
from agentv.files.folders import first_file, folders_upward
from agentv.redact import NamedSecret

CONFIG_NAMES = (".agentv/config.yaml", ".agentv.yaml")
GUIDELINE_PATTERNS = ("**/*.instructions.md", "**/instructions/**", "**/*.prompt.md", "**/prompts/**")
NonEmpty = Annotated[str, Meta(min_length=1)]


class Config(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The settings of a project for all of its eval files."""

    schema_: Annotated[str | None, Meta(description="For editors.")] = msgspec.field(name="$schema", default=None)
    guideline_patterns: Annotated[
        tuple[NonEmpty, ...] | None,
        Meta(description="Glob patterns of guideline files. A pattern without a slash matches in any folder."),
    ] = None
    strict: Annotated[
        bool | None, Meta(description="Whether invalid cases are errors. By default, they are skipped with a warning.")
    ] = None
    secrets: Annotated[
        tuple[NonEmpty, ...] | None,
        Meta(description="Names or globs of additional environment variables whose values are masked."),
    ] = None
    prices: Annotated[NonEmpty | None, Meta(description="Path of the price list (JSON), relative to this file.")] = None


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


def configured_secrets(folder: Path, environment: Mapping[str, str]) -> list[str]:
    """Return the values of the variables that the config of the eval files in `folder` names as secrets."""
    patterns = read_config(folder).secrets or ()
    values: list[str] = []
    for name, value in environment.items():
        if any(fnmatchcase(name, pattern) for pattern in patterns):
            values.append(NamedSecret(value, name))
    return values
