"""Command-line flags for the options of a run, for all commands that run cases."""

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar, get_args

import click

from agentv.cli.help import GroupedOption
from agentv.cli.messages import print_message
from agentv.cli.params import PATH, Amount, target_names
from agentv.files.state import state_beside, state_folder
from agentv.option import GATES, GROUPS, NumberRange, OptionField
from agentv.redact import clean
from agentv.report.progress import progress_for
from agentv.results.formats import FORMATS
from agentv.run.options import EvalOptions, option_fields
from agentv.run.progress import Progress

F = TypeVar("F", bound=Callable[..., Any])
MAX_WORKERS = 50


def run_flags(function: F) -> F:
    """Add the flags of all options of a run to a command."""
    fields = sorted(option_fields().values(), key=lambda field: GROUPS.index(field.option.group))
    for field in reversed(fields):  # the last decorator comes first in the help
        function = run_flag(field.name)(function)
    return function


def run_flag(name: str, **settings: Any) -> Callable[[F], F]:
    """Return a decorator that adds the flag of one run option. `settings` for click override those of the field."""
    field = option_fields()[name]
    merged: dict[str, Any] = {
        "help": field.option.help,
        "group": field.option.group,
        "metavar": field.option.metavar,
        **_settings(field),
        **SPECIAL.get(name, {}),
        **settings,
    }
    return click.option(field.option.flag, name, cls=GroupedOption, **merged)


def _settings(field: OptionField) -> dict[str, Any]:
    """Return the settings of click that follow from the type of a field."""
    types = (field.type, *get_args(field.type))
    if bool in types:
        return _flag_settings(field)
    if field.type == tuple[str, ...]:
        return {"multiple": True}
    if Path in types:
        return {"type": PATH}
    if int in types:
        return {"type": _whole_numbers(field.option.bounds), "default": field.default}
    if float in types:
        return {"type": _numbers(field.option.bounds), "default": field.default}
    return {}


def _flag_settings(field: OptionField) -> dict[str, Any]:
    if field.default:
        return {"is_flag": True, "callback": _negate}
    return {"is_flag": True}


def _negate(_ctx: click.Context, _param: click.Parameter, value: bool) -> bool:
    return not value


def _whole_numbers(bounds: NumberRange | None) -> click.IntRange:
    if bounds is None:
        return click.IntRange()
    return click.IntRange(min=bounds.low)


def _numbers(bounds: NumberRange | None) -> Amount:
    if bounds is None:
        return Amount()
    return Amount(min=bounds.low, min_open=bounds.is_open)


def _workers(_ctx: click.Context, _param: click.Parameter, value: str | None) -> int | None:
    """Return a number from 1 to `MAX_WORKERS`. Warn and return 1 for anything that is not a number."""
    if value is None:
        return None
    try:
        count = int(value)
    except ValueError:
        print_message(f"warning: invalid value for --workers: {value!r} is not a number; using 1")
        return 1
    if not 1 <= count <= MAX_WORKERS:
        raise click.BadParameter(f"{count} is not in the range from 1 to {MAX_WORKERS}")
    return count


def _formats(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Return the completions of the value of `--output-format`."""
    return [name for name in FORMATS if name.startswith(incomplete)]


SPECIAL: dict[str, dict[str, Any]] = {
    "target": {"shell_complete": target_names},
    "output_format": {"shell_complete": _formats},
    "collect_port": {"type": click.IntRange(1, 65535)},
    "workers": {"type": str, "default": None, "callback": _workers},
}
"""The settings of click that do not follow from the type of a field."""


def gate_flags(function: F) -> F:
    """Add the flags of `Gates` to a command."""
    fail_under = click.option(
        "--fail-under",
        cls=GroupedOption,
        group=GATES,
        type=Amount(min=0, max=1),
        metavar="MEAN",
        help="Exit with code 1 if the mean score is below this value.",
    )
    min_pass_rate = click.option(
        "--min-pass-rate",
        cls=GroupedOption,
        group=GATES,
        type=Amount(min=0, max=1),
        metavar="RATE",
        help="Exit with code 1 if the pass rate is below this value.",
    )
    return fail_under(min_pass_rate(function))


def options_of(values: Mapping[str, Any]) -> EvalOptions:
    """Return the options of a run from the values of its flags, keyed by field name.

    From now on until the command ends, state is kept in the project of the eval files.
    """
    state = state_beside(values["paths"])
    click.get_current_context().with_resource(state)
    return EvalOptions.of(
        {
            **values,
            "results_folder": state_folder("results"),
            "runs_folder": state_folder("runs"),
            "command": ("agentv", *sys.argv[1:]),
        }
    )


def progress_display(*, is_quiet: bool) -> Progress:
    """Return a progress display, or one that prints nothing with `is_quiet`."""
    if is_quiet:
        return Progress()
    return progress_for(clean)
