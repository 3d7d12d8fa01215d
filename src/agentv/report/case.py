"""Show one result as text: the question, the answer, and the score of each evaluator."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agentv.files.printable import printable
from agentv.files.wire import text_of
from agentv.results.views import read_verdict
from agentv.text import plural, truncate

LABEL = 12
"""The width of the column of labels."""
MAX_TRACE_CHARACTERS = 400
MAX_FILES = 10
TEXTS = {
    "question": "question",
    "candidate_answer": "answer",
    "expected_outcome": "expected",
    "reference_answer": "reference",
    "note": "note",
    "workspace_path": "workspace",
    "error": "error",
    "error_details": "details",
}
"""The text fields of a result in display order, and their labels."""


def case_lines(result: Mapping[str, Any], *, trace: bool = False) -> Iterator[str]:
    """Yield the lines that show a result. With `trace`, include the steps of the agent."""
    yield _title(result)
    for field, label in TEXTS.items():
        if result.get(field) is not None:
            yield from _text(label, text_of(result[field]) or "(empty)")
    changes = result.get("file_changes")
    if isinstance(changes, str):
        files = "\n".join(_file_lines(changes))
        yield from _text("changes", files or "(none)")
    masked = _names(result.get("masked"))
    if masked:
        yield from _text("masked", masked)
    missed = _names(result.get("failed_required"))
    if missed:
        yield from _text("required", f"failed: {missed}")
    parts = result.get("evaluator_results") or ()
    for miss in _own_misses(result, parts):
        yield from _text("verdict", f"- {miss}")
    for part in parts:
        yield from _evaluator_lines(part)
    usage = ", ".join(_usage(result))
    if usage:
        yield from _text("took", usage)
    if trace:
        yield from _trace_lines(result.get("trace"))


def _names(value: Any) -> str:
    """Return a list of names as text. Files of other tools may have something else, which is ignored."""
    if not isinstance(value, list | tuple):
        return ""
    return ", ".join(map(str, value))


def _title(result: Mapping[str, Any]) -> str:
    """Return the id, the trial, the score and the verdict of a result, and where the case comes from."""
    title = str(result.get("eval_id", ""))
    if result.get("trial"):
        title += f", trial {result['trial']}"
    score = float(result.get("score", 0.0))
    title += f": {score:.3f} {_verdict(result, score)}"
    details = ", ".join(_origin(result))
    if details:
        title += f" ({details})"
    return printable(title)


def _verdict(result: Mapping[str, Any], score: float) -> str:
    if result.get("error") is not None:
        return "error"
    if result.get("failure"):
        return "judge failed"
    return read_verdict(result.get("verdict"), score)


def _origin(result: Mapping[str, Any]) -> Iterator[str]:
    """Yield the dataset, location and target of a result, if known."""
    if result.get("dataset"):
        yield result["dataset"]
    if result.get("file"):
        yield f"{result['file']}:{result.get('line', 1)}"
    if result.get("target"):
        yield f"target {result['target']}"
    if result.get("dry_run"):
        yield "DRY RUN"


def _text(label: str, text: str) -> Iterator[str]:
    """Yield the lines of a text, the first one with the label."""
    lines = text.rstrip().splitlines() or [""]
    for line in lines:
        yield f"  {label:{LABEL}}{printable(line)}"
        label = ""


@dataclass(slots=True)
class _ChangedFile:
    """A file of a diff, and how many lines were added to it and removed from it."""

    name: str
    added: int = 0
    removed: int = 0


def _file_lines(diff: str) -> Iterator[str]:
    """Yield one line per file of a diff, with the number of added and removed lines."""
    files = _changed_files(diff)
    for file in files[:MAX_FILES]:
        if file.added or file.removed:
            yield f"{file.name} +{file.added} -{file.removed}"
        else:
            yield file.name  # such as a binary file
    more = len(files) - MAX_FILES
    if more > 0:
        yield f"and {more} more files: use --format json to see them"


def _changed_files(diff: str) -> list[_ChangedFile]:
    files: list[_ChangedFile] = []
    for line in diff.split("\n"):
        if line.startswith("diff --git "):
            names = line.removeprefix("diff --git ")  # `a/NAME b/NAME`: the same name twice
            second_name = names[len(names) // 2 + 1 :]
            files.append(_ChangedFile(second_name.replace("b/", "", 1)))
        elif not files or line.startswith(("+++ ", "--- ")):
            continue  # the names of the file before and after
        elif line.startswith("+"):
            files[-1].added += 1
        elif line.startswith("-"):
            files[-1].removed += 1
    return files


def _own_misses(result: Mapping[str, Any], parts: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield the misses that no evaluator has, such as why a case was not judged."""
    if not parts:
        return
    of_evaluators: list[Any] = []
    for part in parts:
        of_evaluators.extend(part.get("misses") or ())
    for miss in result.get("misses") or ():
        if miss not in of_evaluators:
            yield text_of(miss)


