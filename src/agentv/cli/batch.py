"""`agentv batch`."""

import asyncio
import sys
from collections.abc import AsyncIterator

import click
import msgspec

from agentv.cli.help import Group
from agentv.cli.messages import print_lines, print_warnings, tell
from agentv.cli.params import OneOf
from agentv.formats.printable import printable
from agentv.run.batches.control import BatchReport, batch_status, cancel_batches, collect_batches
from agentv.run.batches.journal import Journal

NONE = "no batches: nothing was sent through a batch API here, or all of its answers are in results"


@click.group(cls=Group, examples=("agentv batch status", "agentv batch collect", "agentv batch cancel batch_6743f9c0"))
def command() -> None:
    """What was sent through vendors' batch APIs and has no results yet, as .agentv/batches knows it.

    'agentv eval --resume' waits for the answers and makes results of them.
    """


@command.command("status", examples=("agentv batch status", "agentv batch status --format json"))
@click.option("--format", "form", type=OneOf(["text", "json"]), default="text", help="json is for tools.")
def status_command(form: str) -> None:
    """Tell how far each batch is, in the vendor's counts.

    Exit code 0; 1 if a vendor cannot be asked.
    """
    print_warnings(verbose=False)
    found = _reports(batch_status(Journal()))
    if form == "json":
        print_lines([msgspec.json.format(msgspec.json.encode(found), indent=2).decode()])
    else:
        _print(found)
    sys.exit(any(report.error for report in found))


@command.command("collect", examples=("agentv batch collect",))
@click.argument("batches", nargs=-1)
def collect_command(batches: tuple[str, ...]) -> None:
    """Fetch the answers of BATCHES that have ended, of all if none is named, before the vendor throws them away.

    They are kept in .agentv/batches. 'agentv eval --resume' makes results of them.
    Exit code 0; 1 if a vendor cannot be asked; 2 for a batch that is not known.
    """
    print_warnings(verbose=False)
    found = _reports(collect_batches(Journal(), batches))
    _print(found)
    if any(report.status == "running" for report in found):
        tell("what is still running can be collected later")
    for line in dict.fromkeys(report.command for report in found if report.status == "collected" and report.command):
        tell(f"make results of the answers with: {line}")
    sys.exit(any(report.error for report in found))


@command.command("cancel", examples=("agentv batch cancel", "agentv batch cancel batch_6743f9c0"))
@click.argument("batches", nargs=-1)
def cancel_command(batches: tuple[str, ...]) -> None:
    """Ask the vendors to end BATCHES, or all if none is named.

    Answers that are there by then have been paid for: 'agentv batch collect' fetches them.
    Exit code 0; 1 if a vendor cannot be asked; 2 for a batch that is not known.
    """
    print_warnings(verbose=False)
    found = _reports(cancel_batches(Journal(), batches))
    _print(found)
    sys.exit(any(report.error for report in found))


def _reports(reports: AsyncIterator[BatchReport]) -> list[BatchReport]:
    async def listed() -> list[BatchReport]:
        return [report async for report in reports]

    return asyncio.run(listed())


def _print(reports: list[BatchReport]) -> None:
    print_lines(map(printable, map(_line, reports)) if reports else [NONE])


def _line(report: BatchReport) -> str:
    """Return what is known of a batch, in one line."""
    what = "" if report.role == "target" else f" ({report.role})"
    requests = "1 request" if report.requests == 1 else f"{report.requests} requests"
    start = f"{report.batch}: target {report.target}{what}, {requests}, {report.status}"
    if report.error:
        return f"{start}: {report.error}"
    counts = [f"{report.answered} answered"] if report.answered is not None else []
    counts += [f"{report.failed} failed"] if report.failed else []
    words = f" ({report.words})" if report.words else ""
    return f"{', '.join([start, *counts])}{words}, since {report.submitted}"
