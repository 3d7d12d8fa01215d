"""Registry of import formats: built-in ones, and those that installed packages add through an entry point."""

import pkgutil

from agentv.errors import ConfigError, nearest
from agentv.importers.importer import Importer
from agentv.importers.sample import Sample
from agentv.log import warn
from agentv.processes.threads import describe_error
from agentv.records import Problem
from agentv.registry import extension_names, load_extension

GROUP = "agentv.importers"

BUILT_IN = {
    "claude-code": "agentv.importers.transcripts.claude_code:ClaudeCodeImporter",
    "codex": "agentv.importers.transcripts.codex:CodexImporter",
    "inspect": "agentv.importers.logs.inspect_log:InspectLog",
    "lm-eval": "agentv.importers.logs.lm_eval:LmEval",
    "otlp": "agentv.importers.logs.otlp:Otlp",
    "openai-evals": "agentv.importers.datasets.openai_evals:OpenAIEvals",
    "promptfoo": "agentv.importers.promptfoo.config:Promptfoo",
    "jsonl": "agentv.importers.datasets.jsonl:Jsonl",
    "tsv": "agentv.importers.datasets.tables:Tsv",
    "csv": "agentv.importers.datasets.tables:Csv",
}
"""Importer classes by format name, the most specific formats first: detection takes the first match."""


def importer_type(name: str) -> type[Importer]:
    """Import and return the importer class for a format. Built-in formats take precedence over installed packages.

    Raise `ConfigError` if the format is unknown, or if its package cannot be used.
    """
    if name in BUILT_IN:
        built_in: type[Importer] = pkgutil.resolve_name(BUILT_IN[name])
        return built_in

    extension: type[Importer] | None = load_extension(GROUP, name, Importer)
    if extension is None:
        raise ConfigError(f"unknown format {name!r}", hint=nearest(name, format_names()))
    return extension


def format_names() -> list[str]:
    """Return the names of all formats. Formats of installed packages come first: they recognize their own files."""
    extensions = set(extension_names(GROUP)) - BUILT_IN.keys()
    return [*sorted(extensions), *BUILT_IN]


def find_format(sample: Sample) -> str | None:
    """Return the first format that recognizes a source, or None. An extension that raises only causes a warning."""
    for name in format_names():
        try:
            if importer_type(name).recognizes(sample):
                return name
        except Exception as error:
            if name in BUILT_IN:
                raise
            message = f"cannot detect whether this is format {name!r}: {describe_error(error)}"
            warn(Problem(message=message, severity="warning", file=sample.path))
    return None
