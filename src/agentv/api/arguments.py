"""The arguments of the public functions -> the options of a run, with the checks and messages of the command line."""

import inspect
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar, get_args

from agentv.cases.objects import CaseDefaults, CaseObjects, DefaultEvaluators
from agentv.errors import ConfigError
from agentv.evaluators.functions import default_evaluators, evaluator_settings, function_spec
from agentv.files.conversion import convert, label
from agentv.files.state import state_folder
from agentv.files.yaml import Steps
from agentv.hook_settings import Hooks
from agentv.log import warn
from agentv.option import OptionField
from agentv.records import EvalCase, Problem
from agentv.run.exit_code import Gates
from agentv.run.option_checks import check
from agentv.run.options import EvalOptions, option_fields
from agentv.stats.metrics import MetricSpec
from agentv.versions.modules import reload_changed_modules

Paths = str | Path | Sequence[str | Path]
Cases = Iterable[object]
"""Mappings in the case format and `EvalCase`s.

The type is `object` because type checkers infer `list[object]` for many lists of dictionaries.
"""
Target = str | Callable[..., Any] | None
Evaluators = Sequence[Mapping[str, Any] | Callable[..., Any]]
Metrics = Sequence[Mapping[str, Any] | Callable[..., Any]]
Arguments = Mapping[str, Any]
"""The arguments of a public function by name."""
S = TypeVar("S")
RESULTS_HINT = "pass a results file, or a list of the files of all shards"
_BARE_TYPES: dict[type, str] = {
    bool: "expected True or False",
    str: "expected a string",
    Path: "expected a path",
    tuple: "expected a string or a list of strings",
}


def eval_options(arguments: Arguments) -> EvalOptions:
    """Return the options of a run. Raise `ConfigError` for invalid values."""
    reload_changed_modules()  # before the versions of functions are computed
    values: dict[str, Any] = {}
    for name, field in option_fields().items():
        if name != "target":
            values[name] = _value_of(field, arguments[name])
    values.update(_case_values(arguments))
    values.update(_target_values(arguments))
    values["defaults"] = CaseDefaults(
        evaluators=DefaultEvaluators(default_evaluators(arguments["evaluators"])),
        metrics=_metrics(arguments["metrics"]),
        hooks=_hooks(arguments["hooks"]),
    )
    if values["out"] is not None:
        values["runs_folder"] = state_folder("runs")
    values["reloads_modules"] = True
    values["needs_keys"] = True
    options = EvalOptions.of(values)
    check(options)
    return options


def gates_of(arguments: Arguments) -> Gates:
    """Return what the results of a run have to reach. Raise `ConfigError` for a value that is not from 0 to 1."""
    gates = {}
    for name in Gates._fields:
        value = arguments[name]
        if value is not None and not _is_share(value):
            raise ConfigError(f"{name} is {value!r}", hint="expected a number from 0 to 1")
        gates[name] = value
    return Gates(**gates)


def _is_share(value: Any) -> bool:
    """Return whether a value is a number from 0 to 1."""
    if isinstance(value, bool):
        return False
    if not isinstance(value, int | float):
        return False
    return 0 <= value <= 1


def path_texts(paths: Any) -> tuple[str, ...]:
    """Return paths as text. Raise `ConfigError` for anything else."""
    if paths is None:
        return ()
    if isinstance(paths, str | Path):
        return (str(paths),)
    if not isinstance(paths, list | tuple | set | frozenset):
        raise ConfigError(f"paths is {_described(paths)}", hint=_hint_for(paths))
    texts = []
    for path in paths:
        if not isinstance(path, str | Path):
            raise ConfigError(f"paths contains {_described(path)}", hint=_hint_for(path))
        texts.append(str(path))
    return tuple(texts)


def _hint_for(value: Any) -> str:
    """Return what to do with a value that is not a path."""
    if isinstance(value, EvalCase | Mapping):
        return "pass cases with cases=[...]"
    if hasattr(value, "columns"):
        return "pass its rows with cases=agentv.cases_from(rows, input=COLUMN)"
    return "pass eval files, folders or globs; pass cases with cases=[...]"


def _case_values(arguments: Arguments) -> Iterator[tuple[str, Any]]:
    """Yield the options that say which cases run."""
    paths = path_texts(arguments["paths"])
    cases = arguments["cases"]
    yield "paths", paths
    if cases is None:
        if arguments["paths"] is None:
            raise ConfigError("no cases given", hint="pass eval files as the first argument, or cases=[...]")
        if not paths:
            raise ConfigError("no eval files given", hint="pass eval files, folders or globs")
        return
    if arguments["paths"] is not None:
        raise ConfigError("paths and cases are both given", hint="pass either eval files or cases=[...]")
    dataset = arguments["dataset"]
    if not isinstance(dataset, str) or not dataset:
        raise ConfigError(f"dataset is {dataset!r}", hint="pass the name of the dataset, a string")
    yield "cases", CaseObjects(cases, dataset, evaluator_settings)


def _metrics(given: Any) -> tuple[MetricSpec, ...]:
    """Return the metrics that are functions, or mappings with one."""
    if given is None:
        return ()
    if callable(given) or isinstance(given, Mapping | str):
        raise ConfigError(f"metrics is {_described(given)}", hint="pass a list, even if there is only one metric")
    found = []
    for index, metric in enumerate(given):
        settings = metric
        if callable(metric):
            class_name = type(metric).__name__
            name = getattr(metric, "__name__", class_name)
            settings = {"name": name, "function": metric}
        hint = "pass a function, or {'name': ..., 'function': ...}"
        settings = _with_specs(settings, f"metrics[{index}]", hint)
        spec = _converted(settings, MetricSpec, ("metrics", index))
        found.append(spec)
    return tuple(found)


