"""`agentv batch`."""

import asyncio
import sys
from collections.abc import AsyncIterator

import click

from agentv.batches.control import BatchReport, batch_status, cancel_batches, collect_batches
from agentv.batches.journal import Journal
from agentv.cli.help import Group
from agentv.cli.messages import configure_logging, print_json, print_lines, print_message
from agentv.cli.params import format_option
from agentv.files.printable import printable
from agentv.text import plural

NONE = "no pending batches in .agentv/batches"


@click.group(
    cls=Group,
    examples=(
        "agentv batch status",
        "agentv batch collect",
        "agentv batch cancel batch_6743f9c0",
    ),
)
def command() -> None:
    """Manage requests that were sent through vendor batch APIs and have no results yet.

    The state of each batch is in .agentv/batches. To wait for the answers and write the results, run
    'agentv eval --resume'.
    """


@command.command("status", examples=("agentv batch status", "agentv batch status --format json"))
@format_option
def batch_status_command(form: str) -> None:
    """Print the status of each batch.

    Exit code 0, or 1 if a vendor cannot be reached.
    """
    configure_logging(verbose=False)
    reports = _collect_reports(batch_status(Journal()))
    if form == "json":
        print_json(reports)
    else:
        _print(reports)
    sys.exit(_exit_code(reports))


@command.command("collect", examples=("agentv batch collect",))
@click.argument("batches", nargs=-1)
def collect_command(batches: tuple[str, ...]) -> None:
    """Download the answers of finished batches.

    Without BATCHES, all finished batches are downloaded. Vendors delete answers after some time. They are stored in
    .agentv/batches; to turn them into results, run 'agentv eval --resume'.

    Exit code 0, 1 if a vendor cannot be reached, 2 for an unknown batch.
    """
    configure_logging(verbose=False)
    reports = _collect_reports(collect_batches(Journal(), batches))
    _print(reports)
    if any(report.status == "running" for report in reports):
        print_message("collect the batches that are still running later")
    commands: list[str] = []
    for report in reports:
        if report.status == "collected" and report.command and report.command not in commands:
            commands.append(report.command)
    for line in commands:
        print_message(f"to write the results, run: {line}")
    sys.exit(_exit_code(reports))


@command.command("cancel", examples=("agentv batch cancel", "agentv batch cancel batch_6743f9c0"))
@click.argument("batches", nargs=-1)
def cancel_command(batches: tuple[str, ...]) -> None:
    """Cancel batches.

    Without BATCHES, all running batches are cancelled. You pay for answers that are already finished; download them
    with 'agentv batch collect'.

    Exit code 0, 1 if a vendor cannot be reached, 2 for an unknown batch.
    """
    configure_logging(verbose=False)
    reports = _collect_reports(cancel_batches(Journal(), batches))
    _print(reports)
    sys.exit(_exit_code(reports))


def _collect_reports(reports: AsyncIterator[BatchReport]) -> list[BatchReport]:
    """Exhaust an async iterator and return the reports."""

    async def collect() -> list[BatchReport]:
        return [report async for report in reports]

    return asyncio.run(collect())


def _exit_code(reports: list[BatchReport]) -> int:
    """Return 1 if any batch has an error, otherwise 0."""
    if any(report.error for report in reports):
        return 1
    return 0


def _print(reports: list[BatchReport]) -> None:
    if not reports:
        print_lines([NONE])
    for report in reports:
        print_lines([printable(_line(report))])


def _line(report: BatchReport) -> str:
    """Return the status line of a batch."""
    target = f"target {report.target}"
    if report.role != "target":
        target += f" ({report.role})"
    parts = [f"{report.batch}: {target}", plural(report.requests, "request"), report.status]
    if report.error:
        return f"{', '.join(parts)}: {report.error}"
    if report.answered is not None:
        parts.append(f"{report.answered} answered")
    if report.failed:
        parts.append(f"{report.failed} failed")
    line = ", ".join(parts)
    if report.words:
        line += f" ({report.words})"
    return f"{line}, since {report.submitted}"
