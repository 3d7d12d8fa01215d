"""Builds the evaluators of a case from their settings: while a run is planned, to find errors, and when it starts."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, NamedTuple, TypeVar, cast

import msgspec
from msgspec import Meta

from agentv.cases.origin import Origin, OriginFinder, case_problem
from agentv.errors import ConfigError, MissingProgram, SettingError, closest, nearest
from agentv.evaluators import evaluator_type, open_evaluator
from agentv.evaluators.configs import configs_of
from agentv.evaluators.judging.payload import reference_answer
from agentv.evaluators.judging.target import JudgeSource, NeededJudges
from agentv.evaluators.score import (
    CaseEvaluators,
    CaseSettings,
    ConfiguredEvaluator,
    Dependencies,
    DryRunEvaluator,
    scoring_settings,
)
from agentv.evaluators.variables import fill_settings
from agentv.files.conversion import ACCEPTS, UNKNOWN_FIELD, Misfit, convert, field_names, label
from agentv.files.encode import to_json, to_sorted_json
from agentv.files.folders import code_folders
from agentv.files.yaml import Steps
from agentv.log import warn
from agentv.placeholders import KEEP, VARS, UnknownName, lookup
from agentv.protocols import Evaluator, EvaluatorSettings, JudgeTarget, WorkspaceUse
from agentv.records import EvalCase, Json, PassRule, Problem, Severity, Threshold
from agentv.targets.find import find_targets

MAX_CACHED = 256
S = TypeVar("S", bound=msgspec.Struct)


class _Key(NamedTuple):
    """The key under which cases share evaluators."""

    configs: bytes
    file: Path
    pass_rule: PassRule
    target: str
    variables: bytes = b""
    """The variables of the case, if the settings or a prompt name any."""

    def of(self, case: EvalCase) -> "_Key":
        """Return the key with the variables of a case."""
        return self._replace(variables=to_sorted_json(case.vars))


class CommonSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings that evaluators of all types have."""

    type: Annotated[str, Meta(min_length=1)]
    name: Annotated[str, Meta(min_length=1)] | None = None
    weight: Annotated[float, Meta(ge=0)] = 1.0
    required: Annotated[
        bool | Threshold,
        Meta(extra={ACCEPTS: "true, false, or a number greater than 0 and at most 1"}),
    ] = False
    """Fail the case unless this evaluator passes, or unless its score is at least this number."""
    negate: bool = False
    """Invert the score. Types with a `negate` setting of their own, such as `contains`, describe it there."""


COMMON_NAMES = frozenset(CommonSettings.__struct_fields__)


class InvalidEvaluators(ConfigError):
    """The evaluators of a case cannot be built. `errors` has every problem; the message is that of the first."""

    def __init__(self, errors: Sequence[ConfigError]):
        first = errors[0]
        super().__init__(
            first.message,
            file=first.file,
            line=first.line,
            column=first.column,
            hint=first.hint,
        )
        self.errors = errors


class _LastBuilt(NamedTuple):
    """The evaluators that were built last, and the objects of the case that they were built from."""

    evaluators: object
    file: object
    pass_rule: PassRule
    target: str
    built: CaseEvaluators


