"""`agentv batch`."""

import asyncio
import sys
from collections.abc import AsyncIterator

import click

from agentv.cli.help import Group
from agentv.cli.messages import print_json, print_lines, print_warnings, tell
from agentv.cli.params import format_option
from agentv.formats.printable import printable
from agentv.report.quantities import counted
from agentv.run.batches.control import BatchReport, batch_status, cancel_batches, collect_batches
from agentv.run.batches.journal import Journal

NONE = "no batches: nothing was sent through a batch API here, or all of its answers are in results"


@click.group(
    cls=Group,
    examples=(
        "agentv batch status",
        "agentv batch collect",
        "agentv batch cancel batch_6743f9c0",
    ),
)
def command() -> None:
    """What was sent through vendors' batch APIs and has no results yet, as .agentv/batches knows it.

    'agentv eval --resume' waits for the answers and makes results of them.
    """


@command.command("status", examples=("agentv batch status", "agentv batch status --format json"))
@format_option
def status_command(form: str) -> None:
    """Tell how far each batch is, in the vendor's counts.

    Exit code 0; 1 if a vendor cannot be asked.
    """
    print_warnings(verbose=False)
    reports = _collect_reports(batch_status(Journal()))
    if form == "json":
        print_json(reports)
    else:
        _print(reports)
    sys.exit(_exit_code(reports))


@command.command("collect", examples=("agentv batch collect",))
@click.argument("batches", nargs=-1)
def collect_command(batches: tuple[str, ...]) -> None:
    """Fetch the answers of BATCHES that have ended, of all if none is named, before the vendor throws them away.

    They are kept in .agentv/batches. 'agentv eval --resume' makes results of them.
    Exit code 0; 1 if a vendor cannot be asked; 2 for a batch that is not known.
    """
    print_warnings(verbose=False)
    reports = _collect_reports(collect_batches(Journal(), batches))
    _print(reports)
    if any(report.status == "running" for report in reports):
        tell("what is still running can be collected later")
    commands: list[str] = []
    for report in reports:
        if report.status == "collected" and report.command and report.command not in commands:
            commands.append(report.command)
    for line in commands:
        tell(f"make results of the answers with: {line}")
    sys.exit(_exit_code(reports))


@command.command("cancel", examples=("agentv batch cancel", "agentv batch cancel batch_6743f9c0"))
@click.argument("batches", nargs=-1)
def cancel_command(batches: tuple[str, ...]) -> None:
    """Ask the vendors to end BATCHES, or all if none is named.

    Answers that are there by then have been paid for: 'agentv batch collect' fetches them.
    Exit code 0; 1 if a vendor cannot be asked; 2 for a batch that is not known.
    """
    print_warnings(verbose=False)
    reports = _collect_reports(cancel_batches(Journal(), batches))
    _print(reports)
    sys.exit(_exit_code(reports))


def _collect_reports(reports: AsyncIterator[BatchReport]) -> list[BatchReport]:
    """Run an async iterator to its end and return the reports."""

    async def collect() -> list[BatchReport]:
        return [report async for report in reports]

    return asyncio.run(collect())


def _exit_code(reports: list[BatchReport]) -> int:
    """Return 1 if there was an error with one of the batches, otherwise 0."""
    if any(report.error for report in reports):
        return 1
    return 0


def _print(reports: list[BatchReport]) -> None:
    if not reports:
        print_lines([NONE])
    for report in reports:
        print_lines([printable(_line(report))])


def _line(report: BatchReport) -> str:
    """Return the state of a batch in one line."""
    target = f"target {report.target}"
    if report.role != "target":
        target += f" ({report.role})"
    parts = [f"{report.batch}: {target}", counted(report.requests, "request"), report.status]
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
