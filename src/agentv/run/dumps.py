"""Write prompts and traces of cases to files (`--dump-prompts`, `--dump-traces`)."""

from dataclasses import dataclass
from typing import Any, Self

from agentv.files.dumps import Dumps
from agentv.log import info
from agentv.protocols import Previewed, Provider
from agentv.records import EvalCase, ProviderRequest
from agentv.redact import clean
from agentv.results.trace import build_trace, summarize_trace
from agentv.run.options import RunOptions
from agentv.run.outcome import Outcome
from agentv.run.planning.plan import Plan
from agentv.text import plural


@dataclass(frozen=True)
class CaseDumps:
    """Writes the prompts and traces that the user asked for."""

    prompts: Dumps | None = None
    traces: Dumps | None = None
    several: bool = False
    """Whether the run has several eval files. Ids of cases are unique only within a file."""
    trials: bool = False
    """Whether cases run more than once."""

    @classmethod
    def open(cls, options: RunOptions, plan: Plan) -> Self:
        """Return the dumps of a run. Raise `OutputError` if a folder cannot be made."""
        prompts = None
        if options.dump_prompts is not None:
            prompts = Dumps(options.dump_prompts, clean)
        traces = None
        if options.dump_traces is not None:
            traces = Dumps(options.dump_traces, clean)
        return cls(
            prompts=prompts,
            traces=traces,
            several=len(plan.files) > 1,
            trials=options.trials > 1,
        )

    @property
    def has_traces(self) -> bool:
        """Whether traces are written."""
        return self.traces is not None

    def prompt(self, case: EvalCase, request: ProviderRequest, provider: Provider) -> None:
        """Write the request of a case, with a preview of what the provider will send if it supports that."""
        if self.prompts is None:
            return
        content: dict[str, Any] = {
            "eval_id": case.id,
            "question": request.prompt,
            "guidelines": request.guidelines,
            "guideline_paths": request.guideline_files,
        }
        if isinstance(provider, Previewed):
            content["sent"] = provider.preview(request)
        self.prompts.write(self._name(case), content)

    def trace(self, case: EvalCase, target: str, outcome: Outcome, trial: int) -> None:
        """Write the trace of an attempt."""
        if self.traces is None:
            return
        trace = None
        summary = None
        known = outcome.known
        if known:
            trace = build_trace(known)
            if trace is not None:
                summary = summarize_trace(trace, known)
        content: dict[str, Any] = {"eval_id": case.id}
        suffix = f"_attempt-{outcome.attempt}"
        if self.trials:
            content["trial"] = trial
            suffix = f"_trial-{trial}{suffix}"
        content["attempt"] = outcome.attempt
        content["target"] = target
        content["trace"] = trace
        content["trace_summary"] = summary
        self.traces.write(self._name(case), content, suffix)

    def report_replaced(self) -> None:
        """Log how many files of earlier runs were replaced."""
        for option, dumps in (("--dump-prompts", self.prompts), ("--dump-traces", self.traces)):
            if dumps is None or not dumps.replaced:
                continue
            files = plural(
                dumps.replaced,
                f"earlier file in {dumps.folder} was",
                f"earlier files in {dumps.folder} were",
            )
            info(f"{files} overwritten; pass another folder to {option} to keep both")

    def _name(self, case: EvalCase) -> str:
        if self.several:
            return f"{case.file.path}/{case.id}"
        return case.id


NO_DUMPS = CaseDumps()
