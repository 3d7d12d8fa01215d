"""The fixture `agentv`: run eval files inside a test, and check their figures with confidence intervals."""

import warnings
from pathlib import Path
from typing import Any

import pytest

from agentv.api.arguments import Paths
from agentv.api.compare import compare_results
from agentv.api.evaluate import evaluate
from agentv.api.report import EvalReport
from agentv.compare.gate import CANNOT_TELL, NO_REGRESSION, judge_gate
from agentv.errors import AgentvError, ConfigError
from agentv.files.state import state_folder
from agentv.pytest_plugin.runs import wait_for
from agentv.records import EvalResult
from agentv.results.runs import new_run_id
from agentv.results.summary import Summary
from agentv.stats.decisions import Decision, decide
from agentv.text import plural

MANY = 10_000
"""The largest number of needed cases that a message shows; more are not practical."""


class Runner:
    """The value of the fixture: a callable that runs eval files."""

    def __init__(self, config: pytest.Config):
        self._root = config.rootpath
        self._undecided = str(config.getini("agentv_undecided"))

    def __call__(self, paths: Paths, **options: Any) -> "CheckedRun":
        """Run eval files, relative to pytest's root directory; the options are those of `agentv.evaluate`."""
        __tracebackhide__ = True
        if isinstance(paths, str | Path):
            paths = [paths]
        absolute_paths = [str(self._root / path) for path in paths]
        folder = self._root / state_folder("results")
        default_out = folder / f"eval_{new_run_id()}.jsonl"
        out = Path(options.get("out") or default_out)
        options["out"] = out
        out.parent.mkdir(parents=True, exist_ok=True)
        try:
            report = wait_for(lambda: evaluate(absolute_paths, **options))
        except AgentvError as error:
            # Without our own frames, the traceback ends at the line of the test.
            raise error.with_traceback(None) from error.__cause__
        return CheckedRun(
            report=report,
            path=out,
            root=self._root,
            undecided=self._undecided,
        )


class CheckedRun:
    """A finished run, with methods that check its figures."""

    def __init__(
        self,
        report: EvalReport,
        path: Path,
        root: Path,
        undecided: str,
    ):
        self.results: tuple[EvalResult, ...] = report.results
        self.summary: Summary = report.summary
        self.path = path
        """The results file."""
        self._root = root
        self._undecided = undecided

    def check(
        self,
        *,
        mean: float | None = None,
        pass_rate: float | None = None,
    ) -> None:
        """Check that the mean score, or the pass rate, reaches a threshold with 95% confidence; fail if it does not.

        If there are too few cases to decide, the setting `agentv_undecided` applies. Raise `ConfigError` if the bar is
        missing or invalid, or if the run has no results. The setting also applies if a case could not run because the
        machine reached a limit.
        """
        __tracebackhide__ = True
        if mean is None and pass_rate is None:
            raise ConfigError(
                "check needs a threshold",
                hint="check(mean=0.8), or check(pass_rate=0.9)",
            )
        if self.summary.machine_failures:
            cases = plural(self.summary.machine_failures, "case")
            self._undecide(f"undecided: {cases} could not run because the machine reached a limit; run the test again")
        bars = {
            "mean": mean,
            "pass rate": pass_rate,
        }
        for what, bar in bars.items():
            if bar is None:
                continue
            if not _is_bar(bar):
                raise ConfigError(
                    f"invalid threshold for the {what}: {bar!r}",
                    hint="pass a number from 0 to 1",
                )
            decision = self._decide(what, bar)
            self._demand(decision, what, bar)

    def _decide(self, what: str, bar: float) -> Decision:
        summary = self.summary
        if summary.mean is None:
            raise ConfigError(
                "no results to check",
                hint="check that the selection matches at least one case",
            )
        if what == "mean":
            return decide(summary.mean, summary.interval, summary.answered, bar)
        interval = None
        if summary.trials > 1:
            interval = summary.pass_at_interval(1)
        return decide(summary.pass_at(1), interval, summary.complete, bar)

    def _demand(self, decision: Decision, what: str, bar: float) -> None:
        """Fail the test if the threshold is missed."""
        __tracebackhide__ = True
        low, high = decision.interval
        cases = plural(decision.cases, "case")
        errors = self.summary.failed
        if errors:
            cases += f" (results that are errors: {errors})"
        text = f"{what} {decision.estimate:.3f} (95%: {low:.3f} to {high:.3f}) of {cases}, threshold {bar:g}"
        if decision.verdict == "missed":
            pytest.fail(f"{text}: below the threshold; results are in {self.path}", pytrace=False)
        elif decision.verdict == "undecided":
            needed = _needed(decision)
            message = f"undecided: {text}: too few cases to decide; {needed}"
            self._undecide(message, depth=4)

    def _undecide(self, message: str, depth: int = 3) -> None:
        """Fail, warn or pass, as configured. `depth` is the stack level of the test, which the warning refers to."""
        __tracebackhide__ = True
        if self._undecided == "fail":
            pytest.fail(message, pytrace=False)
        elif self._undecided == "warn":
            warnings.warn(pytest.PytestWarning(message), stacklevel=depth)

    def not_worse_than(self, base: str | Path, *, margin: float = 0.02) -> None:
        """Check that this run is not worse than the results in `base` by more than the margin, and fail if it is."""
        __tracebackhide__ = True
        try:
            comparison = compare_results(self._root / base, self.path, margin=margin)
        except AgentvError as error:
            raise error.with_traceback(None) from error.__cause__
        judged = judge_gate(comparison, "noninferior", folder=self._root)
        if judged.code == NO_REGRESSION:
            return
        statistics = comparison.statistics
        change = f"{comparison.summary.meanDelta:+.3f}"
        interval: Any = statistics.interval
        if interval:
            low, high = interval
            change += f" (95%: {low:+.3f} to {high:+.3f})"
        text = f"the mean changed by {change} from {base}, margin {margin:g}, {plural(statistics.pairs, 'case')}"
        if judged.code == CANNOT_TELL:
            self._undecide(f"undecided: {text}: {judged.reason}")
        else:
            what = judged.reason or "worse"
            pytest.fail(f"{what}: {text}; see: agentv compare {base} {self.path}", pytrace=False)


def _is_bar(value: object) -> bool:
    return isinstance(value, int | float) and 0 <= value <= 1


def _needed(decision: Decision) -> str:
    """Describe how many cases would decide the check."""
    if decision.needed is None:
        return "the estimate equals the threshold"
    how_many = f"more than {MANY:,}"
    if decision.needed <= MANY:
        how_many = f"about {decision.needed:,}"
    return f"{how_many} cases would probably decide it"