class EvaluatorBuilder:
    """Builds the evaluators of cases; cases with equal settings share them. Each warning is reported once."""

    def __init__(
        self,
        judges: JudgeSource | None = None,
        *,
        dry_run: bool = False,
        only_check: bool = False,
        warn: Callable[[Problem], None] = warn,
        targets: Path | None = None,
    ):
        """Build evaluators with judges from `judges`; `targets` is the targets file that the user named, if any.

        With `only_check`, the user's Python code is checked but not imported, and nothing can be scored.
        """
        self.judge_source = judges or NeededJudges()
        self.origins = OriginFinder()
        self.needs_workspace = False
        """Whether an evaluator was built that requires a workspace."""
        self._dry_run = dry_run
        self._only_check = only_check
        self._warn = warn
        self._warned: set[Problem] = set()
        self._built: dict[_Key, CaseEvaluators] = {}
        self._failed: dict[_Key, InvalidEvaluators] = {}
        self._using_variables: set[_Key] = set()
        """The keys, without variables, of evaluators that depend on those of their case."""
        self._last: _LastBuilt | None = None
        # Targets that run in this process may change the current folder later.
        self._current_folder = Path.cwd()
        self._targets = None
        if targets is not None:
            self._targets = targets.absolute()

    def build(self, case: EvalCase, target: str) -> CaseEvaluators:
        """Return the evaluators of a case; raise `InvalidEvaluators` if their settings cannot be used."""
        evaluators = case.execution.evaluators
        is_plain = bool(evaluators) and not case.rubrics
        last = self._last
        # Most cases share the evaluators of their file: identity checks are much faster than computing the key.
        if (
            is_plain
            and last is not None
            and last.evaluators is evaluators
            and last.file is case.file
            and last.pass_rule == case.pass_rule
            and last.target == target
        ):
            return last.built
        configs = configs_of(case)
        encoded = to_json(configs)
        key = _Key(encoded, case.file.path, case.pass_rule, target)
        if key in self._failed:
            raise self._failed[key]
        if key in self._using_variables:
            key = key.of(case)
        if key not in self._built:
            built = self._build_all(configs, key, case, target)
            if built.uses_variables:
                # From now on, the keys of cases with these settings include their variables.
                self._using_variables.add(key._replace(variables=b""))
                key = key.of(case)
            if len(self._built) >= MAX_CACHED:  # every case may have evaluators of its own
                self._built.clear()
            self._built[key] = built
        if is_plain and not key.variables:
            self._last = _LastBuilt(
                evaluators,
                case.file,
                case.pass_rule,
                target,
                self._built[key],
            )
        return self._built[key]

    def problems(self, case: EvalCase, target: str) -> list[Problem]:
        """Return all problems with the evaluators of a case, including a missing reference answer."""
        try:
            built = self.build(case, target)
        except InvalidEvaluators as invalid:
            return [Problem.of(error) for error in invalid.errors]
        names = built.need_reference
        if not names or reference_answer(case).strip():
            return []
        problem = case_problem(
            case,
            f"evaluator {names[0]!r} has no 'value', and the case has no reference answer",
            hint="set 'value' in the evaluator, or 'expected_output' in the case",
        )
        return [problem]

    def workspace_problems(self, case: EvalCase, target: str) -> tuple[Problem, ...]:
        """Return the problems with the evaluators of a case if its target has no workspace."""
        if not self.needs_workspace:
            return ()  # most files have no such evaluator
        try:
            return self.build(case, target).need_workspace
        except InvalidEvaluators:
            return ()  # `problems` reports them

    def case_settings(self, case: EvalCase, target: str) -> tuple[CaseSettings, ...]:
        """Return the settings of the evaluators of a case that may not fit it."""
        try:
            return self.build(case, target).case_settings
        except InvalidEvaluators:
            return ()  # `problems` reports them

    def setting_problems(self, case: EvalCase, target: str) -> list[Problem]:
        """Return all problems with the settings of the evaluators of a case."""
        try:
            self.build(case, target)
        except InvalidEvaluators as invalid:
            return [Problem.of(error) for error in invalid.errors]
        return []

    def _build_all(
        self,
        configs: Sequence[Json],
        key: _Key,
        case: EvalCase,
        target: str,
    ) -> CaseEvaluators:
        """Build every evaluator of a case; raise `InvalidEvaluators` with the errors of all of them."""
        built: list[ConfiguredEvaluator] = []
        errors: list[ConfigError] = []
        is_shared = True
        dependencies = Dependencies(
            fingerprints=[],
            judges=[],
            need_reference=[],
            use_workspace=[],
            use_state=[],
            need_workspace=[],
            case_settings=[],
            variables={},
        )
        for number, config in enumerate(configs):
            setting = _setting_of(case, number)
            context = _Context(self, case, target, setting, dependencies)
            try:
                built.append(context.build(config))
            except InvalidEvaluators as invalid:
                errors += invalid.errors
                if dependencies.variables or context.origin.case_id is not None:
                    is_shared = False
        if not errors:
            self._warn_without_weights(built, case)
            scoring = [scoring_settings(config) for config in configs]
            return CaseEvaluators(tuple(built), scoring, dependencies, case.pass_rule)
        failure = InvalidEvaluators(errors)
        if is_shared:
            # The error is in the file's settings: raise the same one for its other cases.
            self._failed[key] = failure
        raise failure

    def _warn_without_weights(self, built: Sequence[ConfiguredEvaluator], case: EvalCase) -> None:
        """Warn if no evaluator can decide whether a case passes: the run would cost money and give no verdict."""
        if not built or any(evaluator.weight or evaluator.required is not False for evaluator in built):
            return
        problem = Problem(
            message=f"case {case.id!r} cannot be judged: all its evaluators have weight 0, and none is required",
            file=case.file.path,
            line=case.line,
            column=1,
            hint="give one of them a weight, or set 'required'",
            severity="warning",
        )
        self.warn_once(problem)

    def open(self, settings: EvaluatorSettings, context: "_Context") -> Evaluator:
        """Return the evaluator with these settings; raise `ConfigError` if they cannot be used."""
        if self._only_check and settings.imports_code:
            settings.check(context)
            return cast(Evaluator, settings)  # never evaluated
        try:
            evaluator = open_evaluator(settings, context)
        except MissingProgram as error:
            if not self._only_check and not self._dry_run:
                raise
            context.warn(error.message, error.hint, error.steps)
            return DryRunEvaluator(f"dry run: {error.message}")
        if not self._dry_run:
            return evaluator
        if settings.workspace_use() in (WorkspaceUse.RUNS_IN_IT, WorkspaceUse.NEEDS_IT):
            return DryRunEvaluator("dry run: no workspace was created")
        if settings.asks_model:
            return DryRunEvaluator()
        return evaluator

    def code_folders(self, folder: Path) -> tuple[Path, ...]:
        """Return the folders that are searched for the code of evaluators, for the eval files in `folder`."""
        targets_file = None
        with suppress(ConfigError):  # a targets file is optional
            targets_file = find_targets(folder, self._targets)
        return code_folders(folder, targets_file, self._current_folder)

    def warn_once(self, problem: Problem) -> None:
        """Report a warning unless it was reported before."""
        if problem not in self._warned:
            self._warned.add(problem)
            self._warn(problem)


