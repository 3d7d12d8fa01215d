"""What commands say on stderr."""

import logging

import click

from agentv.notices import LOGGER


class _Echo(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        click.echo(f"warning: {record.getMessage()}", err=True)


def print_warnings(verbose: bool) -> None:
    """Show the warnings of this run on stderr; with `verbose`, also those that only a verbose run gives."""
    LOGGER.addHandler(_Echo())
    LOGGER.setLevel(logging.INFO if verbose else logging.WARNING)
    LOGGER.propagate = False
