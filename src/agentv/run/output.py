"""Open the results file of a run: a new file, or that of an earlier run that is resumed."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

import msgspec

from agentv.calls.stale import describe_stale
from agentv.evaluators.build import EvaluatorBuilder
from agentv.files.encode import to_json
from agentv.log import info, warn
from agentv.records import EvalResult, Problem
from agentv.redact import Redactor, clean
from agentv.results.formats import JSONL, ResultFormat, format_for, format_of
from agentv.results.summary import Summary
from agentv.results.write import EarlierFile, ResultFile, create, create_new, open_stdout
from agentv.run.jobs import IsDone
from agentv.run.options import STDOUT, OutputOptions
from agentv.run.outcome import unwritable_result
from agentv.run.planning.plan import Plan
from agentv.run.resume import Resumed, find_standing, newest_results, resume


class RunOutput(NamedTuple):
    """The results file of a run, if it has one, and the trials that already have a result."""

    file: ResultFile | None = None
    is_done: IsDone | None = None
    earlier: Resumed | None = None
    """The results of the run that is resumed."""
    backup: Path | None = None
    """The backup of the file that this one replaced."""
    is_new: bool = False
    """Whether the file was created."""

    @property
    def resumed_runs(self) -> tuple[str, ...]:
        """The ids of the runs whose results the file keeps."""
        if self.earlier is None:
            return ()
        return self.earlier.run_ids

    @property
    def path(self) -> Path | None:
        """The path of the results file."""
        if self.file is None:
            return None
        return self.file.path

    def undo(self) -> None:
        """Restore the files, as far as possible, after a run that could not start."""
        backup = self.backup
        if self.earlier is not None:
            backup = self.earlier.backup
        if self.file is None or (self.earlier is None and not self.is_new):
            return
        self.file.undo(backup)
        if backup is not None:
            info(f"moved {backup} back to {self.path}", prefix=False)

    def keep(self) -> None:
        """Keep the results file of a run that has started: from here on, `undo` does not restore an earlier one."""
        if self.file is not None:
            self.file.forget_replaced()


@contextmanager
def open_output(
    options: OutputOptions,
    plan: Plan,
    evaluators: EvaluatorBuilder,
    summary: Summary,
) -> Iterator[RunOutput]:
    """Open the results file, and close it at the end. Results of an earlier run that are kept count in the summary."""
    output = _open(options, plan, evaluators, summary)
    if output.file is None:
        yield output
        return
    with output.file:
        yield output


def _open(
    options: OutputOptions,
    plan: Plan,
    evaluators: EvaluatorBuilder,
    summary: Summary,
) -> RunOutput:
    out = options.out
    folder = options.results_folder
    form = _format(options)
    if out is None and folder is None:
        return RunOutput()
    if out == STDOUT:
        return RunOutput(open_stdout(form, clean))
    if options.resume:
        earlier = _earlier(options, plan)
        if earlier is not None:
            found = EarlierFile(earlier, form, clean)
            resumed = resume(found, plan, evaluators, options, summary.add_earlier)
            summary.unplanned_results = resumed.found["gone"]
            _describe_resumed(resumed, earlier, plan)
            return RunOutput(resumed.file, resumed.is_done, resumed)
        if out is None:
            info("no earlier run of these eval files and targets: starting a new run", prefix=False)
        else:
            info(f"{out} does not exist: starting a new run", prefix=False)
    if out is None:
        assert folder is not None
        name = f"eval_{datetime.now():%Y%m%d_%H%M%S}"
        return RunOutput(create_new(folder, name, form, clean), is_new=True)
    file, kept = create(out, form, clean)
    if kept is not None:
        info(f"{out} already existed: moved it to {kept}", prefix=False)
    return RunOutput(file, backup=kept, is_new=True)


def _describe_resumed(resumed: Resumed, path: Path, plan: Plan) -> None:
    """Log which results of an earlier run are kept, and which are re-run."""
    info(f"resuming {path}: {resumed.describe()}", prefix=False)
    unplanned = resumed.describe_unplanned()
    if unplanned:
        info(unplanned, prefix=False)
    versions = {target.name: target.version for target in plan.targets}
    for line in describe_stale(resumed.stale, versions):
        info(line, prefix=False)


def _earlier(options: OutputOptions, plan: Plan) -> Path | None:
    """Return the results file of the run to resume, if there is one."""
    path = options.out
    if path is None and options.runs_folder is not None:
        path = newest_results(options.runs_folder, plan)
    if path is None or not path.is_file():
        return None
    return path


def earlier_results(
    options: OutputOptions,
    plan: Plan,
    evaluators: EvaluatorBuilder,
) -> IsDone | None:
    """Return a function that decides which trials have a result, or None if no run would be resumed.

    Nothing is written.
    """
    if not options.resume:
        return None
    earlier = _earlier(options, plan)
    if earlier is None:
        return None
    return find_standing(earlier, plan, evaluators, options)


def _format(options: OutputOptions) -> ResultFormat:
    """Return the requested format, otherwise the one for the file's suffix. Use JSONL if the format is unknown."""
    if options.output_format is None:
        if options.out is None:
            return JSONL
        return format_for(options.out)
    form = format_of(options.output_format)
    if form is not None:
        return form
    message = f"unknown output format {options.output_format!r}: using jsonl"
    warn(Problem(message=message, severity="warning"))
    return JSONL


def name_masked(result: EvalResult, clean: Redactor) -> EvalResult:
    """Return the result with the names of the secrets that masking removes from its answer, metadata and case."""
    if not clean.is_needed:
        return result
    texts = [
        result.eval_id,
        result.question,
        result.expected_outcome,
        result.reference_answer,
        result.candidate_answer,
        result.description,
    ]
    for values in (result.metadata, result.response_metadata, result.output_messages):
        if values:
            texts.append(to_json(values).decode())
    given = filter(None, texts)
    joined = "\0".join(given)  # separated, so that no secret is found across two texts
    names = clean.names_in(joined)
    if not names:
        return result
    masked = names.union(result.masked)
    return msgspec.structs.replace(result, masked=tuple(sorted(masked)))


def mask_result(result: EvalResult, clean: Redactor) -> EvalResult:
    """Return the result without secrets, or the same object if it contains none."""
    raw = to_json(result)
    text = raw.decode()
    if clean(text) == text:
        return result
    masked = clean.values(msgspec.json.decode(raw))
    try:
        return msgspec.convert(masked, EvalResult)
    except msgspec.ValidationError as error:  # a secret is equal to a number in the result
        return unwritable_result(result, error)