def _evaluator_lines(part: Mapping[str, Any]) -> Iterator[str]:
    """Yield the score of an evaluator, its hits and misses, and its reasoning."""
    name = printable(str(part.get("name", "")))
    yield f"  {name:{LABEL - 1}} {_evaluator_state(part)}"
    for point in part.get("hits") or ():
        yield from _text("", f"+ {text_of(point)}")
    for point in part.get("misses") or ():
        yield from _text("", f"- {text_of(point)}")
    for field in ("reasoning", "error_details"):
        if part.get(field):
            yield from _text("", text_of(part[field]))


def _evaluator_state(part: Mapping[str, Any]) -> str:
    """Return an evaluator's score, verdict, weight (unless it is 1) and required score."""
    if part.get("applicable") is False:
        return "does not apply to this case"
    score = float(part.get("score") or 0.0)
    text = f"{score:.3f} {part.get('verdict', '')}"
    if part.get("failed"):
        text = f"{score:.3f} failed to judge"
    weight = part.get("weight", 1)
    if weight != 1:
        text += f", weight {weight:g}"
    required = part.get("required", False)
    if required is True:
        text += ", required"
    elif required is not False:
        text += f", at least {required:g} required"
    return text


def _usage(result: Mapping[str, Any]) -> Iterator[str]:
    """Yield the duration, tokens, cost and attempts of an answer, and the calls of its judges."""
    metrics = result.get("execution_metrics") or {}
    if metrics.get("duration_ms") is not None:
        yield f"{metrics['duration_ms']:.0f} ms"
    usage = metrics.get("token_usage") or {}
    input_tokens = usage.get("input") or 0
    output_tokens = usage.get("output") or 0
    tokens = input_tokens + output_tokens
    if tokens:
        yield f"{tokens} tokens"
    if metrics.get("cost_usd") is not None:
        yield f"${metrics['cost_usd']:.4g}"
    if metrics.get("cached"):
        yield "from the cache"
    retries = metrics.get("retries") or {}
    if retries.get("cost_usd") is not None:
        attempts = plural(int(retries.get("attempts", 0)), "failed attempt")
        yield f"{attempts}, ${retries['cost_usd']:.4g}"
    judges = result.get("judge_metrics") or {}
    for name, judge in judges.items():
        calls = plural(judge.get("calls"), "call")
        if judge.get("cost_usd") is not None:
            calls += f", ${judge['cost_usd']:.4g}"
        yield f"judge {name} ({calls})"
    if result.get("attempt", 1) > 1:
        yield f"{result['attempt']} attempts"


def _trace_lines(trace: Any) -> Iterator[str]:
    if not trace:
        yield from _text("trace", "not in the results: run with --include-trace")
        return
    for number, event in enumerate(trace, 1):
        label = f"{number:4} {event.get('type', '')} "
        yield from _text(label, truncate(_event_text(event), MAX_TRACE_CHARACTERS))


def _event_text(event: Mapping[str, Any]) -> str:
    """Return the name, the state and the content of a step, on one line."""
    failed = None
    metadata = event.get("metadata")
    if isinstance(metadata, dict) and metadata.get("is_error") is True:
        failed = "(failed)"
    parts = []
    for value in (
        event.get("name"),
        failed,
        event.get("text"),
        event.get("input"),
        event.get("output"),
    ):
        if value is not None:
            words = text_of(value).split()
            parts.append(" ".join(words))
    return " ".join(parts)
