"""Cases that are objects in memory instead of entries of a file: mappings in the case format, and `EvalCase`s.

A list is checked as a whole before anything runs, like an eval file. Any other iterable is read once and lazily: some
cases ahead, to plan the run, and the others when workers ask for them.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from agentv.cases.expand import CaseExpander, CaseSource, Inspection, Report
from agentv.cases.schema import CaseRecord, FileRecord, build_defaults
from agentv.cases.unknown_fields import UnknownFields
from agentv.errors import AgentvError, ConfigError, EvalFileError
from agentv.files.compact_sets import HashIndex
from agentv.files.yaml import Place
from agentv.hook_settings import Hooks
from agentv.log import ignore
from agentv.records import CaseFile, EvalCase, Execution, Json, Problem
from agentv.stats.metrics import MetricSpec
from agentv.text import has_surrogates

NO_FILE = Path("<cases>")
"""The path of cases without a file. Relative paths in them start in the current folder."""
READ_AHEAD = 20
"""How many cases of an iterable are read before the first one runs."""
_SKIPPED = "; "
"""The separator between the reason why a case is skipped and the remark that it is skipped."""


class DefaultEvaluators(tuple[Json, ...]):
    """The evaluators of cases that have none, given as an argument instead of in a file."""

    __slots__ = ()


class CaseDefaults(NamedTuple):
    """Defaults from arguments, for cases and files that do not set these values."""

    evaluators: DefaultEvaluators = DefaultEvaluators()
    metrics: tuple[MetricSpec, ...] = ()
    """Metrics in addition to those of the files."""
    hooks: Hooks | None = None

    def apply(self, cases: Iterable[EvalCase]) -> Iterator[EvalCase]:
        """Yield cases with these defaults."""
        if self.evaluators:
            cases = self._with_evaluators(cases)
        if self.metrics or self.hooks is not None:
            cases = self._with_file(cases)
        return iter(cases)

    def _with_evaluators(self, cases: Iterable[EvalCase]) -> Iterator[EvalCase]:
        last: Execution | None = None
        execution = Execution()
        for case in cases:
            if case.execution.evaluators:
                yield case
                continue
            if case.execution is not last:  # most cases share it
                last = case.execution
                execution = msgspec.structs.replace(last, evaluators=self.evaluators)
            yield msgspec.structs.replace(case, execution=execution)

    def _with_file(self, cases: Iterable[EvalCase]) -> Iterator[EvalCase]:
        last: CaseFile | None = None
        file = CaseFile(path=NO_FILE, dataset="")
        for case in cases:
            if case.file is not last:  # all cases of a file share it
                last = case.file
                file = msgspec.structs.replace(
                    last,
                    metrics=(*last.metrics, *self.metrics),
                    hooks=last.hooks or self.hooks,
                )
            yield msgspec.structs.replace(case, file=file)


class CaseObjects:
    """The cases of an iterable. Cases without a file belong to `dataset`."""

    def __init__(self, cases: Iterable[Any], dataset: str, settings_of: Callable[[Any], Any]):
        """`settings_of` turns an evaluator that is an object into settings, and returns anything else unchanged.

        Raise `ConfigError` if `cases` is not an iterable of cases, or `dataset` cannot be written to a file.
        """
        _check_iterable(cases)
        if has_surrogates(dataset):
            raise ConfigError(f"dataset {dataset!r} contains an unpaired surrogate")
        self.is_list = isinstance(cases, list | tuple)
        self.is_streamed = False
        """Whether most cases are read while the run is under way. Otherwise all are known before it starts."""
        self.failure: Exception | None = None
        """The error of the iterable, or of one of its cases, that ended the cases."""
        self.arrived = 0
        """The number of selected cases that have arrived since the run was planned."""
        self.skipped = 0
        """The number of cases that have been taken and are marked with `skip`."""
        self._settings_of = settings_of
        record = FileRecord(dataset=dataset)
        self._defaults = build_defaults(NO_FILE, record)
        self._left = iter(cases)
        self._known: deque[EvalCase] = deque()
        self.is_all_known = False
        """Whether the iterable has ended."""
        self._count = 0
        self._positions: dict[str, int] = {}
        """The number of cases so far of each dataset."""
        self._indexes = HashIndex()
        """The index of each case, by its dataset and id."""
        self._unknown = UnknownFields(NO_FILE)

    @property
    def dataset(self) -> str:
        """The dataset of cases without a file."""
        return self._defaults.file.dataset

    def index(self, dataset: str, eval_id: str) -> int:
        """Return the index of the object that a case was made of; -1 if there is no such case."""
        return self._indexes.get((dataset, eval_id))

    def read(self, report: Report, inspection: Inspection | None = None) -> Iterator[EvalCase]:
        """Yield the valid cases. Problems of a list are reported; those of another iterable end it, see `failure`."""
        yield from self.known()
        while not self.is_all_known:
            found = self._next(report)
            self._known.extend(found)
            yield from found
        if inspection is not None:
            for problem in self.unknown_fields():
                inspection.on_ignored(problem)

    def unknown_fields(self) -> Iterator[Problem]:
        """Yield the unknown fields of the cases that have been read since the last call."""
        found = self._unknown
        self._unknown = UnknownFields(NO_FILE)
        yield from found.problems()

    def known(self) -> list[EvalCase]:
        """Return the valid cases that have been read and not taken."""
        return list(self._known)

    def take(self) -> Iterator[EvalCase]:
        """Yield the valid cases for the last time: none of them is kept in memory."""
        while True:
            while self._known:
                yield self._known.popleft()
            if self.is_all_known:
                return
            self._known.extend(self._next(ignore))

    def _next(self, report: Report) -> list[EvalCase]:
        """Return the cases of the next object. Empty if it is invalid or the end is reached, see `is_all_known`."""
        try:
            value = next(self._left)
        except StopIteration:
            self._end(report)
            return []
        except Exception as error:
            if self.is_list:
                raise
            self.failure = error
            self.is_all_known = True
            return []
        index = self._count
        self._count += 1
        problems: list[Problem] = []
        found = []
        for case in self._cases_of(value, index, problems.append):
            numbered = self._numbered(case, index, problems.append)
            if numbered is not None:
                found.append(numbered)
        if problems and not self.is_list:
            self.failure = EvalFileError.of(problems[0])
            self.is_all_known = True
            return []
        for problem in problems:
            report(problem)
        return found

    def _end(self, report: Report) -> None:
        self.is_all_known = True
        if self._count:
            return
        hint = "pass at least one case"
        if not self.is_list:
            hint = "a generator yields its cases only once: make a new one for each run, or pass a list"
        problem = Problem(message="no cases: 'cases' is empty", hint=hint)
        report(problem)

    def _cases_of(self, value: Any, index: int, report: Report) -> Iterable[EvalCase]:
        """Return the cases that an object describes: one, or the members of a family."""
        field = _unwritable_field(value)
        if field is not None:
            message = f"cases[{index}]: {field}: cannot be written as JSON"
            report(Problem(message=message, hint="it contains itself, or text with an unpaired surrogate"))
            return []
        if isinstance(value, EvalCase):
            return [self._as_own(value, index)]
        if not isinstance(value, Mapping):
            report(_not_a_case(index, value))
            return []
        place = Place(index + 1, 1)
        written = self._with_settings(value)
        self._unknown.add(written, CaseRecord, lambda _steps: place)
        source = CaseSource(written, index + 1, lambda _steps: place)
        expander = CaseExpander(NO_FILE, self._defaults, lambda problem: report(_as_error(problem)))
        return expander.cases(source)

    def _numbered(self, case: EvalCase, index: int, report: Report) -> EvalCase | None:
        """Return a case with its position, or None if its id is not new."""
        key = (case.dataset, case.id)
        first = self._indexes.get(key)
        if first >= 0:
            message = f"cases[{index}]: duplicate id {case.id!r}, first in cases[{first}]"
            report(Problem(message=message, hint="use unique ids"))
            return None
        self._indexes.add(key, index)
        position = self._positions.get(case.dataset, 0) + 1
        self._positions[case.dataset] = position
        return msgspec.structs.replace(case, position=position)

    def _as_own(self, case: EvalCase, index: int) -> EvalCase:
        """Return an `EvalCase` with its evaluators as settings and, if it was not read from a file, with a location."""
        evaluators = case.execution.evaluators or ()
        settings = tuple(map(self._settings_of, evaluators))
        if settings != evaluators:
            execution = msgspec.structs.replace(case.execution, evaluators=settings)
            case = msgspec.structs.replace(case, execution=execution)
        if case.file.path == Path():
            return msgspec.structs.replace(case, file=self._defaults.file, line=index + 1)
        return case

    def _with_settings(self, value: Mapping[str, Any]) -> Json:
        """Return a case as a file would contain it, with settings instead of evaluator objects."""
        written = dict(value)
        written["evaluators"] = self._as_settings(written.get("evaluators"))
        if written["evaluators"] is None:
            del written["evaluators"]
        execution = written.get("execution")
        if isinstance(execution, Execution):
            execution = msgspec.to_builtins(execution)
            written["execution"] = execution
        if isinstance(execution, Mapping) and execution.get("evaluators") is not None:
            evaluators = self._as_settings(execution["evaluators"])
            written["execution"] = {**execution, "evaluators": evaluators}
        return written

    def _as_settings(self, evaluators: Any) -> Any:
        if isinstance(evaluators, list | tuple):
            return [self._settings_of(evaluator) for evaluator in evaluators]
        return evaluators


def _unwritable_field(case: Any) -> str | None:
    """Return the field of a case that no results file can contain, if there is one."""
    fields: Mapping[str, Any] = {}
    if isinstance(case, EvalCase):
        fields = msgspec.structs.asdict(case)
    elif isinstance(case, Mapping):
        fields = dict(case)
    if _is_writable(fields):
        return None
    for name, value in fields.items():
        if not _is_writable(value):
            return str(name)
        if not _is_writable(name):
            return repr(name)
    return None


def _is_writable(value: Any) -> bool:
    """Return whether a value has no lone surrogate and does not contain itself. Its types are checked elsewhere."""
    try:
        msgspec.json.encode(value, enc_hook=_no_value)
    except (UnicodeEncodeError, RecursionError):
        return False
    except (TypeError, ValueError):
        pass  # of a type that is not JSON
    return True


def _no_value(_other: object) -> None:
    """Stand for a value that is not JSON, such as an evaluator function."""


def without_file(problem: Problem) -> Problem:
    """Return the problem of a case in memory with its index instead of a location in a file."""
    if problem.file != NO_FILE:
        return problem
    message = problem.message
    if problem.line:
        message = f"cases[{problem.line - 1}]: {message}"
    return msgspec.structs.replace(problem, message=message, file=None, line=None, column=None)


def placed_error(error: AgentvError) -> AgentvError:
    """Return an error of a case in memory with its index instead of a location in a file."""
    problem = Problem.of(error)
    if problem.file != NO_FILE:
        return error
    return type(error).of(without_file(problem))


def _as_error(problem: Problem) -> Problem:
    """Return the problem of a case in memory as an error: no such case is skipped."""
    message = problem.message
    if problem.severity == "warning":
        message, _, _ = message.partition(_SKIPPED)
    return without_file(msgspec.structs.replace(problem, message=message, severity="error"))


def _not_a_case(index: int, value: Any) -> Problem:
    hint = "a case is a mapping, such as {'id': ..., 'input': ..., 'expected_outcome': ...}, or an EvalCase"
    if isinstance(value, str | Path):
        hint = "pass eval files as the first argument, without cases="
    return Problem(message=f"cases[{index}] is {_described(value)}", hint=hint)


def _check_iterable(cases: object) -> None:
    """Raise `ConfigError` if the value cannot be an iterable of cases."""
    if isinstance(cases, str | bytes | Path):
        raise ConfigError(
            f"cases is {_described(cases)}",
            hint="pass eval files as the first argument, without cases=",
        )
    if isinstance(cases, Mapping | EvalCase):
        raise ConfigError(f"cases is {_described(cases)}", hint="pass a list of cases, even if there is only one")
    if hasattr(cases, "columns"):
        raise ConfigError(
            f"cases is {_described(cases)}",
            hint="make cases of its rows: agentv.cases_from(rows, input=COLUMN)",
        )
    if not isinstance(cases, Iterable):
        raise ConfigError(f"cases is {_described(cases)}", hint="pass a list of mappings, or any other iterable")


def _described(value: object) -> str:
    if isinstance(value, str | Path):
        return repr(str(value))
    name = type(value).__name__
    article = "a"
    if name[0] in "AEIOUaeiou":
        article = "an"
    return f"{article} {name}"
