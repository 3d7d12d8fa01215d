"""`agentv schema`."""

import json

import click

from agentv.cli.help import Command
from agentv.cli.params import OneOf
from agentv.project.schema import KINDS, json_schema


@click.command(cls=Command, examples=("agentv schema eval > eval.schema.json",))
@click.argument("kind", type=OneOf(list(KINDS)), default="eval")
def command(kind: str) -> None:
    """Print the JSON Schema of a kind of file: eval (YAML), sidecar, case (a line of JSONL), targets,
    config, result or label."""
    schema = json_schema(kind)
    click.echo(json.dumps(schema, indent=2))
