"""The settings of a case's evaluators -> the evaluators.

They are built while a run is planned, to find what is wrong and who is needed to judge, and again when it starts.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, NamedTuple, cast

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


class CommonSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings that evaluators of all types have."""

    type: Annotated[str, Meta(min_length=1)]
    name: Annotated[str, Meta(min_length=1)] | None = None
    weight: Annotated[float, Meta(ge=0)] = 1.0
    negate: bool = False
    """Whether the score is turned around. A type that has this setting itself, such as `contains`, sees to it."""


class InvalidEvaluators(ConfigError):
    """The evaluators of a case cannot be built. `errors` is all that is wrong; the first stands for them."""

    def __init__(self, errors: Sequence[ConfigError]):
        first = errors[0]
        super().__init__(first.message, file=first.file, line=first.line, column=first.column, hint=first.hint)
        self.errors = errors


class EvaluatorBuilder:
    """Builds the evaluators of cases; cases with equal settings share them. Each warning goes to `warn` once."""

    def __init__(
        self,
        judges: JudgeSource | None = None,
        *,
        dry_run: bool = False,
        only_check: bool = False,
        warn: Callable[[Problem], None] = warn,
        targets: Path | None = None,
    ):
        """`targets` is the targets file that was asked for, if one was."""
        self.judge_source, self._warn = judges or NeededJudges(), warn
        self._dry_run, self._only_check = dry_run, only_check
        self._built: dict[tuple[bytes, Path, str], CaseEvaluators] = {}
        self._failed: dict[tuple[bytes, Path, str], InvalidEvaluators] = {}
        self._last: tuple[object, object, str, CaseEvaluators] | None = None
        self._warned: set[Problem] = set()
        self.needs_workspace = False
        """Whether an evaluator was built that cannot do without a workspace."""
        self.origins = OriginFinder()
        self._targets, self._current = targets and targets.absolute(), Path.cwd()  # which targets may leave

    def build(self, case: EvalCase, target: str) -> CaseEvaluators:
        """Return the evaluators of a case; raise `InvalidEvaluators` if their settings cannot be used."""
        evaluators = case.execution.evaluators
        is_plain = bool(evaluators) and not case.rubrics
        last = self._last
        if is_plain and last is not None and last[0] is evaluators and last[1] is case.file and last[2] == target:
            return last[3]  # most cases share those of their file
        configs = _configs(case)
        key = msgspec.json.encode(configs), case.file.path, target
        if key in self._failed:
            raise self._failed[key]
        if key not in self._built:
            built = self._build_all(configs, key, case, target)
            if len(self._built) >= MAX_CACHED:  # cases may each have evaluators of their own
                self._built.clear()
            self._built[key] = built
        if is_plain:
            self._last = evaluators, case.file, target, self._built[key]
        return self._built[key]

    def problems(self, case: EvalCase, target: str) -> list[Problem]:
        """Return everything that is wrong with the evaluators of a case."""
        try:
            names = self.build(case, target).need_reference
        except InvalidEvaluators as invalid:
            return [Problem.of(error) for error in invalid.errors]
        if not names or reference_answer(case).strip():
            return []
        message = f"case {case.id!r}: evaluator {names[0]!r} has no 'value', and the case has no reference answer"
        hint = "write 'value' in the evaluator, or 'expected_output' in the case"
        return [Problem(message=message, file=case.file.path, line=case.line, column=1, hint=hint)]

    def workspace_problems(self, case: EvalCase, target: str) -> tuple[Problem, ...]:
        """Return what is wrong with the evaluators of a case if its target has no workspaces."""
        if not self.needs_workspace:
            return ()  # most files have no such evaluator
        try:
            return self.build(case, target).need_workspace
        except InvalidEvaluators:
            return ()  # which is told elsewhere

    def setting_problems(self, case: EvalCase, target: str) -> list[Problem]:
        """Return everything that is wrong with the settings of the evaluators of a case."""
        try:
            self.build(case, target)
        except InvalidEvaluators as invalid:
            return [Problem.of(error) for error in invalid.errors]
        return []

    def _build_all(
        self, configs: Sequence[Json], key: tuple[bytes, Path, str], case: EvalCase, target: str
    ) -> CaseEvaluators:
        built: list[ConfiguredEvaluator] = []
        errors: list[ConfigError] = []
        are_shared = True
        dependencies = Dependencies([], [], [], [], [])
        for number, config in enumerate(configs):
            context = _Context(self, case, target, _setting_of(case, number), dependencies)
            try:
                built.append(context.build(config))
            except InvalidEvaluators as invalid:
                errors += invalid.errors
                are_shared = are_shared and context.origin.case_id is None
        if not errors:
            return CaseEvaluators(tuple(built), configs, dependencies)
        error = InvalidEvaluators(errors)
        if are_shared:
            self._failed[key] = error  # it need not be found again for the other cases of the file
        raise error

    def open(self, settings: EvaluatorSettings, context: "_Context") -> Evaluator:
        """Return the evaluator with these settings; raise `ConfigError` if they cannot be used."""
        if self._only_check and settings.imports_code:
            settings.check(context)
            return cast(Evaluator, settings)  # which is not asked for scores
        try:
            evaluator = open_evaluator(settings, context)
        except MissingProgram as error:
            if not (self._only_check or self._dry_run):
                raise
            context.warn(error.message, error.hint, error.steps)
            return DryRunEvaluator(f"dry run: {error.message}")
        if self._dry_run and settings.workspace_use() in (WorkspaceUse.RUNS_IN_IT, WorkspaceUse.NEEDS_IT):
            return DryRunEvaluator("dry run: there is no workspace")
        return DryRunEvaluator() if self._dry_run and settings.asks_model else evaluator

    def code_folders(self, folder: Path) -> tuple[Path, ...]:
        """Return the folders in which the code of evaluators is looked for, for the eval files in a folder."""
        targets_file = None
        with suppress(ConfigError):  # there need not be one
            targets_file = find_targets(folder, self._targets)
        return code_folders(folder, targets_file, self._current)

    def warn_once(self, problem: Problem) -> None:
        """Warn the user of a problem, unless that has been done."""
        if problem not in self._warned:
            self._warned.add(problem)
            self._warn(problem)


