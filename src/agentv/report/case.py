"""Show one result as text: the question, the answer, and the score of each evaluator."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from agentv.formats.printable import printable
from agentv.formats.wire import text_of
from agentv.report.quantities import counted
from agentv.scoring import verdict_of

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
    for part in result.get("evaluator_results") or ():
        yield from _evaluator_lines(part)
    usage = ", ".join(_usage(result))
    if usage:
        yield from _text("took", usage)
    if trace:
        yield from _trace_lines(result.get("trace"))


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
    return str(result.get("verdict") or verdict_of(score))


def _origin(result: Mapping[str, Any]) -> Iterator[str]:
    """Yield the dataset, the location and the target of a result, as far as they are known."""
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
        yield f"and {more} more files: see them with --format json"


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


def _evaluator_lines(part: Mapping[str, Any]) -> Iterator[str]:
    """Yield the score of an evaluator, its hits and misses, and its reasoning."""
    name = printable(str(part.get("name", "")))
    score = float(part.get("score", 0.0))
    state = part.get("verdict", "")
    if part.get("failed"):
        state = "failed to judge"
    weight = part.get("weight", 1)
    weight_text = ""
    if weight != 1:
        weight_text = f", weight {weight:g}"
    yield f"  {name:{LABEL - 1}} {score:.3f} {state}{weight_text}"
    for point in part.get("hits") or ():
        yield from _text("", f"+ {text_of(point)}")
    for point in part.get("misses") or ():
        yield from _text("", f"- {text_of(point)}")
    for field in ("reasoning", "error_details"):
        if part.get(field):
            yield from _text("", text_of(part[field]))


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
    judges = result.get("judge_metrics") or {}
    for name, judge in judges.items():
        calls = counted(judge.get("calls"), "call")
        if judge.get("cost_usd") is not None:
            calls += f", ${judge['cost_usd']:.4g}"
        yield f"judge {name} ({calls})"
    if result.get("attempt", 1) > 1:
        yield f"{result['attempt']} attempts"


def _trace_lines(trace: Any) -> Iterator[str]:
    if not trace:
        yield from _text("trace", "none in the results: run with --include-trace")
        return
    for number, event in enumerate(trace, 1):
        label = f"{number:4} {event.get('type', '')} "
        yield from _text(label, _truncate(_event_text(event)))


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


def _truncate(text: str) -> str:
    if len(text) <= MAX_TRACE_CHARACTERS:
        return text
    return f"{text[:MAX_TRACE_CHARACTERS]}…"
