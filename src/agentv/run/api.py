"""Evaluating from Python: the one use case, with results in memory, or one by one as they arrive."""

import asyncio
import math
from collections.abc import AsyncGenerator, Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypedDict, Unpack

import msgspec

from agentv.errors import ConfigError
from agentv.records import EvalResult
from agentv.redact import clean
from agentv.results.forecast import Forecast
from agentv.results.health.record import JudgeHealth
from agentv.results.summary import Summary
from agentv.run.evaluate import DryRun, EvalOptions, forecast_evaluation
from agentv.run.evaluate import evaluate as run_evaluation
from agentv.run.watching.watcher import Silence
from agentv.system.atomic_files import write_atomically

_ENCODE = msgspec.json.Encoder(enc_hook=str).encode
_DELAYS = {"dry_run_delay": 0.0, "dry_run_delay_min": None, "dry_run_delay_max": None}
_COUNTS = {"trials": 1, "limit": 1, "max_errors": 1, "max_retries": 0}
"""The least that options which count something may be."""
_AMOUNTS = ("timeout_seconds", "max_cost", "max_duration", "batch_deadline")
_DELAYS_AND_WORKERS = ("collect_grace", "workers", *_DELAYS)
Paths = str | Path | Sequence[str | Path]


class Options(TypedDict, total=False):
    """What `evaluate` and `stream` take by keyword: the options of `agentv eval`."""

    target: str | Callable[..., Any] | None
    """A function, async or not, or the name of a target in the project's targets file."""
    targets: str | Path | None
    """The targets file, or a folder that has one."""
    prices: str | Path | None
    """The price list: what the tokens of targets without a `pricing` cost."""
    ids: str | Sequence[str]
    """Run only the cases with this id, or these, which may be globs."""
    limit: int | None
    trials: int
    shard: str | None
    """Run only this part of the cases: `"2/4"`, or `"auto"` to ask the scheduler."""
    workers: int | None
    timeout_seconds: float | None
    max_retries: int | None
    max_errors: int | None
    batch_deadline: float
    """Seconds after which what a vendor's batch has not answered is given up."""
    batch_fallback: bool
    """Whether requests that no batch has answered are asked live."""
    max_cost: float | None
    """US dollars that the run may spend: no case is started that would take it beyond."""
    max_duration: float | None
    """Seconds that cases may take: none is started that would end later."""
    cluster: str | None
    """The Dask cluster that cases run on: `tcp://HOST:PORT` of its scheduler, or `local:N`."""
    cache: bool
    dry_run: bool
    dry_run_delay: float
    """Milliseconds that the mock of a dry run takes."""
    dry_run_delay_min: float | None
    dry_run_delay_max: float | None
    strict: bool
    out: str | Path | None
    """Write the results to this file as well."""
    output_format: str | None
    junit: str | Path | None
    """Write the results in `out` as JUnit XML, too."""
    report: str | Path | None
    """Write the results in `out` as one HTML file, too."""
    resume: bool
    """Go on with the results in `out`."""
    keep_stale: bool
    rerun_failed: bool
    failed_in: str | Path | None
    include_trace: bool
    include_inputs: bool
    otel: bool
    """Send results as OpenTelemetry traces; the `OTEL_*` variables say where."""
    collect_traces: bool
    """Collect the OpenTelemetry spans of targets: they become their traces."""
    collect_port: int | None
    collect_grace: float | None
    by: str | None
    check_judge: bool
    """Also judge planted answers whose verdicts are known, and some answers twice."""
    dump_prompts: str | Path | None
    """Write each prompt to a file in this folder."""
    dump_traces: str | Path | None
    """Write each trace to a file in this folder."""


class EvalReport(NamedTuple):
    """What became of a run: one result for each trial of a case that was run, and what they come to."""

    results: tuple[EvalResult, ...]
    summary: Summary
    judge_health: JudgeHealth | None = None
    """What is known of the judges, if the run has any."""

    def to_records(self) -> list[dict[str, Any]]:
        """Return the results as plain dictionaries, which pandas and polars take as they are."""
        return [msgspec.json.decode(_ENCODE(result)) for result in self.results]

    def _repr_html_(self) -> str:
        """Return a summary for a notebook."""
        from agentv.report.notebook import summary_html

        return summary_html(self.summary, clean)


