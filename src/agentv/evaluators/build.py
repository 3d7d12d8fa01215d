"""Builds the evaluators of a case from their settings.

Evaluators are built while a run is planned, to find configuration errors and the judges that they need, and again when
the run starts.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, NamedTuple, TypeVar, cast

import msgspec
from msgspec import Meta

from agentv.cases.origin import Origin, OriginFinder
from agentv.errors import ConfigError, SettingError
from agentv.evaluators import evaluator_type, open_evaluator
from agentv.evaluators.score import CaseEvaluators, ConfiguredEvaluator, Dependencies, DryRunEvaluator
from agentv.formats.conversion import Misfit, convert, field_names, label
from agentv.formats.yaml import Steps
from agentv.judges.payload import reference_answer
from agentv.judges.program import MissingProgram
from agentv.judges.target import JudgeSource, NeededJudges
from agentv.notices import warn
from agentv.protocols import Evaluator, EvaluatorSettings, JudgeTarget, WorkspaceUse
from agentv.records import EvalCase, Json, Problem, Severity
from agentv.system.folders import code_folders
from agentv.targets.read import find_targets

MAX_CACHED = 256
S = TypeVar("S", bound=msgspec.Struct)
_Key = tuple[bytes, Path, str]
"""The settings, the eval file and the target: what cases must have in common to share their evaluators."""


class CommonSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings that evaluators of all types have."""

    type: Annotated[str, Meta(min_length=1)]
    name: Annotated[str, Meta(min_length=1)] | None = None
    weight: Annotated[float, Meta(ge=0)] = 1.0
    negate: bool = False
    """Invert the score. A type that has this setting itself, such as `contains`, handles it instead."""


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
    """The evaluators that were built last, and the case's objects that they were built for."""

    evaluators: object
    file: object
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
            and last.target == target
        ):
            return last.built
        configs = _configs(case)
        encoded = msgspec.json.encode(configs)
        key = (encoded, case.file.path, target)
        if key in self._failed:
            raise self._failed[key]
        if key not in self._built:
            built = self._build_all(configs, key, case, target)
            if len(self._built) >= MAX_CACHED:  # every case may have evaluators of its own
                self._built.clear()
            self._built[key] = built
        if is_plain:
            self._last = _LastBuilt(
                evaluators,
                case.file,
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
        problem = Problem(
            message=f"case {case.id!r}: evaluator {names[0]!r} has no 'value', and the case has no reference answer",
            file=case.file.path,
            line=case.line,
            column=1,
            hint="write 'value' in the evaluator, or 'expected_output' in the case",
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
            need_workspace=[],
        )
        for number, config in enumerate(configs):
            setting = _setting_of(case, number)
            context = _Context(self, case, target, setting, dependencies)
            try:
                built.append(context.build(config))
            except InvalidEvaluators as invalid:
                errors += invalid.errors
                if context.origin.case_id is not None:
                    is_shared = False
        if not errors:
            return CaseEvaluators(tuple(built), configs, dependencies)
        failure = InvalidEvaluators(errors)
        if is_shared:
            # The error is in the file's settings: raise the same one for its other cases.
            self._failed[key] = failure
        raise failure

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
            return DryRunEvaluator("dry run: there is no workspace")
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
        return self._builder.origins.find(self._case, self._setting.field)

    def judge(self, name: str | None) -> JudgeTarget:
        judge = self._builder.judge_source.judge(self._case, self._target, name)
        self._dependencies.judges.append(judge)
        return judge

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
        return inner_context.build(config)

    def build(self, config: Json) -> ConfiguredEvaluator:
        """Return the evaluator; raise `InvalidEvaluators`, with the location of each error, if it cannot be built."""
        common = self._convert(config, CommonSettings)
        name = common.name or common.type
        try:
            type_ = evaluator_type(common.type)
            settings = self._convert(_own_settings(config, type_), type_)
            evaluator = self._builder.open(settings, self)
        except InvalidEvaluators:
            raise  # already has locations: the settings do not fit their types, or a nested evaluator is invalid
        except ConfigError as error:
            raise InvalidEvaluators([self._located(error)]) from None
        self._add_dependencies(name, settings, evaluator)
        is_negated = common.negate
        if _negates_itself(type_) or isinstance(evaluator, DryRunEvaluator):
            is_negated = False
        place = (self._setting.field, *self._setting.steps)
        return ConfiguredEvaluator(
            name=name,
            type=common.type,
            weight=common.weight,
            evaluator=evaluator,
            is_negated=is_negated,
            place="/".join(map(str, place)),
        )

    def _convert(self, config: Json, type_: type[S]) -> S:
        """Return the settings as a struct; raise `InvalidEvaluators` if they do not fit its types."""
        converted = convert(config, type_)
        if isinstance(converted, list):
            raise self._invalid(converted)
        return converted

    def _add_dependencies(
        self,
        name: str,
        settings: EvaluatorSettings,
        evaluator: Evaluator,
    ) -> None:
        """Record what the scores of an evaluator depend on."""
        # Only some evaluators know more than their settings, such as which parameters a function has.
        knows_use: Any = settings
        if hasattr(evaluator, "workspace_use"):
            knows_use = evaluator
        use = knows_use.workspace_use()
        if use is not WorkspaceUse.NONE:
            self._dependencies.use_workspace.append(name)
        if use is WorkspaceUse.NEEDS_IT:
            self._builder.needs_workspace = True
            problem = self._missing_workspace(name)
            self._dependencies.need_workspace.append(problem)
        if settings.needs_reference():
            self._dependencies.need_reference.append(name)
        fingerprint = evaluator.fingerprint()
        if fingerprint is not None:
            self._dependencies.fingerprints.append(fingerprint)

    def _missing_workspace(self, name: str) -> Problem:
        """Return the problem to report if the target has no workspace."""
        message = f"evaluator {name!r} needs the agent's workspace, and target {self._target!r} has none"
        hint = "give the target a workspace_template, or write another cwd, such as ./workspace"
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

    def _located(self, error: ConfigError) -> ConfigError:
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
        return (*self.origin.steps, *self._setting.steps)


def _setting_of(case: EvalCase, number: int) -> _Setting:
    """Return the setting that configures the evaluator of a case with this number; see `_configs`."""
    if number < len(case.evaluators):
        return _Setting("evaluators", (number,))
    if case.rubrics:
        return _Setting("rubrics")
    return _Setting("evaluator")


def _own_settings(config: Json, type_: type[EvaluatorSettings]) -> Json:
    """Return the settings for one type, without those that all types have.

    If the type has a `passes_on` field, settings that it does not declare are collected there.
    """
    excluded = set(CommonSettings.__struct_fields__)
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


def evaluator_names(case: EvalCase) -> list[str]:
    """Return the names of the evaluators of a case."""
    names = []
    for config in _configs(case):
        name = config.get("name") or config.get("type") or ""
        names.append(str(name))
    return names


def _negates_itself(type_: type[EvaluatorSettings]) -> bool:
    """Return whether an evaluator type has a `negate` setting of its own, with its own messages for hits and misses."""
    return "negate" in field_names(type_)


def _configs(case: EvalCase) -> Sequence[Json]:
    """Return the settings of each evaluator of a case: its evaluators and its rubrics, or else the default."""
    configs = list(case.evaluators)
    if case.rubrics:
        configs.append({"type": "rubric", "rubrics": list(case.rubrics)})
    if not configs:
        configs.append({"type": case.evaluator})
    return configs
