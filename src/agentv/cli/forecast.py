"""`agentv eval --plan`: estimate a run without calling any target or judge."""

import msgspec

from agentv.budget.preview import forecast_evaluation
from agentv.cli.messages import print_json, print_lines
from agentv.files.printable import printable
from agentv.redact import clean
from agentv.report.forecast import forecast_lines
from agentv.run.options import EvalOptions


def print_forecast(options: EvalOptions, form: str) -> None:
    """Print the estimate for a run as text or JSON. Raise `AgentvError` if the run could not start."""
    forecast = forecast_evaluation(options)
    if form == "json":
        print_json(clean.values(msgspec.to_builtins(forecast)))
        return
    print_lines([printable(clean(line)) for line in forecast_lines(forecast)])
