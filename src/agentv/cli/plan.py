"""`agentv eval --plan`: estimate a run without calling any target or judge."""

import msgspec

from agentv.cli.messages import print_json, print_lines
from agentv.formats.printable import printable
from agentv.redact import clean
from agentv.report.forecast import forecast_lines
from agentv.run.evaluate import EvalOptions, forecast_evaluation


def print_plan(options: EvalOptions, form: str) -> None:
    """Print the forecast of a run as text or JSON. Raise `AgentvError` if the run cannot start."""
    forecast = forecast_evaluation(options)
    if form == "json":
        print_json(clean.values(msgspec.to_builtins(forecast)))
        return
    print_lines([printable(clean(line)) for line in forecast_lines(forecast)])