_REQUIRED_MEMBER = SettingError(
    "a member of a composite cannot be required",
    "required",
    hint="set 'required' on the composite, or use the aggregator 'all' or 'min'",
)


class _Setting(NamedTuple):
    """The field of a case that configures an evaluator, and the steps from there to the evaluator."""

    field: str
    steps: Steps = ()


class _Context:
    """The context in which one evaluator of a case is opened."""

    def __init__(
        self,
        builder: EvaluatorBuilder,
        case: EvalCase,
        target: str,
        setting: _Setting,
        dependencies: Dependencies,
    ):
        """Open the evaluator that `setting` configures; add what it depends on to `dependencies`."""
        self.folder = Path(case.file.path).parent.absolute()
        self._builder = builder
        self._case = case
        self._target = target
        self._setting = setting
        self._dependencies = dependencies
        self._inner_count = 0

    @cached_property
    def code_folders(self) -> tuple[Path, ...]:
        return self._builder.code_folders(self.folder)

    @cached_property
    def origin(self) -> Origin:
        """Where the evaluator is configured."""
        if self._added is not None:
            return self._added[0]
        return self._builder.origins.find(self._case, self._setting.field)

    @cached_property
    def _added(self) -> tuple[Origin, int] | None:
        """Where the evaluator is configured if it is one of `add_evaluators`, and its position there."""
        if self._setting.field != "evaluators":
            return None
        return self._builder.origins.find_added(self._case, int(self._setting.steps[0]))

    def judge(self, name: str | None) -> JudgeTarget:
        judge = self._builder.judge_source.judge(self._case, self._target, name)
        self._dependencies.judges.append(judge)
        return judge

    def variable(self, name: str) -> Any:
        if not name.startswith(f"{VARS}."):
            return KEEP
        self._dependencies.variables[name] = None  # if there is none, other cases may have it
        try:
            self._dependencies.variables[name] = lookup(name, VARS, self._case.vars)
        except UnknownName as unknown:
            if self.origin.case_id is None:
                raise unknown.of_case(self._case.id) from None
            raise
        return self._dependencies.variables[name]

    def warn(
        self,
        message: str,
        hint: str = "",
        at: Steps = (),
    ) -> None:
        problem = self._problem(message, at, hint, "warning")
        self._builder.warn_once(problem)

    def evaluator(self, config: Json) -> ConfiguredEvaluator:
        """Return an evaluator that is nested in the one being opened."""
        steps = (*self._setting.steps, "evaluators", self._inner_count)
        self._inner_count += 1
        inner_context = _Context(
            self._builder,
            self._case,
            self._target,
            _Setting(self._setting.field, steps),
            self._dependencies,
        )
        if config.get("required", False) is not False:
            raise InvalidEvaluators([inner_context.located(_REQUIRED_MEMBER)])
        return inner_context.build(config)

    def build(self, config: Json) -> ConfiguredEvaluator:
        """Return the evaluator; raise `InvalidEvaluators`, with the location of each error, if it cannot be built."""
        try:
            if b"vars." in to_json(config):
                config = self._fill(config)
            common = self._convert(config, CommonSettings)
            type_ = evaluator_type(common.type)
            self._warn_of_typos(config, type_)
            name = common.name or common.type
            settings = self._convert(_own_settings(config, type_), type_)
            evaluator = self._builder.open(settings, self)
        except InvalidEvaluators:
            raise  # already has locations: the settings do not fit their types, or a nested evaluator is invalid
        except ConfigError as error:
            raise InvalidEvaluators([self.located(error)]) from None
        self._add_dependencies(name, settings, evaluator)
        is_negated = common.negate and not _is_replaced(evaluator)
        negates_itself = _negates_itself(type_)
        place = (self._setting.field, *self._setting.steps)
        return ConfiguredEvaluator(
            name=name,
            type=common.type,
            weight=common.weight,
            evaluator=evaluator,
            required=common.required,
            is_negated=is_negated and not negates_itself,
            negates_itself=is_negated and negates_itself,
            negated_miss=type_.negated_miss,
            place="/".join(map(str, place)),
        )

    def _fill(self, config: Json) -> Json:
        """Return the settings with the variables of the case."""
        kind = self._convert({"type": config.get("type")}, CommonSettings)
        config, misfits = fill_settings(config, evaluator_type(kind.type), self.variable)
        if misfits:
            raise self._invalid(misfits)
        return config

    def _convert(self, config: Json, type_: type[S]) -> S:
        """Return the settings as a struct; raise `InvalidEvaluators` if they do not fit its types."""
        converted = convert(config, type_)
        if isinstance(converted, list):
            raise self._invalid([_with_all_names(misfit, type_) for misfit in converted])
        return converted

    def _warn_of_typos(self, config: Json, type_: type[EvaluatorSettings]) -> None:
        """Warn about settings for the user's code that are probably typos of settings that all evaluators have."""
        if type_.passes_on is None:
            return
        for name in config.keys() - field_names(type_) - COMMON_NAMES:
            close = closest(name, COMMON_NAMES, cutoff=0.8)
            if close is not None:
                self.warn(f"{name}: passed on in 'config'", f"did you mean {close!r}?", (name,))

    def _add_dependencies(
        self,
        name: str,
        settings: EvaluatorSettings,
        evaluator: Evaluator,
    ) -> None:
        """Record what the scores of an evaluator depend on."""
        # Some evaluators know more than their settings, such as the parameters of a function.
        workspace_use = getattr(evaluator, "workspace_use", settings.workspace_use)
        uses_state = getattr(evaluator, "uses_state", settings.uses_state)
        use = workspace_use()
        if use is not WorkspaceUse.NONE:
            self._dependencies.use_workspace.append(name)
        if uses_state():
            self._dependencies.use_state.append(name)
        if use is WorkspaceUse.NEEDS_IT:
            self._builder.needs_workspace = True
            problem = self._missing_workspace(name)
            self._dependencies.need_workspace.append(problem)
        if settings.needs_reference():
            self._dependencies.need_reference.append(name)
        overrides_unmet = type(settings).unmet is not EvaluatorSettings.unmet
        if overrides_unmet:  # otherwise they fit every case
            self._dependencies.case_settings.append(CaseSettings(settings, self.located))
        fingerprint = evaluator.fingerprint()
        if fingerprint is not None:
            self._dependencies.fingerprints.append(fingerprint)

    def _missing_workspace(self, name: str) -> Problem:
        """Return the problem to report if the target has no workspace."""
        message = f"evaluator {name!r} needs the agent's workspace, but target {self._target!r} has none"
        hint = "set workspace_template in the target, or set cwd to another folder, such as ./workspace"
        return self._problem(message, ("cwd",), hint)

    def _invalid(self, misfits: Sequence[Misfit]) -> InvalidEvaluators:
        """Return the error for settings that do not fit their types."""
        errors = []
        for misfit in misfits:
            steps = (*self._base, *misfit.steps)
            problem = self.origin.problem(
                steps,
                label(steps),
                misfit.message,
                misfit.hint,
            )
            errors.append(ConfigError.of(problem))
        return InvalidEvaluators(errors)

    def located(self, error: ConfigError) -> ConfigError:
        """Return the error with its location, unless it has one already."""
        if error.file:
            return error
        steps: Steps = ()
        if isinstance(error, SettingError):
            steps = error.steps
        problem = self._problem(error.message, steps, error.hint)
        return ConfigError.of(problem)

    def _problem(
        self,
        message: str,
        at: Steps,
        hint: str,
        severity: Severity = "error",
    ) -> Problem:
        """Return a problem with this evaluator, located at the setting that the steps `at` lead to."""
        steps = (*self._base, *at)
        return self.origin.problem(
            steps,
            label(self._base),
            message,
            hint,
            severity,
        )

    @property
    def _base(self) -> Steps:
        """The steps to the settings of this evaluator, from the case or from the top of the file."""
        if self._setting.field == "rubrics":
            # The field `rubrics` of the case is at the same time the setting `rubrics` of this evaluator.
            return self.origin.steps[:-1]
        if self._added is not None:
            return (*self.origin.steps, self._added[1], *self._setting.steps[1:])
        return (*self.origin.steps, *self._setting.steps)


