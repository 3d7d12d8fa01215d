"""`agentv eval --plan`: what a run would do, take and find. Nobody is asked."""

import msgspec

from agentv.cli.messages import print_lines
from agentv.formats.printable import printable
from agentv.redact import clean
from agentv.report.forecast import forecast_lines
from agentv.run.evaluate import EvalOptions, forecast_evaluation


def print_plan(options: EvalOptions, form: str) -> None:
    """Print what a run would take, as text or as JSON; raise `AgentvError` if it could not start."""
    forecast = forecast_evaluation(options)
    if form == "json":
        plain = clean.values(msgspec.to_builtins(forecast))
        print_lines([msgspec.json.format(msgspec.json.encode(plain), indent=2).decode()])
    else:
        print_lines(map(printable, map(clean, forecast_lines(forecast))))
