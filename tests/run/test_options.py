"""The options of a run: each is declared once, and is available as a flag and a keyword."""

import pickle
from collections import Counter
from inspect import signature
from pathlib import Path
from typing import Any, get_args, get_type_hints

import msgspec
import pytest

import agentv.cli.eval as eval_command
from agentv import evaluate, evaluate_sync, plan, stream
from agentv.api.keywords import in_keywords
from agentv.errors import ConfigError
from agentv.run.option_checks import check
from agentv.run.options import EvalOptions, RunOptions, option_fields


def parts(struct: type[msgspec.Struct]) -> list[str]:
    """The names of the fields of a record and of its parts."""
    found = []
    for name, type_ in get_type_hints(struct).items():
        if isinstance(type_, type) and issubclass(type_, msgspec.Struct):
            found += parts(type_)
        else:
            found.append(name)
    return found


def types(hint: Any) -> set[Any]:
    return set(get_args(hint)) or {hint}


def test_every_option_is_a_flag_and_a_keyword_of_the_same_name() -> None:
    own = {
        "paths",
        "cases",
        "evaluators",
        "config",
        "version",
        "dataset",
        "hooks",
        "metrics",
        "progress",
        "fail_under",
        "min_pass_rate",
    }
    assert signature(evaluate).parameters.keys() - own == option_fields().keys()
    flags = {param.name: param.opts for param in eval_command.command.params}
    for name, field in option_fields().items():
        assert flags[name] == [field.option.flag]


def test_a_keyword_has_the_default_of_its_field_and_takes_every_value_that_it_may_have() -> None:
    keywords = get_type_hints(evaluate)
    for name, field in option_fields().items():
        parameter = signature(evaluate).parameters[name]
        assert parameter.kind is parameter.KEYWORD_ONLY
        assert parameter.default == field.default, name
        if field.default != ():  # a keyword takes any sequence, and a single text
            assert types(field.type) <= types(keywords[name]), name


def test_all_functions_that_run_cases_have_the_same_parameters() -> None:
    parameters = dict(signature(evaluate).parameters)
    assert dict(signature(evaluate_sync).parameters) == parameters
    del parameters["progress"]
    assert dict(signature(stream).parameters) == parameters
    assert dict(signature(plan).parameters) == parameters
    kinds = {parameter.kind for name, parameter in parameters.items() if name != "paths"}
    assert {kind.name for kind in kinds} == {"KEYWORD_ONLY"}


def test_no_two_parts_have_a_field_of_the_same_name() -> None:
    counts = Counter(parts(EvalOptions))
    assert [name for name, count in counts.items() if count > 1] == []


def test_values_go_to_the_part_that_has_the_field() -> None:
    options = EvalOptions.of({"paths": ("a",), "limit": 3, "workers": 2, "collect_port": 80, "by": ("dataset",)})
    assert options.selection.limit == 3
    assert options.run.workers == 2
    assert options.run.collect.collect_port == 80
    assert options.by == ("dataset",)
    with pytest.raises(TypeError, match="unknown option 'worker'"):
        EvalOptions.of({"paths": ("a",), "worker": 2})


def test_a_dry_run_uses_no_cache_and_collects_no_traces() -> None:
    values = {"paths": ("a",), "cache": True, "collect_traces": True}
    assert EvalOptions.of(values).run_options("id").cache
    dry = EvalOptions.of({**values, "dry_run": True}).run_options("id")
    assert (dry.cache, dry.collect.collect_traces, dry.run_id) == (False, False, "id")


def test_the_options_of_a_worker_can_be_pickled() -> None:
    options = RunOptions(workers=3, run_id="id")
    assert pickle.loads(pickle.dumps(options)) == options


def problem(options: EvalOptions) -> str:
    """The message of the check, if there is one."""
    try:
        check(options)
    except ConfigError as error:
        return error.message
    return ""


@pytest.mark.parametrize(
    ("values", "flags", "keywords"),
    [
        ({"rerun_failed": True}, "--failed needs --resume", "rerun_failed=True needs resume=True"),
        ({"keep_stale": True}, "--keep-stale needs --resume", "keep_stale=True needs resume=True"),
        (
            {"resume": True},
            "--resume needs --out, the results file to resume",
            "resume=True needs out, the results file to resume",
        ),
        (
            {"resume": True, "out": Path("-")},
            "--resume needs a results file, but --out is stdout",
            "resume=True needs a results file, but out is stdout",
        ),
        (
            {"collect_port": 80},
            "--collect-port needs --collect-traces",
            "collect_port needs collect_traces=True",
        ),
        (
            {"collect_grace": 1},
            "--collect-grace needs --collect-traces",
            "collect_grace needs collect_traces=True",
        ),
        ({"dry_run_delay": 2000.0}, "--dry-run-delay needs --dry-run", "dry_run_delay needs dry_run=True"),
        ({"dry_run_delay": 0.0}, "--dry-run-delay needs --dry-run", "dry_run_delay needs dry_run=True"),
        ({"dry_run_delay_min": 1.0}, "--dry-run-delay-min needs --dry-run", "dry_run_delay_min needs dry_run=True"),
        ({"dry_run_delay_max": 1.0}, "--dry-run-delay-max needs --dry-run", "dry_run_delay_max needs dry_run=True"),
        (
            {"junit": Path("x.xml")},
            "--junit needs --out, the results file to convert",
            "junit needs out, the results file to convert",
        ),
        (
            {"collect_traces": True, "collect_port": 80, "cluster": "local:2"},
            "--collect-port cannot be used with --cluster: each worker listens on its own port",
            "collect_port cannot be used with cluster: each worker listens on its own port",
        ),
        (
            {"max_cost": 1.0, "cluster": "local:2"},
            "--max-cost and --max-duration are not supported with --cluster",
            "max_cost and max_duration are not supported with cluster",
        ),
    ],
)
def test_conflicting_options(values: dict[str, Any], flags: str, keywords: str) -> None:
    options = EvalOptions.of({"paths": ("a",), **values})
    assert problem(options) == flags
    assert in_keywords(flags) == keywords