class _Setting(NamedTuple):
    """The field of a case that asks for an evaluator, and the steps from there to the evaluator."""

    field: str
    steps: Steps = ()


class _Context:
    """The context in which one evaluator of a case is opened."""

    def __init__(
        self, builder: EvaluatorBuilder, case: EvalCase, target: str, setting: _Setting, dependencies: Dependencies
    ):
        self._builder, self._case, self._target = builder, case, target
        self._setting, self._dependencies = setting, dependencies
        self.folder = Path(case.file.path).parent.absolute()
        self._inner = 0

    @cached_property
    def code_folders(self) -> tuple[Path, ...]:
        return self._builder.code_folders(self.folder)

    @cached_property
    def origin(self) -> Origin:
        """Where the evaluator is written."""
        return self._builder.origins.find(self._case, self._setting.field)

    def judge(self, name: str | None) -> JudgeTarget:
        judge = self._builder.judge_source.judge(self._case, self._target, name)
        self._dependencies.judges.append(judge)
        return judge

    def warn(self, message: str, hint: str = "", at: Steps = ()) -> None:
        self._builder.warn_once(self._problem(message, at, hint, "warning"))

    def evaluator(self, config: Json) -> ConfiguredEvaluator:
        """Return an evaluator that is inside of the one that is opened in this context."""
        setting = _Setting(self._setting.field, (*self._setting.steps, "evaluators", self._inner))
        self._inner += 1
        return _Context(self._builder, self._case, self._target, setting, self._dependencies).build(config)

    def build(self, config: Json) -> ConfiguredEvaluator:
        """Return the evaluator; raise `InvalidEvaluators`, with the places of the errors, if it cannot be built."""
        common = convert(config, CommonSettings)
        if isinstance(common, list):
            raise self._invalid(common)
        try:
            type_ = evaluator_type(common.type)
            settings = convert(_own_settings(config, type_), type_)
            if isinstance(settings, list):
                raise self._invalid(settings)
            evaluator = self._builder.open(settings, self)
        except InvalidEvaluators:
            raise
        except ConfigError as error:
            at = error.steps if isinstance(error, SettingError) else ()
            told = error if error.file else ConfigError.of(self._problem(error.message, at, error.hint))
            raise InvalidEvaluators([told]) from None
        knows_use: Any = evaluator if hasattr(evaluator, "workspace_use") else settings
        if (use := knows_use.workspace_use()) is not WorkspaceUse.NONE:
            self._use_workspace(common.name or common.type, use)
        if settings.needs_reference():
            self._dependencies.need_reference.append(common.name or common.type)
        if (fingerprint := evaluator.fingerprint()) is not None:
            self._dependencies.fingerprints.append(fingerprint)
        negate = common.negate and not _negates_itself(type_) and not isinstance(evaluator, DryRunEvaluator)
        place = "/".join(map(str, (self._setting.field, *self._setting.steps)))
        return ConfiguredEvaluator(common.name or common.type, common.type, common.weight, evaluator, negate, place)

    def _use_workspace(self, name: str, use: WorkspaceUse) -> None:
        """Take note of an evaluator that looks at the workspace."""
        self._dependencies.use_workspace.append(name)
        if use is WorkspaceUse.NEEDS_IT:
            self._builder.needs_workspace = True
            message = f"evaluator {name!r} needs the agent's workspace, and target {self._target!r} has none"
            hint = "give the target a workspace_template, or write another cwd, such as ./workspace"
            self._dependencies.need_workspace.append(self._problem(message, ("cwd",), hint))

    def _invalid(self, misfits: Sequence[Misfit]) -> InvalidEvaluators:
        """Return the error for settings that do not fit their types."""
        base = self._base
        problems = [
            self.origin.problem((*base, *misfit.steps), label((*base, *misfit.steps)), misfit.message, misfit.hint)
            for misfit in misfits
        ]
        return InvalidEvaluators([ConfigError.of(problem) for problem in problems])

    def _problem(self, message: str, at: Steps, hint: str, severity: Severity = "error") -> Problem:
        """Return the problem of this evaluator, in the place of the setting that the steps lead to."""
        base = self._base
        return self.origin.problem((*base, *at), label(base), message, hint, severity)

    @property
    def _base(self) -> Steps:
        """The steps to the settings of this evaluator, from the case or from the top of the file."""
        if self._setting.field == "rubrics":
            return self.origin.steps[:-1]  # the case itself has the setting `rubrics` of this evaluator
        return (*self.origin.steps, *self._setting.steps)