async def evaluate(paths: Paths, **options: Unpack[Options]) -> EvalReport:
    """Run the cases of eval files and return their results, without secrets.

    `paths` are eval files, folders or globs. The options are those of `agentv eval`, by name; see `Options`. Raise
    `AgentvError` if the run cannot start; its text has everything that is wrong.
    """
    collected: list[EvalResult] = []
    report = await run_evaluation(_eval_options(paths, options), _Sink(collected.append), Silence())
    if report.error is not None:
        raise report.error
    _write_pages(options)
    return EvalReport(tuple(collected), report.summary, report.judge_health)


async def stream(paths: Paths, **options: Unpack[Options]) -> AsyncGenerator[EvalResult, None]:
    """Run the cases of eval files and yield each result as it arrives, without secrets.

    It takes what `evaluate` takes. Whoever leaves the loop early ends the run; what was done is in `out`, if that
    is given.
    """
    queue: asyncio.Queue[EvalResult | None] = asyncio.Queue()
    running = asyncio.ensure_future(run_evaluation(_eval_options(paths, options), _Sink(queue.put_nowait), Silence()))
    running.add_done_callback(lambda _: queue.put_nowait(None))
    try:
        while (result := await queue.get()) is not None:
            yield result
        report = await running
        if report.error is not None:
            raise report.error
        _write_pages(options)
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


def plan(paths: Paths, **options: Unpack[Options]) -> Forecast:
    """Return what a run would do, take and find, as `agentv eval --plan` prints it; nobody is asked.

    It takes what `evaluate` takes. Raise `AgentvError` if the run could not start.
    """
    return forecast_evaluation(_eval_options(paths, options))


def _write_pages(given: Options) -> None:
    """Write the results in the other forms that were asked for."""
    results = Path(given.get("out") or "")
    if (junit := given.get("junit")) is not None:
        from agentv.report.junit import junit_blocks

        write_atomically(Path(junit), junit_blocks(results))
    if (page := given.get("report")) is not None and results.stat().st_size:
        from agentv.report.page.write import write_report

        write_report([results], Path(page))


def _eval_options(paths: Paths, given: Options) -> EvalOptions:
    """Return the options of the use case; raise `ConfigError` for one that makes no sense."""
    fields: dict[str, Any] = dict(given)
    target = fields.pop("target", None)
    if unknown := fields.keys() - Options.__annotations__.keys():
        raise TypeError(f"unknown option {min(unknown)!r}")
    _check_numbers(fields)
    if not (target is None or isinstance(target, str) or callable(target)):
        raise ConfigError(f"target is {target!r}", hint="it is a function, or the name of a target")
    if fields.get("resume") and fields.get("out") is None:
        raise ConfigError("resume=True needs out, the results file to go on with")
    for name in ("collect_port", "collect_grace"):
        if fields.get(name) is not None and not fields.get("collect_traces"):
            raise ConfigError(f"{name} needs collect_traces=True")
    for name in ("junit", "report"):
        if fields.pop(name, None) is not None and fields.get("out") is None:
            raise ConfigError(f"{name} needs out, the results file that it is made of")
    delays = [fields.pop(name, default) for name, default in _DELAYS.items()]
    listed = [paths] if isinstance(paths, str | Path) else paths
    ids = fields.pop("ids", ())
    if not listed:
        raise ConfigError("no eval files are named", hint="name eval files, folders or globs")
    for name in ("targets", "prices", "out", "failed_in", "dump_prompts", "dump_traces"):
        if fields.get(name) is not None:
            fields[name] = Path(fields[name])
    return EvalOptions(
        paths=tuple(str(path) for path in listed),
        target=target if isinstance(target, str) else None,
        function=target if callable(target) else None,
        ids=(ids,) if isinstance(ids, str) else tuple(ids),
        **fields | {"dry_run": DryRun(*delays) if fields.get("dry_run") else None},
    )


def _check_numbers(fields: dict[str, Any]) -> None:
    """Raise `ConfigError` for a number that the command line would not take either."""
    for name, least in _COUNTS.items():
        value = fields.get(name)
        if value is not None and not (isinstance(value, int) and value >= least):
            raise ConfigError(f"{name} is {value!r}", hint=f"it is a whole number from {least} on")
    for name in (*_AMOUNTS, *_DELAYS_AND_WORKERS):
        value = fields.get(name)
        if value is None:
            continue
        if not (isinstance(value, int | float) and math.isfinite(value) and value >= 0):
            raise ConfigError(f"{name} is {value!r}", hint="it is a finite number from 0 on")
        if value == 0 and name in _AMOUNTS:
            raise ConfigError(f"{name} is {value!r}", hint="it is a finite number above 0")


class _Sink:
    """Passes on each result."""

    def __init__(self, take: Callable[[EvalResult], object]):
        self._take = take

    def write(self, result: EvalResult) -> None:
        self._take(result)
