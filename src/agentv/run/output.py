"""Where the results of a run go: a new file, or an earlier one that is gone on with."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

import msgspec

from agentv.evaluators.build import EvaluatorBuilder
from agentv.notices import tell, warn
from agentv.records import EvalResult, Problem
from agentv.redact import Redactor, clean
from agentv.results.formats import JSONL, ResultFormat, format_for, format_of
from agentv.results.summary import Summary
from agentv.results.write import EarlierFile, ResultFile, create, create_new, open_stdout
from agentv.run.jobs import IsDone
from agentv.run.outcome import unwritable_result
from agentv.run.plan import Plan
from agentv.run.resume import Resumed, ResumeOptions, find_standing, newest_results, resume

STDOUT = Path("-")


class OutputOptions(NamedTuple):
    """Where results go: to `out`, else to a new file in `folder`, else nowhere."""

    out: Path | None = None
    folder: Path | None = None
    form: str | None = None
    resume: ResumeOptions | None = None


class Output(NamedTuple):
    """The results file of a run, if it has one, and what of the run is done already."""

    file: ResultFile | None = None
    is_done: IsDone | None = None
    earlier: Resumed | None = None
    """The results that it goes on from."""

    @property
    def path(self) -> Path | None:
        return self.file.path if self.file is not None else None


@contextmanager
def open_output(options: OutputOptions, plan: Plan, evaluators: EvaluatorBuilder, summary: Summary) -> Iterator[Output]:
    """Open the results file. Results of an earlier run that stand are counted in the summary."""
    output = _open(options, plan, evaluators, summary)
    if output.file is None:
        yield output
        return
    with output.file:
        yield output


def _open(options: OutputOptions, plan: Plan, evaluators: EvaluatorBuilder, summary: Summary) -> Output:
    out, folder, form = options.out, options.folder, _format(options)
    if out is None and folder is None:
        return Output()
    if out == STDOUT:
        return Output(open_stdout(form, clean))
    if options.resume is not None:
        earlier = _earlier(options)
        if earlier is not None:
            found = EarlierFile(earlier, form, clean)
            resumed = resume(found, plan, evaluators, options.resume, summary.add_earlier)
            tell(f"resuming {earlier}: {resumed.describe()}")
            return Output(resumed.file, resumed.is_done, resumed)
        tell(f"nothing to resume{f' at {out}' if out else ''}: starting afresh")
    if out is None:
        assert folder is not None
        return Output(create_new(folder, f"eval_{datetime.now():%Y%m%d_%H%M%S}", form, clean))
    file, kept = create(out, form, clean)
    if kept is not None:
        tell(f"{out} was there already: it is now {kept}")
    return Output(file)


def _earlier(options: OutputOptions) -> Path | None:
    """Return the results file of the run to go on with, if there is one."""
    out, folder = options.out, options.folder
    path = out if out is not None else newest_results(folder) if folder is not None else None
    return path if path is not None and path.is_file() else None


def earlier_results(options: OutputOptions, plan: Plan, evaluators: EvaluatorBuilder) -> IsDone | None:
    """Return what tells which trials of cases are done already, if a run would be resumed. Nothing is written."""
    if options.resume is None or (earlier := _earlier(options)) is None:
        return None
    return find_standing(earlier, plan, evaluators, options.resume)


def _format(options: OutputOptions) -> ResultFormat:
    """Return the format that was asked for, else that of the file's name; JSONL for one that we do not know."""
    if options.form is None:
        return JSONL if options.out is None else format_for(options.out)
    form = format_of(options.form)
    if form is None:
        warn(Problem(message=f"the output format {options.form!r} is not known: using jsonl", severity="warning"))
    return form or JSONL


def mask_result(result: EvalResult, clean: Redactor) -> EvalResult:
    """Return the result without secrets; the same object if it holds none."""
    raw = _ENCODE(result)
    text = raw.decode()
    if clean(text) == text:
        return result
    try:
        return msgspec.convert(clean.values(msgspec.json.decode(raw)), EvalResult)
    except msgspec.ValidationError as error:  # a number of ours that is a secret
        return unwritable_result(result, error)


_ENCODE = msgspec.json.Encoder(enc_hook=str).encode
