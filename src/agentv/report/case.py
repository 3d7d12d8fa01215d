"""One result -> lines for a person: what was asked, what came back, and what each evaluator made of it."""

from collections.abc import Iterator, Mapping
from typing import Any

from agentv.formats.printable import printable
from agentv.formats.wire import text_of
from agentv.scoring import verdict_of

LABEL = 12
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
"""The texts of a result, in the order in which they are shown, and how they are called."""


def case_lines(result: Mapping[str, Any], *, trace: bool = False) -> Iterator[str]:
    """Yield the lines that show a result; with `trace`, its steps as well."""
    yield _title(result)
    for field, name in TEXTS.items():
        if field in result and result[field] is not None:
            yield from _text(name, text_of(result[field]) or "(empty)")
    if isinstance(changes := result.get("file_changes"), str):
        yield from _text("changes", "\n".join(_changed_files(changes)) or "(none)")
    for part in result.get("evaluator_results") or ():
        yield from _evaluator(part)
    if figures := _figures(result):
        yield from _text("took", figures)
    if trace:
        yield from _trace(result.get("trace"))


def _title(result: Mapping[str, Any]) -> str:
    trial = f", trial {result['trial']}" if result.get("trial") else ""
    score = float(result.get("score", 0.0))
    verdict = "error" if result.get("error") is not None else "judge failed" if result.get("failure") else ""
    verdict = verdict or result.get("verdict") or verdict_of(score)
    where = f"{result['file']}:{result.get('line', 1)}" if result.get("file") else ""
    target = f"target {result['target']}" if result.get("target") else ""
    dry = "DRY RUN" if result.get("dry_run") else ""
    known = ", ".join(filter(None, (result.get("dataset"), where, target, dry)))
    return printable(f"{result.get('eval_id', '')}{trial}: {score:.3f} {verdict}{f' ({known})' if known else ''}")


def _text(name: str, text: str) -> Iterator[str]:
    """Yield a text of one or more lines, its name before the first."""
    first, *more = text.rstrip().splitlines() or [""]
    yield f"  {name:{LABEL}}{printable(first)}"
    yield from (f"  {'':{LABEL}}{printable(line)}" for line in more)


def _changed_files(diff: str) -> Iterator[str]:
    """Yield a line for each file of a diff, and how many lines were added and removed."""
    files: list[list[Any]] = []
    for line in diff.split("\n"):
        if line.startswith("diff --git "):
            names = line.removeprefix("diff --git ")  # the same name twice
            files.append([names[len(names) // 2 + 1 :].replace("b/", "", 1), 0, 0])
        elif files and line.startswith(("+", "-")) and not line.startswith(("+++ ", "--- ")):
            files[-1][1 if line.startswith("+") else 2] += 1
    for name, added, removed in files[:MAX_FILES]:
        yield f"{name} +{added} -{removed}" if added or removed else name  # such as a binary file
    if len(files) > MAX_FILES:
        yield f"and {len(files) - MAX_FILES} more files: see them with --format json"


def _evaluator(part: Mapping[str, Any]) -> Iterator[str]:
    state = "failed to judge" if part.get("failed") else part.get("verdict", "")
    weight = part.get("weight", 1)
    weighs = "" if weight == 1 else f", weight {weight:g}"
    yield f"  {printable(str(part.get('name', ''))):{LABEL - 1}} {float(part.get('score', 0.0)):.3f} {state}{weighs}"
    for sign, field in (("+", "hits"), ("-", "misses")):
        for point in part.get(field) or ():
            yield from _text("", f"{sign} {text_of(point)}")
    if part.get("reasoning"):
        yield from _text("", text_of(part["reasoning"]))
    if part.get("error_details"):
        yield from _text("", text_of(part["error_details"]))


def _figures(result: Mapping[str, Any]) -> str:
    metrics = result.get("execution_metrics") or {}
    usage = metrics.get("token_usage") or {}
    parts = []
    if metrics.get("duration_ms") is not None:
        parts.append(f"{metrics['duration_ms']:.0f} ms")
    if tokens := sum(usage.get(name) or 0 for name in ("input", "output")):
        parts.append(f"{tokens} tokens")
    if metrics.get("cost_usd") is not None:
        parts.append(f"${metrics['cost_usd']:.4g}")
    if metrics.get("cached"):
        parts.append("from the cache")
    for name, judge in (result.get("judge_metrics") or {}).items():
        calls = "1 call" if judge.get("calls") == 1 else f"{judge.get('calls')} calls"
        paid = f", ${judge['cost_usd']:.4g}" if judge.get("cost_usd") is not None else ""
        parts.append(f"judge {name} ({calls}{paid})")
    if result.get("attempt", 1) > 1:
        parts.append(f"{result['attempt']} attempts")
    return ", ".join(parts)


def _trace(trace: Any) -> Iterator[str]:
    if not trace:
        yield from _text("trace", "none in the results: run with --include-trace")
        return
    for number, event in enumerate(trace, 1):
        metadata = event.get("metadata")
        failed = "(failed)" if isinstance(metadata, dict) and metadata.get("is_error") is True else None
        said = [event.get("name"), failed, event.get("text"), event.get("input"), event.get("output")]
        text = " ".join(" ".join(text_of(value).split()) for value in said if value is not None)
        yield from _text(f"{number:4} {event.get('type', '')} ", _cut(text))


def _cut(text: str) -> str:
    return text if len(text) <= MAX_TRACE_CHARACTERS else f"{text[:MAX_TRACE_CHARACTERS]}…"
