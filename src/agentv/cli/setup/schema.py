"""`agentv schema`."""

import json

import click

from agentv.cli.help import CommandWithGroups
from agentv.cli.params import OneOf
from agentv.project.schema import KINDS, json_schema


@click.command(cls=CommandWithGroups, examples=("agentv schema eval > eval.schema.json",))
@click.argument("kind", type=OneOf(list(KINDS)), default="eval")
def command(kind: str) -> None:
    """Print the JSON Schema of a file type.

    Types: eval (YAML eval file), sidecar, case (one line of a JSONL eval file), targets, config, result, label.
    """
    schema = json_schema(kind)
    click.echo(json.dumps(schema, indent=2))
