"""The options of a run: one record with a part for each consumer.

A field with an `Option` is a flag of `agentv eval` and, under its own name, a keyword of `agentv.evaluate`. Other
fields are set by code only. All names are unique across the parts.
"""

from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import msgspec

from agentv.cases.objects import CaseDefaults, CaseObjects
from agentv.option import (
    ABOVE_0,
    COUNT_FROM_0,
    COUNT_FROM_1,
    FROM_0,
    GATES,
    HOW_IT_RUNS,
    LOOKING_INSIDE,
    WHAT_RUNS,
    WHERE_RESULTS_GO,
    Option,
    OptionField,
    find_fields,
)
from agentv.protocols import AnswersToGrade, Provider
from agentv.providers.mock import Mock, MockSettings

BATCH_DEADLINE_SECONDS = 86_400.0
STDOUT = Path("-")
"""The value of `out` that writes the results to stdout."""


class SelectionOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Which cases run, and on which target."""

    target: Annotated[
        str | None,
        Option("--target", "Use this target for all cases, overriding the eval files.", WHAT_RUNS, metavar="NAME"),
    ] = None
    ids: Annotated[
        tuple[str, ...],
        Option("--eval-id", "Run only the cases with this id (or glob). Repeatable.", WHAT_RUNS, metavar="ID"),
    ] = ()
    filter: Annotated[
        tuple[str, ...],
        Option(
            "--filter",
            "Run only the cases that match, such as 'tag:smoke -metadata.level>=3'. Repeatable; all must match.",
            WHAT_RUNS,
            metavar="EXPR",
        ),
    ] = ()
    sample: Annotated[
        int | None,
        Option("--sample", "Run only a random sample of N cases.", WHAT_RUNS, metavar="N", bounds=COUNT_FROM_1),
    ] = None
    seed: Annotated[
        int | None,
        Option("--seed", "Seed of --sample. [default: 0]", WHAT_RUNS, metavar="S", bounds=COUNT_FROM_0),
    ] = None
    limit: Annotated[
        int | None,
        Option("--limit", "Run only the first N cases.", WHAT_RUNS, metavar="N", bounds=COUNT_FROM_1),
    ] = None
    shard: Annotated[
        str | None,
        Option(
            "--shard",
            "Run only shard I of N, or 'auto' to detect the shard in CI. Combine shards with 'agentv merge'.",
            WHAT_RUNS,
            metavar="I/N",
        ),
    ] = None
    failed_in: Annotated[
        Path | None,
        Option("--failed-in", "Run only the cases that did not pass in this file.", WHAT_RUNS, metavar="RESULTS"),
    ] = None
    only: tuple[tuple[str, str, int], ...] | None = None
    """Run only these trials, by dataset, id and number."""


class ProjectOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The project files that a plan depends on, apart from the eval files."""

    targets: Annotated[
        Path | None,
        Option("--targets", "Targets file, or a folder that contains one.", WHAT_RUNS),
    ] = None
    prices: Annotated[
        Path | None,
        Option(
            "--prices",
            "Token prices, in the JSON format of LiteLLM's model price list.",
            HOW_IT_RUNS,
            metavar="FILE",
        ),
    ] = None
    """Takes precedence over the price list in the config."""
    strict: Annotated[
        bool,
        Option("--strict", "Treat invalid cases as errors instead of skipping them.", WHAT_RUNS),
    ] = False


class BatchOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How to use vendor batch APIs."""

    batch_deadline: Annotated[
        float | None,
        Option(
            "--batch-deadline",
            "Time limit for a batch at the vendor. [default: 86400]",
            HOW_IT_RUNS,
            metavar="SECONDS",
            bounds=ABOVE_0,
        ),
    ] = None
    batch_fallback: Annotated[
        bool,
        Option(
            "--no-batch-fallback",
            "Treat requests that a batch did not answer as errors instead of sending them live.",
            HOW_IT_RUNS,
        ),
    ] = True
    journal_command: tuple[str, ...] = ()
    """The command line of the run, stored in the journal of batches. Set by `run_options`."""

    @property
    def deadline_seconds(self) -> float:
        """How long to wait for a batch after its submission."""
        if self.batch_deadline is None:
            return BATCH_DEADLINE_SECONDS
        return self.batch_deadline


class CollectOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How to collect the OpenTelemetry spans of targets."""

    collect_traces: Annotated[
        bool,
        Option("--collect-traces", "Collect OpenTelemetry spans from targets as their traces.", HOW_IT_RUNS),
    ] = False
    collect_port: Annotated[
        int | None,
        Option(
            "--collect-port",
            "With --collect-traces: port to listen on, at 127.0.0.1. [default: any free port]",
            HOW_IT_RUNS,
            metavar="PORT",
        ),
    ] = None
    collect_grace: Annotated[
        float | None,
        Option(
            "--collect-grace",
            "With --collect-traces: how long to wait for further spans after an answer. "
            "[default: 1, or 6 for http targets]",
            HOW_IT_RUNS,
            metavar="SECONDS",
            bounds=FROM_0,
        ),
    ] = None


class RunOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How to run cases, locally or on the workers of a cluster."""

    trials: Annotated[
        int,
        Option("--trials", "Run every case K times.", WHAT_RUNS, metavar="K", bounds=COUNT_FROM_1),
    ] = 1
    include_inputs: Annotated[
        bool,
        Option("--no-inputs", "Omit questions and expected answers from the results.", WHERE_RESULTS_GO),
    ] = True
    include_trace: Annotated[
        bool,
        Option("--include-trace", "Include full traces in the results.", WHERE_RESULTS_GO),
    ] = False
    include_messages: Annotated[
        bool,
        Option("--no-messages", "Omit agent messages from the results.", WHERE_RESULTS_GO),
    ] = True
    otel: Annotated[
        bool,
        Option("--otel", "Also export the results as OpenTelemetry traces (see OTEL_* variables).", WHERE_RESULTS_GO),
    ] = False
    workers: Annotated[
        int | None,
        Option(
            "--workers",
            "Number of cases to run concurrently, 1 to 50. [default: 1]",
            HOW_IT_RUNS,
            metavar="N",
            bounds=COUNT_FROM_0,
        ),
    ] = None
    timeout_seconds: Annotated[
        float | None,
        Option(
            "--agent-timeout",
            "Time limit per case. [default: 600]",
            HOW_IT_RUNS,
            metavar="SECONDS",
            bounds=ABOVE_0,
        ),
    ] = None
    """Takes precedence over the settings of targets."""
    max_retries: Annotated[
        int | None,
        Option(
            "--max-retries",
            "Retry a call up to N times after a timeout or a temporary error. "
            "[default: the target's setting, or 3 for language models and 0 for other targets]",
            HOW_IT_RUNS,
            metavar="N",
            bounds=COUNT_FROM_0,
        ),
    ] = None
    """Takes precedence over the settings of targets."""
    cache: Annotated[
        bool,
        Option("--cache", "Cache responses in .agentv/cache and reuse them for identical requests.", HOW_IT_RUNS),
    ] = False
    dump_prompts: Annotated[
        Path | None,
        Option(
            "--dump-prompts",
            "Write each prompt to a file. [default folder: .agentv/prompts]",
            LOOKING_INSIDE,
            metavar="[DIR]",
        ),
    ] = None
    """The folder of the files."""
    dump_traces: Annotated[
        Path | None,
        Option(
            "--dump-traces",
            "Write each trace to a file. [default folder: .agentv/traces]",
            LOOKING_INSIDE,
            metavar="[DIR]",
        ),
    ] = None
    """The folder of the files."""
    batches: BatchOptions = BatchOptions()
    collect: CollectOptions = CollectOptions()
    run_id: str | None = None
    """The id in every result."""
    commit: str | None = None
    """The Git commit in every result."""


class OutputOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Where to write results: to `out`, or else to a new file in `results_folder`, or else nowhere."""

    resume: Annotated[
        bool,
        Option(
            "--resume",
            "Continue an earlier run: run cases that have no result or ended in an error.",
            WHAT_RUNS,
        ),
    ] = False
    rerun_failed: Annotated[
        bool,
        Option("--failed", "With --resume: also re-run cases that did not pass.", WHAT_RUNS),
    ] = False
    keep_stale: Annotated[
        bool,
        Option("--keep-stale", "With --resume: keep results even if the target has changed.", WHAT_RUNS),
    ] = False
    out: Annotated[
        Path | None,
        Option(
            "--out",
            "Write results to this file ('-' for stdout). [default: a new file in .agentv/results]",
            WHERE_RESULTS_GO,
        ),
    ] = None
    results_folder: Path | None = None
    runs_folder: Path | None = None
    """The folder for the record of the run. Without it, no record is written."""
    output_format: Annotated[
        str | None,
        Option("--output-format", "jsonl or yaml. [default: jsonl]", WHERE_RESULTS_GO, metavar="FORMAT"),
    ] = None
    name: Annotated[
        str | None,
        Option(
            "--name",
            "Name the run, for 'agentv runs', 'show', 'compare' and 'report'.",
            WHERE_RESULTS_GO,
            metavar="NAME",
        ),
    ] = None


class ReportOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Other formats in which to write the results at the end of a run."""

    junit: Annotated[
        Path | None,
        Option("--junit", "Also write the results as JUnit XML.", WHERE_RESULTS_GO),
    ] = None
    report: Annotated[
        Path | None,
        Option("--report", "Also write the results as a self-contained HTML file.", WHERE_RESULTS_GO),
    ] = None
    record: Annotated[
        Path | None,
        Option("--record", "Also write the run record (JSON) to this file.", WHERE_RESULTS_GO),
    ] = None


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """When to stop starting cases."""

    max_errors: Annotated[
        int | None,
        Option(
            "--max-errors",
            "Stop starting cases after N target errors.",
            HOW_IT_RUNS,
            metavar="N",
            bounds=COUNT_FROM_1,
        ),
    ] = None
    max_cost: Annotated[
        float | None,
        Option(
            "--max-cost",
            "Stop starting cases when the next one would exceed this cost.",
            HOW_IT_RUNS,
            metavar="USD",
            bounds=ABOVE_0,
        ),
    ] = None
    max_duration: Annotated[
        float | None,
        Option(
            "--max-duration",
            "Stop after this time; cancel cases that are still running.",
            HOW_IT_RUNS,
            metavar="SECONDS",
            bounds=ABOVE_0,
        ),
    ] = None

    @property
    def has_budget(self) -> bool:
        """Whether cost or duration is limited."""
        return self.max_cost is not None or self.max_duration is not None


class DryRunOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a mock replaces every target, and how long it takes to answer."""

    dry_run: Annotated[
        bool,
        Option("--dry-run", "Use mock answers. No target or judge is called.", WHAT_RUNS),
    ] = False
    dry_run_delay: Annotated[
        float | None,
        Option("--dry-run-delay", "Response time of the mock.", WHAT_RUNS, metavar="MS", bounds=FROM_0),
    ] = None
    dry_run_delay_min: Annotated[
        float | None,
        Option("--dry-run-delay-min", "Minimum of a random delay.", WHAT_RUNS, metavar="MS", bounds=FROM_0),
    ] = None
    dry_run_delay_max: Annotated[
        float | None,
        Option("--dry-run-delay-max", "Maximum of a random delay.", WHAT_RUNS, metavar="MS", bounds=FROM_0),
    ] = None

    def provider(self) -> Provider:
        """Return the mock."""
        settings = MockSettings(
            name="dry-run",
            provider="mock",
            response="Mock dry-run response",
            delay_ms=self.dry_run_delay or 0,
            delay_min_ms=self.dry_run_delay_min,
            delay_max_ms=self.dry_run_delay_max,
        )
        return Mock(settings)


class GateOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Which cases must pass."""

    require: Annotated[
        tuple[str, ...],
        Option(
            "--require",
            "Exit with code 1 unless every case that matches this filter passes. Repeatable.",
            GATES,
            metavar="EXPR",
        ),
    ] = ()


class EvalOptions(msgspec.Struct, frozen=True, kw_only=True):
    """All options of a run."""

    paths: tuple[str, ...]
    """Eval files, folders and globs."""
    selection: SelectionOptions = SelectionOptions()
    output: OutputOptions = OutputOptions()
    run: RunOptions = RunOptions()
    pages: ReportOptions = ReportOptions()
    limits: Limits = Limits()
    project: ProjectOptions = ProjectOptions()
    mock: DryRunOptions = DryRunOptions()
    cases: CaseObjects | None = None
    """Cases in memory, which run instead of eval files."""
    defaults: CaseDefaults = CaseDefaults()
    """Defaults from code, for cases and files that do not set these values."""
    gates: GateOptions = GateOptions()
    function: Callable[..., Any] | None = None
    """A Python function that answers instead of every target."""
    config: Mapping[str, Any] | None = None
    """The settings that the function receives."""
    version: str | None = None
    """The version of the function, if it is set explicitly."""
    stored: AnswersToGrade | None = None
    """Stored answers to score instead of calling any target."""
    cluster: Annotated[
        str | None,
        Option(
            "--cluster",
            "Run on a Dask cluster: tcp://HOST:PORT of the scheduler, or local:N to start N local processes. "
            "--workers then applies to each cluster worker.",
            HOW_IT_RUNS,
            metavar="ADDRESS",
        ),
    ] = None
    check_judge: Annotated[
        bool,
        Option(
            "--check-judge",
            "Test the judges: judge answers with known verdicts, and judge some answers twice.",
            HOW_IT_RUNS,
        ),
    ] = False
    by: Annotated[
        tuple[str, ...],
        Option(
            "--by",
            "Group the summary by a metadata key, vars.KEY, evaluator, dataset, target or conversation_id. "
            "Repeat to cross keys.",
            LOOKING_INSIDE,
            metavar="KEY",
        ),
    ] = ()
    command: tuple[str, ...] = ()
    """The command line, for the record of the run."""
    reloads_modules: bool = False
    """Whether edited modules of the user are imported again. The Python API does so: its process may run many evals."""
    needs_keys: bool = False
    """Whether a key in `by` that no case has is an error. The command line mentions it in the summary."""
    on_open: Callable[[Path], None] | None = None
    """Called with the results file when it is open and still empty."""

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> "EvalOptions":
        """Build the options from keyword values. Raise `TypeError` for an unknown name."""
        given = dict(values)
        options: EvalOptions = _build(cls, given)
        if given:
            raise TypeError(f"unknown option {min(given)!r}")
        return options

    def run_options(self, run_id: str, commit: str | None = None) -> RunOptions:
        """Return the run options for this run id. A dry run disables the cache and the collection of traces."""
        run = msgspec.structs.replace(
            self.run,
            run_id=run_id,
            commit=commit,
            batches=msgspec.structs.replace(self.run.batches, journal_command=self.command),
        )
        if self.mock.dry_run:
            run = msgspec.structs.replace(run, cache=False, collect=CollectOptions())
        return run

    def written_files(self) -> dict[str, Path]:
        """Return the files that the run writes, by the flag that names each of them."""
        files = {
            "--out": self.output.out,
            "--junit": self.pages.junit,
            "--report": self.pages.report,
            "--record": self.pages.record,
        }
        return {flag: path for flag, path in files.items() if path is not None and path != STDOUT}


def _build(struct: type[Any], values: dict[str, Any]) -> Any:
    """Build a record and its parts from the values of their fields. Remove the values that are used."""
    found: dict[str, Any] = {}
    for name, type_ in get_type_hints(struct).items():
        if isinstance(type_, type) and issubclass(type_, msgspec.Struct):
            found[name] = _build(type_, values)
        elif name in values:
            found[name] = values.pop(name)
    return struct(**found)


@cache
def option_fields() -> Mapping[str, OptionField]:
    """Return all fields with a flag, keyed by name."""
    return {field.name: field for field in find_fields(EvalOptions, ())}
