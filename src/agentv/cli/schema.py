"""`agentv schema`."""

import json

import click

from agentv.schema import KINDS, json_schema


@click.command(epilog="Example: agentv schema eval > eval.schema.json")
@click.argument("kind", type=click.Choice(list(KINDS)), default="eval")
def command(kind: str) -> None:
    """Print the JSON Schema of a kind of file: eval (YAML), case (a line of JSONL), targets, config or result."""
    click.echo(json.dumps(json_schema(kind), indent=2))
