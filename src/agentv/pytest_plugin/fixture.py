"""The fixture `agentv`: runs eval files inside of a test, and checks what they come to, with its uncertainty."""

import warnings
from pathlib import Path
from typing import Any, Unpack

import pytest

from agentv.compare.compare import compare_results
from agentv.compare.gate import CANNOT_TELL, PASS, exit_code
from agentv.errors import AgentvError, ConfigError
from agentv.pytest_plugin.runs import wait_for
from agentv.records import EvalResult
from agentv.results.runs import new_run_id
from agentv.results.summary import Summary
from agentv.run.api import EvalReport, Options, Paths, evaluate
from agentv.stats.decisions import Decision, decide

MANY = 10_000
"""Nobody writes more cases than that to decide a check."""


class Runner:
    """What the fixture is: called with eval files, it runs them."""

    def __init__(self, config: pytest.Config):
        self._root = config.rootpath
        self._undecided = str(config.getini("agentv_undecided"))

    def __call__(self, paths: Paths, **options: Unpack[Options]) -> "CheckedRun":
        """Run eval files, which are relative to pytest's root; the options are those of `agentv.evaluate`."""
        __tracebackhide__ = True
        listed = [paths] if isinstance(paths, str | Path) else paths
        rooted = [str(self._root / path) for path in listed]
        out = Path(options.get("out") or self._root / ".agentv" / "results" / f"eval_{new_run_id()}.jsonl")
        options["out"] = out
        out.parent.mkdir(parents=True, exist_ok=True)
        try:
            report = wait_for(lambda: evaluate(rooted, **options))
        except AgentvError as error:
            raise error.with_traceback(None) from error.__cause__  # the line of the test is what is wrong, not ours
        return CheckedRun(report, out, self._root, self._undecided)


class CheckedRun:
    """A run, and what may be demanded of it."""

    def __init__(self, report: EvalReport, path: Path, root: Path, undecided: str):
        self.results: tuple[EvalResult, ...] = report.results
        self.summary: Summary = report.summary
        self.path = path
        """The results file."""
        self._root, self._undecided = root, undecided

    def check(self, *, mean: float | None = None, pass_rate: float | None = None) -> None:
        """Demand that the mean score, or the share of cases that pass, reaches a bar with 95% confidence.

        Fail if it does not. If the cases are too few to tell, do what `agentv_undecided` says.
        """
        __tracebackhide__ = True
        if mean is None and pass_rate is None:
            raise ConfigError("check needs a bar", hint="check(mean=0.8), or check(pass_rate=0.9)")
        for what, bar in (("mean", mean), ("pass rate", pass_rate)):
            if bar is None:
                continue
            if not _is_bar(bar):
                raise ConfigError(f"the bar for the {what} is {bar!r}", hint="a bar is a number from 0 to 1")
            self._demand(self._decide(what, bar), what, bar)

    def _decide(self, what: str, bar: float) -> Decision:
        summary = self.summary
        if summary.mean is None:
            raise ConfigError("there are no results to check", hint="is there a case that fits what was asked for?")
        if what == "mean":
            return decide(summary.mean, summary.interval, summary.answered, bar)
        interval = summary.pass_at_interval(1) if summary.trials > 1 else None
        return decide(summary.pass_at(1), interval, summary.complete, bar)

    def _demand(self, found: Decision, what: str, bar: float) -> None:
        __tracebackhide__ = True
        low, high = found.interval
        errors = sum(result.error is not None for result in self.results)
        cases = _count(found.cases) + (f" (results that are errors: {errors})" if errors else "")
        text = f"{what} {found.estimate:.3f} (95%: {low:.3f} to {high:.3f}) of {cases}, bar {bar:g}"
        if found.verdict == "missed":
            pytest.fail(f"{text}: it is under the bar; results are in {self.path}", pytrace=False)
        elif found.verdict == "undecided":
            self._undecide(f"undecided: {text}: the cases are too few to tell; {_needed(found)}", depth=4)

    def _undecide(self, message: str, depth: int = 3) -> None:
        """Do what is set; a warning is about the line of the test, which called us so many calls ago."""
        __tracebackhide__ = True
        if self._undecided == "fail":
            pytest.fail(message, pytrace=False)
        elif self._undecided == "warn":
            warnings.warn(pytest.PytestWarning(message), stacklevel=depth)

    def not_worse_than(self, base: str | Path, *, margin: float = 0.02) -> None:
        """Demand that this run is not worse than the results in `base` by more than the margin."""
        __tracebackhide__ = True
        try:
            comparison = compare_results(self._root / base, self.path, margin=margin)
        except AgentvError as error:
            raise error.with_traceback(None) from error.__cause__
        found = comparison.statistics
        code = exit_code(comparison, "noninferior")
        if code == PASS:
            return
        interval: Any = found.interval
        between = f" (95%: {interval[0]:+.3f} to {interval[1]:+.3f})" if interval else ""
        change = f"the mean changed by {comparison.summary.meanDelta:+.3f}{between} from {base}"
        text = f"{change}, margin {margin:g}, {_count(found.pairs)}"
        if code == CANNOT_TELL:
            why = "; ".join(found.notes) or "the cases in both are too few to tell, or one run lacks some"
            self._undecide(f"undecided: {text}: {why}")
        else:
            pytest.fail(f"worse: {text}; see: agentv compare {base} {self.path}", pytrace=False)


def _is_bar(value: object) -> bool:
    return isinstance(value, int | float) and 0 <= value <= 1


def _needed(found: Decision) -> str:
    """Return how many cases would tell."""
    if found.needed is None:
        return "it is on the bar"
    how_many = f"about {found.needed:,}" if found.needed <= MANY else f"more than {MANY:,}"
    return f"{how_many} cases would probably tell"


def _count(cases: int) -> str:
    return "1 case" if cases == 1 else f"{cases} cases"
