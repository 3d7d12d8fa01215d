"""The formats that can be imported: each is a file here, or comes from an installed package by an entry point."""

import pkgutil

from agentv.errors import ConfigError, nearest
from agentv.importers.importer import Importer
from agentv.importers.sample import Sample
from agentv.notices import warn
from agentv.records import Problem
from agentv.system.entry_points import extension_names, load_extension
from agentv.system.threads import describe_error

GROUP = "agentv.importers"

BUILT_IN = {
    "claude-code": "agentv.importers.transcripts.claude_code:ClaudeCode",
    "codex": "agentv.importers.transcripts.codex:Codex",
    "inspect": "agentv.importers.logs.inspect_log:InspectLog",
    "lm-eval": "agentv.importers.logs.lm_eval:LmEval",
    "otlp": "agentv.importers.logs.otlp:Otlp",
    "openai-evals": "agentv.importers.datasets.openai_evals:OpenAIEvals",
    "promptfoo": "agentv.importers.promptfoo.config:Promptfoo",
    "jsonl": "agentv.importers.datasets.jsonl:Jsonl",
    "tsv": "agentv.importers.datasets.tables:Tsv",
    "csv": "agentv.importers.datasets.tables:Csv",
}
"""By name; those that are easiest to tell from others come first."""


def importer_type(name: str) -> type[Importer]:
    """Return the importer of a format: ours, else an installed package's. It is imported only now.

    Raise `ConfigError` if there is no such format, or if the package cannot be used.
    """
    if name in BUILT_IN:
        found: type[Importer] = pkgutil.resolve_name(BUILT_IN[name])
        return found
    brought: type[Importer] | None = load_extension(GROUP, name, Importer)
    if brought is None:
        raise ConfigError(f"unknown format {name!r}", hint=nearest(name, format_names()))
    return brought


def format_names() -> list[str]:
    """Return the formats that there are: those of installed packages first, as they know their own files best."""
    return list(dict.fromkeys([*sorted(set(extension_names(GROUP)) - BUILT_IN.keys()), *BUILT_IN]))


def find_format(sample: Sample) -> str | None:
    """Return the first format that recognizes a source, None if none does; a package that breaks is a warning."""
    for name in format_names():
        try:
            if importer_type(name).recognizes(sample):
                return name
        except Exception as error:
            if name in BUILT_IN:
                raise
            message = f"whether this is of the format {name!r} cannot be told: {describe_error(error)}"
            warn(Problem(message=message, severity="warning", file=sample.path))
    return None
