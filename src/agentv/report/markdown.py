"""Format comparisons as Markdown for a comment on a pull request: the verdict first, long parts folded at the end."""

from collections.abc import Iterable, Iterator, Sequence

from agentv.compare.gate import has_unmatched
from agentv.compare.pairs import pairs_of
from agentv.compare.records import Comparison
from agentv.files.printable import printable
from agentv.report.comparison import (
    SHOWN,
    answer_costs,
    changed_lines,
    detail_lines,
    extra_lines,
    format_signed,
    interval_text,
    labels_line,
    matrix_rows,
    metric_rows,
    note_lines,
    part_rows,
    price_line,
    shown_groups,
)

_SPECIAL = "\\`*_[]<>#|!&@~"
"""Characters that may start markup, a link or a mention."""


def markdown_lines(comparisons: Sequence[Comparison]) -> Iterator[str]:
    """Yield the comparisons as Markdown."""
    if len(comparisons) == 1:
        yield from _comparison_lines(comparisons[0])
        return
    yield f"### agentv: {len(comparisons)} runs against {_code(comparisons[0].files[0].path)}"
    yield ""
    yield from _table(matrix_rows(comparisons))
    yield ""
    lines: list[str] = []
    for comparison in comparisons:
        lines.extend(extra_lines(comparison))
    yield from _folded("All figures", lines)


def _comparison_lines(comparison: Comparison) -> Iterator[str]:
    """Yield the verdict, the worst regressions, the figures, and what flipped and changed."""
    verdict: str = comparison.statistics.verdict
    if has_unmatched(comparison):
        verdict += " (for the cases in both runs)"
    yield f"### agentv: {verdict}"
    yield ""
    worst, _ = pairs_of(comparison).extremes(SHOWN)
    if worst:
        rows = [("worst regressions", "A", "B", "Δ")]
        for pair in worst:
            row = (
                _code(pair.name),
                f"{pair.score1:g}",
                f"{pair.score2:g}",
                format_signed(pair.delta),
            )
            rows.append(row)
        yield from _table(rows)
        yield ""
    yield from _table(_figure_rows(comparison))
    yield ""
    if comparison.metrics:
        yield from _table(metric_rows(comparison.metrics))
        yield ""
    for kind, parts in shown_groups(comparison):
        yield from _table(part_rows(kind, parts))
        yield ""
    points = list(_points(comparison))
    if points:
        for point in points:
            yield f"- {point}"
        yield ""
    yield from _folded("All figures", detail_lines(comparison))


def _figure_rows(comparison: Comparison) -> Iterator[tuple[str, ...]]:
    """Yield the rows of a table with both runs side by side."""
    first, second = comparison.files
    yield "", f"A {_code(first.path)}", f"B {_code(second.path)}", "change"
    found = comparison.statistics
    if found.delta is not None and found.mean1 is not None and found.mean2 is not None:
        change = f"**{format_signed(found.delta.mean)}**, {interval_text(found.delta)}"
        yield f"mean of {found.pairs}", f"{found.mean1:.3f}", f"{found.mean2:.3f}", change
    passes = found.passes
    if passes is not None:
        yield "passed", str(passes.passed1), str(passes.passed2), f"+{passes.gained} / −{passes.lost}"
    yield "wins and losses", "", "", f"+{comparison.summary.wins} / −{comparison.summary.losses}"
    counts = {
        "errors": (first.errors, second.errors),
        "judge failures": (first.judge_failures, second.judge_failures),
        "cut off": (first.cut_off, second.cut_off),
    }
    for what, (count_a, count_b) in counts.items():
        if count_a or count_b:
            yield what, str(count_a), str(count_b), ""
    yield from answer_costs(comparison)


def _points(comparison: Comparison) -> Iterator[str]:
    """Yield the cases that flipped, what else has changed, and notes."""
    flips = pairs_of(comparison).flips
    if flips.lost:
        yield _flips_text(comparison, "broke (pass → fail)", flips.lost)
    if flips.gained:
        yield _flips_text(comparison, "fixed (fail → pass)", flips.gained)
    if flips.errored:
        yield _flips_text(comparison, "errored (ended in an error or not judged in A or B)", flips.errored)
    labels = labels_line(comparison)
    if labels:
        yield _text(labels)
    price = price_line(comparison)
    if price:
        yield _text(price)
    yield from map(_text, changed_lines(comparison))
    yield from map(_text, note_lines(comparison))


def _flips_text(comparison: Comparison, title: str, places: Sequence[int]) -> str:
    """Return the number of cases that flipped, and the ids of the first ones."""
    pairs = pairs_of(comparison)
    names = pairs.names(places[:SHOWN])
    shown = ", ".join(map(_code, names))
    if len(places) > SHOWN:
        shown += f" and {len(places) - SHOWN} more"
    return f"**{len(places)} {title}**: {shown}"


def _folded(title: str, lines: Iterable[str]) -> Iterator[str]:
    """Yield the lines as preformatted text that is collapsed until a reader opens it."""
    yield f"<details><summary>{title}</summary>"
    yield ""
    yield "```"
    for line in map(printable, lines):
        if line:
            yield line.replace("```", "'''")  # which would end the block
    yield "```"
    yield ""
    yield "</details>"


def _table(rows: Iterable[tuple[str, ...]]) -> Iterator[str]:
    """Yield the rows as a Markdown table. The first row is the heading."""
    for number, row in enumerate(rows):
        cells = [printable(cell).replace("|", "\\|") for cell in row]
        yield f"| {' | '.join(cells)} |"
        if number == 0:
            yield f"|{' --- |' * len(row)}"


def _code(text: str) -> str:
    """Return the text as inline code, which Markdown does not interpret."""
    verbatim = printable(text).replace("`", "'")
    return f"`{verbatim}`"


def _text(text: str) -> str:
    """Escape all Markdown in a text, since it may contain names from other people's files."""
    escaped = ""
    for character in printable(text):
        if character in _SPECIAL:
            escaped += "\\"
        escaped += character
    return escaped