def _setting_of(case: EvalCase, number: int) -> _Setting:
    """Return the setting that configures the evaluator of a case with this number; see `configs_of`."""
    if number < len(case.evaluators):
        return _Setting("evaluators", (number,))
    if case.rubrics:
        return _Setting("rubrics")
    return _Setting("evaluator")


def _with_all_names(misfit: Misfit, type_: type[msgspec.Struct]) -> Misfit:
    """Return a misfit whose hint also considers the settings common to all evaluators."""
    if misfit.message != UNKNOWN_FIELD or len(misfit.steps) != 1:
        return misfit
    known = field_names(type_) | COMMON_NAMES
    return misfit._replace(hint=nearest(str(misfit.steps[0]), known))


def _own_settings(config: Json, type_: type[EvaluatorSettings]) -> Json:
    """Return the settings for one type, without those that all types have.

    If the type has a `passes_on` field, settings that it does not declare are collected there.
    """
    excluded = set(COMMON_NAMES)
    if _negates_itself(type_):
        excluded.remove("negate")
    settings = {name: value for name, value in config.items() if name not in excluded}
    rest_field = type_.passes_on
    if rest_field is None:
        return settings
    fields = field_names(type_)
    declared: Json = {}
    undeclared: Json = {}
    for name, value in settings.items():
        if name in fields:
            declared[name] = value
        else:
            undeclared[name] = value
    rest = declared.get(rest_field) or {}
    # If the field has the wrong type, leave it alone: the conversion reports it.
    if undeclared and isinstance(rest, dict):
        declared[rest_field] = {**rest, **undeclared}
    return declared


def _is_replaced(evaluator: Evaluator) -> bool:
    """Return whether a dry run replaces an evaluator or one of its members. Such a score cannot be inverted."""
    if isinstance(evaluator, DryRunEvaluator):
        return True
    members = getattr(evaluator, "inner", ())
    return any(_is_replaced(member.evaluator) for member in members)


def _negates_itself(type_: type[EvaluatorSettings]) -> bool:
    """Return whether an evaluator type has a `negate` setting of its own, with its own messages for hits and misses."""
    return "negate" in field_names(type_)
