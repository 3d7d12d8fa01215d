"""What was asked and how that ended -> files for a person to look at, if anybody wants them."""

from agentv.protocols import Previewed, Provider
from agentv.records import EvalCase, ProviderRequest
from agentv.run.outcome import Outcome
from agentv.system.dumps import Dumps
from agentv.telemetry.trace import build_trace, summarize_trace


class CaseDumps:
    """Writes prompts and traces of cases, of `several` eval files and with `trials` or not."""

    def __init__(self, prompts: Dumps | None, traces: Dumps | None, *, several: bool, trials: bool):
        self._prompts, self._traces, self._several, self._trials = prompts, traces, several, trials

    @property
    def has_traces(self) -> bool:
        """Whether anybody wants traces."""
        return self._traces is not None

    def prompt(self, case: EvalCase, request: ProviderRequest, provider: Provider) -> None:
        """Write down what is asked, and how, if the provider tells."""
        if self._prompts is not None:
            content = {
                "eval_id": case.id,
                "question": request.question,
                "guidelines": request.guidelines,
                "guideline_paths": request.guideline_files,
                **({"sent": provider.preview(request)} if isinstance(provider, Previewed) else {}),
            }
            self._prompts.write(self._name(case), content)

    def trace(self, case: EvalCase, target: str, outcome: Outcome, trial: int) -> None:
        """Write down how an attempt ended."""
        if self._traces is None:
            return
        known = outcome.known
        trace = build_trace(known) if known else None
        summary = summarize_trace(trace, known) if trace is not None and known else None
        content = {
            "eval_id": case.id,
            **({"trial": trial} if self._trials else {}),
            "attempt": outcome.attempt,
            "target": target,
            "trace": trace,
            "trace_summary": summary,
        }
        suffix = f"_trial-{trial}" if self._trials else ""
        self._traces.write(self._name(case), content, f"{suffix}_attempt-{outcome.attempt}")

    def _name(self, case: EvalCase) -> str:
        """The name of the case's dumps; ids are only unique within a file."""
        return f"{case.file.path}/{case.id}" if self._several else case.id
