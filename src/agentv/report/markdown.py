"""Comparisons -> markdown for a comment on a pull request: the verdict first, all that is long at the end, folded."""

from collections.abc import Iterable, Iterator, Sequence

from agentv.compare.gate import has_unmatched
from agentv.compare.records import Comparison
from agentv.formats.printable import printable
from agentv.report.comparison import (
    SHOWN,
    answer_costs,
    changed_lines,
    detail_lines,
    extra_lines,
    interval_text,
    labels_line,
    matrix_rows,
    note_lines,
    pairs_of,
    part_rows,
    price_line,
    signed,
)


def markdown_lines(comparisons: Sequence[Comparison]) -> Iterator[str]:
    """Yield markdown for a pull request: the verdict, the worst regressions, the figures, what flipped and changed."""
    if len(comparisons) > 1:
        yield f"### agentv: {len(comparisons)} runs against {_code(comparisons[0].files[0].path)}"
        yield ""
        yield from _table(matrix_rows(comparisons))
        yield ""
        yield from _folded("All figures", (line for each in comparisons for line in extra_lines(each)))
        return
    comparison = comparisons[0]
    yield f"### agentv: {comparison.statistics.verdict}{', of the cases in both' if has_unmatched(comparison) else ''}"
    yield ""
    worst, _ = pairs_of(comparison).extremes(SHOWN)
    if worst:
        rows = [(_code(pair.eval_id), f"{pair.score1:g}", f"{pair.score2:g}", signed(pair.delta)) for pair in worst]
        yield from _table([("worst regressions", "A", "B", "Δ"), *rows])
        yield ""
    yield from _table(_figures(comparison))
    yield ""
    for kind, parts in comparison.by.items():
        yield from _table(part_rows(kind, parts))
        yield ""
    if points := list(_points(comparison)):
        yield from (f"- {point}" for point in points)
        yield ""
    yield from _folded("All figures", detail_lines(comparison))


def _figures(comparison: Comparison) -> Iterator[tuple[str, ...]]:
    """Yield the rows of a table with both runs side by side."""
    found, files, summary = comparison.statistics, comparison.files, comparison.summary
    yield "", f"A {_code(files[0].path)}", f"B {_code(files[1].path)}", "change"
    delta, passes = found.delta, found.passes
    if delta is not None and found.mean1 is not None and found.mean2 is not None:
        change = f"**{signed(delta.mean)}**, {interval_text(delta)}"
        yield f"mean of {found.pairs}", f"{found.mean1:.3f}", f"{found.mean2:.3f}", change
    if passes is not None:
        yield "passed", str(passes.passed1), str(passes.passed2), f"+{passes.gained} / −{passes.lost}"
    yield "wins and losses", "", "", f"+{summary.wins} / −{summary.losses}"
    for what, name in (("errors", "errors"), ("judge failures", "judge_failures"), ("cut off", "cut_off")):
        counts = [getattr(file, name) for file in files]
        if any(counts):
            yield what, *map(str, counts), ""
    for what, before, after, change in answer_costs(comparison):
        yield what, before, after, change


def _points(comparison: Comparison) -> Iterator[str]:
    """Yield what flipped, what has changed besides, and what a reader must know."""
    broken, fixed = pairs_of(comparison).flips()
    for title, places in (("broke (pass → fail)", broken), ("fixed (fail → pass)", fixed)):
        if places:
            shown = ", ".join(_code(pairs_of(comparison)[place].eval_id) for place in places[:SHOWN])
            more = f" and {len(places) - SHOWN} more" if len(places) > SHOWN else ""
            yield f"**{len(places)} {title}**: {shown}{more}"
    if labels := labels_line(comparison):
        yield _text(labels)
    if price := price_line(comparison):
        yield _text(price)
    yield from map(_text, changed_lines(comparison))
    yield from map(_text, note_lines(comparison))


def _folded(title: str, lines: Iterable[str]) -> Iterator[str]:
    """Yield lines as they are, out of sight until somebody opens them."""
    yield f"<details><summary>{title}</summary>"
    yield ""
    yield "```"
    yield from (line.replace("```", "'''") for line in map(printable, lines) if line)
    yield "```"
    yield ""
    yield "</details>"


def _table(rows: Iterable[tuple[str, ...]]) -> Iterator[str]:
    for number, row in enumerate(rows):
        yield f"| {' | '.join(printable(cell).replace('|', chr(92) + '|') for cell in row)} |"
        if number == 0:
            yield f"|{' --- |' * len(row)}"


def _code(text: str) -> str:
    """Return the text as code, which markdown shows as it is."""
    return f"`{printable(text).replace('`', chr(39))}`"


def _text(text: str) -> str:
    """Return a text in which nothing is markup: names in it are anybody's."""
    return "".join(f"\\{sign}" if sign in "\\`*_[]<>#|!&@~" else sign for sign in printable(text))