def _hooks(given: Any) -> Hooks | None:
    """Return the hooks in a mapping of their names to functions, commands or settings."""
    if given is None:
        return None
    names = ", ".join(Hooks.__struct_fields__)
    if not isinstance(given, Mapping):
        raise ConfigError(f"hooks is {_described(given)}", hint=f"pass a mapping with some of {names}")
    hooks = {}
    for name, hook in given.items():
        settings = hook
        if callable(hook):
            settings = {"function": hook}
        if isinstance(settings, Mapping):
            settings = _with_specs(settings, f"hooks.{name}", "pass a function")
        hooks[name] = settings
    return _converted(hooks, Hooks, ("hooks",))


def _with_specs(settings: Any, where: str, hint: str) -> dict[str, Any]:
    """Return settings with a `FunctionSpec` in place of a function."""
    if not isinstance(settings, Mapping):
        raise ConfigError(f"{where} is {_described(settings)}", hint=hint)
    found = dict(settings)
    function = found.get("function")
    if callable(function):
        found["function"] = function_spec(function)
    return found


def _converted(settings: Any, type_: type[S], steps: Steps) -> S:
    """Return settings as a struct. Raise `ConfigError` for the first invalid one."""
    converted = convert(settings, type_)
    if not isinstance(converted, list):
        return converted
    first = converted[0]
    where = label((*steps, *first.steps))
    raise ConfigError(f"{where}: {first.message}", hint=first.hint)


def _target_values(arguments: Arguments) -> Iterator[tuple[str, Any]]:
    """Yield the options of the target: a function with its version and configuration, or a name."""
    target = arguments["target"]
    version = arguments["version"]
    config = arguments["config"]
    is_version = isinstance(version, str) and version != ""
    if version is not None and not is_version:
        raise ConfigError(f"version is {version!r}", hint="pass a string, such as '2' or a commit")
    if config is not None and not isinstance(config, Mapping):
        raise ConfigError(f"config is {config!r}", hint="pass a mapping, such as {'k': 3}")
    if callable(target):
        yield "function", target
        yield "version", version
        if config is None:
            return
        if not _takes_config(target):
            message = "config is ignored: the function has no parameter 'config'"
            warn(Problem(message=message, severity="warning"))
            return
        yield "config", dict(config)
        return
    if target is not None and not isinstance(target, str):
        raise ConfigError(f"target is {target!r}", hint="pass a function or the name of a target")
    yield "target", target
    if version is not None:
        raise ConfigError(
            "version is set, but target is not a function",
            hint="for a target in a targets file, list the files it depends on in 'depends_on'",
        )
    if config is not None:
        raise ConfigError(
            "config is set, but target is not a function",
            hint="for a target in a targets file, set 'config' there",
        )


def _takes_config(function: Callable[..., Any]) -> bool:
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return False
    return "config" in signature.parameters


def _value_of(field: OptionField, value: Any) -> Any:
    """Return the value of an option; raise `ConfigError` for one of another type. Numbers are checked later."""
    types_ = _types_of(field.type)
    if value is None and type(None) in types_:
        return None
    if tuple in types_:
        return texts(field.name, value)
    if Path in types_ and isinstance(value, str | Path):
        return Path(value)
    bounds = field.option.bounds
    if bounds is not None:
        if isinstance(value, bool):
            hint = bounds.hint("")  # as for anything that is not a number
            raise ConfigError(f"{field.name} is {value!r}", hint=hint)
        return value
    hints = []
    for type_ in types_:
        is_bool_for_int = type_ is int and isinstance(value, bool)
        if isinstance(value, type_) and not is_bool_for_int:
            return value
        if type_ is not type(None):
            hint = _BARE_TYPES.get(type_, f"expected {type_.__name__}")
            hints.append(hint)
    raise ConfigError(f"{field.name} is {value!r}", hint=" or ".join(hints))


def _types_of(hint: Any) -> list[type]:
    """Return the types that a field may have."""
    choices = get_args(hint)
    if not isinstance(hint, types.UnionType):
        choices = (hint,)
    found = []
    for choice in choices:
        origin = getattr(choice, "__origin__", choice)
        found.append(origin)
    return found


def texts(name: str, value: Any) -> tuple[str, ...]:
    """Return the values of an option that takes one or several strings."""
    if value is None:
        return ()
    if isinstance(value, str):
        return (value,)
    if isinstance(value, Iterable) and not isinstance(value, Mapping):
        found = tuple(value)
        if all(isinstance(text, str) for text in found):
            return found
    raise ConfigError(f"{name} is {value!r}", hint=_BARE_TYPES[tuple])


def result_paths(name: str, value: Any, hint: str = RESULTS_HINT) -> list[Path]:
    """Return the results files of a run, given as one path or as those of its shards."""
    paths = value
    if isinstance(value, str | Path):
        paths = [value]
    if not isinstance(paths, list | tuple):
        raise ConfigError(f"{name} is {_described(value)}", hint=hint)
    if not paths:
        raise ConfigError(f"{name} is empty", hint=hint)
    found = []
    for path in paths:
        if not isinstance(path, str | Path):
            raise ConfigError(f"{name} contains {_described(path)}", hint=hint)
        found.append(Path(path))
    return found


def _described(value: object) -> str:
    if value is None:
        return "None"
    if isinstance(value, str | int | float):
        return repr(value)
    return f"a {type(value).__name__}"
