"""Check the values of the options of a run, and which of them can be combined."""

from collections.abc import Iterator
from typing import Any

from agentv.errors import ConfigError
from agentv.option import OptionField
from agentv.run.options import STDOUT, DryRunOptions, EvalOptions, OutputOptions, ReportOptions, option_fields
from agentv.text import has_surrogates


def check(options: EvalOptions) -> None:
    """Raise `ConfigError` for a number out of range or for options that cannot be combined."""
    for field in option_fields().values():
        value = _value(options, field)
        if field.option.bounds is None or value is None:
            continue
        hint = field.option.bounds.hint(value)
        if hint:
            raise ConfigError(f"{field.name} is {value!r}", hint=hint)
    conflict = next(_conflicts(options), None)
    if conflict is not None:
        raise ConfigError(conflict)


def _value(options: EvalOptions, field: OptionField) -> Any:
    record: Any = options
    for part in field.parts:
        record = getattr(record, part)
    return getattr(record, field.name)


def _conflicts(options: EvalOptions) -> Iterator[str]:
    """Yield a message for each combination of options that is not allowed."""
    yield from _output_conflicts(options.output, options.pages)
    yield from _dry_run_conflicts(options.mock)
    if options.selection.seed is not None and options.selection.sample is None:
        yield "--seed needs --sample"
    collect = options.run.collect
    if not collect.collect_traces:
        if collect.collect_port is not None:
            yield "--collect-port needs --collect-traces"
        if collect.collect_grace is not None:
            yield "--collect-grace needs --collect-traces"
    if options.cluster is not None:
        objects = ", ".join(_given_objects(options))
        if objects:
            yield f"{objects} cannot be sent to a cluster, whose workers read eval files: write them to an eval file"
        if collect.collect_port is not None:
            yield "--collect-port cannot be used with --cluster: each worker listens on its own port"
        if options.limits.has_budget:
            yield "--max-cost and --max-duration are not supported with --cluster"


def _given_objects(options: EvalOptions) -> Iterator[str]:
    """Yield the names of the arguments with objects that belong in eval files."""
    if options.cases is not None:
        yield "cases"
    if options.defaults.evaluators:
        yield "evaluators"
    if options.defaults.hooks is not None:
        yield "hooks"
    if options.defaults.metrics:
        yield "metrics"


def _dry_run_conflicts(mock: DryRunOptions) -> Iterator[str]:
    """Yield the delays given without `--dry-run`: the run would call the real target, at real cost."""
    if mock.dry_run:
        return
    if mock.dry_run_delay is not None:
        yield "--dry-run-delay needs --dry-run"
    if mock.dry_run_delay_min is not None:
        yield "--dry-run-delay-min needs --dry-run"
    if mock.dry_run_delay_max is not None:
        yield "--dry-run-delay-max needs --dry-run"


def _output_conflicts(output: OutputOptions, pages: ReportOptions) -> Iterator[str]:
    if output.name is not None and not output.name.strip():
        yield "--name is empty"
    if output.name is not None and has_surrogates(output.name):
        yield "--name is not valid UTF-8"
    if output.rerun_failed and not output.resume:
        yield "--failed needs --resume"
    if output.keep_stale and not output.resume:
        yield "--keep-stale needs --resume"
    if output.resume and output.out == STDOUT:
        yield "--resume needs a results file, but --out is stdout"
    if output.out is None and output.results_folder is None:
        if output.resume:
            yield "--resume needs --out, the results file to resume"
        if pages.junit is not None:
            yield "--junit needs --out, the results file to convert"
        if pages.report is not None:
            yield "--report needs --out, the results file to convert"
        if pages.record is not None:
            yield "--record needs --out: without a results file, a run has no record"