def _setting_of(case: EvalCase, number: int) -> _Setting:
    """Return the setting that asks for an evaluator of a case."""
    if number < len(case.evaluators):
        return _Setting("evaluators", (number,))
    return _Setting("rubrics" if case.rubrics else "evaluator")


def _own_settings(config: Json, type_: type[EvaluatorSettings]) -> Json:
    """Return the settings that belong to one type; those that it does not have go where it passes them on."""
    common = {*CommonSettings.__struct_fields__} - ({"negate"} if _negates_itself(type_) else set())
    settings = {name: value for name, value in config.items() if name not in common}
    rest = type_.passes_on
    if rest is None:
        return settings
    known = {name: value for name, value in settings.items() if name in field_names(type_)}
    unknown = {name: value for name, value in settings.items() if name not in known}
    own = known.get(rest) or {}
    return {**known, rest: {**own, **unknown}} if unknown and isinstance(own, dict) else known


def evaluator_names(case: EvalCase) -> list[str]:
    """Return the names of the evaluators of a case."""
    return [str(config.get("name") or config.get("type") or "") for config in _configs(case)]


def _negates_itself(type_: type[EvaluatorSettings]) -> bool:
    """Return whether a type of evaluator has a `negate` of its own, which can say more than that the score turns."""
    return "negate" in field_names(type_)


def _configs(case: EvalCase) -> Sequence[Json]:
    """Return the settings of each evaluator of a case."""
    configs = list(case.evaluators)
    if case.rubrics:
        configs.append({"type": "rubric", "rubrics": list(case.rubrics)})
    return configs or [{"type": case.evaluator}]
