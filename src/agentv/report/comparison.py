"""Comparisons -> JSON for programs, a table for a terminal."""

from collections.abc import Callable, Iterable, Iterator, Sequence

import msgspec

from agentv.compare.gate import has_unmatched
from agentv.compare.pairs import Pairs
from agentv.compare.records import (
    BY,
    AnswerCosts,
    Changed,
    Comparison,
    Delta,
    Grading,
    LabelDifference,
    LabelFigure,
    Part,
    Source,
    Statistics,
)
from agentv.formats.printable import printable
from agentv.report.layout import wrap
from agentv.report.quantities import format_change, format_count, format_duration, format_money
from agentv.stats.inference import holm

SHOWN = 10
MAX_TARGETS = 5
LEVEL = 0.05


def json_blocks(comparisons: Sequence[Comparison]) -> Iterator[bytes]:
    """Yield the comparisons as JSON: an object, or for several files a list of them."""
    if len(comparisons) == 1:
        yield from _json(comparisons[0])
    else:
        yield b'{\n"comparisons": [\n'
        for number, comparison in enumerate(comparisons):
            yield b",\n" if number else b""
            yield from _json(comparison)
        yield b"\n]\n}"
    yield b"\n"


def _json(comparison: Comparison) -> Iterator[bytes]:
    encode = msgspec.json.Encoder()
    yield b'{\n  "matched": [\n'
    before = b"    "
    for chunk in pairs_of(comparison).chunks():
        yield before + encode.encode_lines(chunk).rstrip(b"\n").replace(b"\n", b",\n    ")
        before = b",\n    "
    rest = msgspec.json.encode(msgspec.structs.replace(comparison, matched=()))
    yield b"\n  ],\n" + msgspec.json.format(rest, indent=2).split(b"\n", 2)[2]


def verdict_lines(comparisons: Sequence[Comparison]) -> Iterator[str]:
    """Yield what a person should know first: the verdict, what else has changed, and notes."""
    for comparison in comparisons:
        found = comparison.statistics
        name = f"{comparison.files[1].path}: " if len(comparisons) > 1 else ""
        delta = found.delta
        figures = "" if delta is None else f"Δ {signed(delta.mean)}, {interval_text(delta)}, "
        pairs = _counted(found.pairs, "pair")
        yield f"{name}{_verdict(comparison)}: {figures}{pairs}, margin {found.margin:g}"
        yield from filter(None, [labels_line(comparison)])
        yield from changed_lines(comparison)
        costs = [
            f"{what} {a} -> {b}{f' ({change})' if change else ''}" for what, a, b, change in answer_costs(comparison)
        ]
        if costs:
            yield f"per answer: {', '.join(costs)}"
        if price := price_line(comparison):
            yield price
        yield from note_lines(comparison)


def _verdict(comparison: Comparison) -> str:
    """Return the verdict; where one file lacks cases of the other, it says of which cases it is."""
    found = comparison.statistics.verdict.upper()
    return f"{found}, of the cases in both" if has_unmatched(comparison) else found


def changed_lines(comparison: Comparison) -> Iterator[str]:
    """Yield what is not the same besides the answers, or that the answers are."""
    changed, grading = comparison.changed, comparison.grading
    if grading is not None:
        yield f"the answers are the same, and were scored again: {grading_text(grading)}"
    for name in changed.targets[:MAX_TARGETS]:
        yield f"target {name} is another version"
    if (more := len(changed.targets) - MAX_TARGETS) > 0:
        yield f"and so are {more} more targets"
    if text := describe_changes(changed):
        yield f"changed besides the target: {text}"


def grading_text(grading: Grading) -> str:
    """Return how far two gradings of the same answers agree."""
    pairs = grading.agreed + grading.flipped
    text = f"the gradings agree in {grading.agreed} of {pairs} pairs"
    if grading.kappa is None:
        return text
    low, high = grading.ci_lower, grading.ci_upper
    between = "" if low is None or high is None else f" (95%: {low:.2f} to {high:.2f})"
    return f"{text}, Cohen's kappa {grading.kappa:.2f}{between}"


def labels_line(comparison: Comparison) -> str:
    """Return by how much the runs differ by labels, or why nobody knows; empty if there are no labels."""
    labels = comparison.labels
    if not isinstance(labels, LabelDifference):
        return ""
    alone, corrected = labels.difference, labels.corrected
    if alone.value is None:
        return f"labels: {alone.note}"
    cases = _counted(labels.cases, "case")
    by_all = f"corrected {_label_figure(corrected)}" if corrected.value is not None else corrected.note
    same = f" ({labels.same_answers} of {labels.of} cases have the same answer)" if labels.same_answers else ""
    return f"labels: pass rate {_label_figure(alone)} by {cases} labelled in both, {by_all}{same}"


def _label_figure(found: LabelFigure) -> str:
    value, low, high = found.value or 0.0, found.ci_lower or 0.0, found.ci_upper or 0.0
    return f"Δ {signed(value)}, 95% CI [{signed(low)}, {signed(high)}]"


def answer_costs(comparison: Comparison) -> Iterator[tuple[str, str, str, str]]:
    """Yield what an answer took on both sides, and the change, as far as it is known."""
    rows: tuple[tuple[str, str, Callable[[float], str]], ...] = (
        ("input tokens", "input_tokens", format_count),
        ("output tokens", "output_tokens", format_count),
        ("reasoning tokens", "reasoning_tokens", format_count),
        ("cost", "cost_usd", format_money),
        ("duration p50", "duration_p50_ms", format_duration),
        ("duration p95", "duration_p95_ms", format_duration),
    )
    for title, name, text in rows:
        before, after = (getattr(file.per_answer, name) for file in comparison.files)
        if (before is None and after is None) or (name == "reasoning_tokens" and not before and not after):
            continue
        first, second = ("unknown" if value is None else text(value) for value in (before, after))
        is_known = before is not None and after is not None and (first != second or before == after)
        change = format_change(before, after) if is_known else ""
        yield title, first, second, change


def price_line(comparison: Comparison) -> str:
    """Return whether B is cheaper or dearer, and of how many answers that is known; empty if it is of none."""
    first, second = (file.per_answer for file in comparison.files)
    if first.cost_usd is None or second.cost_usd is None:
        return ""
    found = "costs as much as A"
    if first.cost_usd != second.cost_usd:
        by = abs(second.cost_usd - first.cost_usd) / first.cost_usd if first.cost_usd else None
        word = "cheaper" if second.cost_usd < first.cost_usd else "dearer"
        found = f"is {by:.0%} {word} than A" if by is not None else f"is {word} than A"
    known = " and ".join(_known_of(name, costs) for name, costs in (("A", first), ("B", second)))
    return f"an answer of B {found} (cost known of {known})"


def _known_of(name: str, costs: AnswerCosts) -> str:
    return f"{costs.cost_known} of {costs.answers} answers of {name}"


def note_lines(comparison: Comparison) -> Iterator[str]:
    yield from (f"warning: {warning}" for warning in comparison.warnings)
    yield from (f"note: {note}" for note in comparison.notes)
    yield from (f"note: {note}" for note in comparison.statistics.notes)
    if isinstance(comparison.labels, LabelDifference):
        yield from (f"note: labels: {note}" for note in comparison.labels.notes)
    for file in dict.fromkeys(comparison.files):
        if file.ambiguous:
            results = "1 result has" if file.ambiguous == 1 else f"{file.ambiguous} results have"
            yield f"note: {file.path}: {results} an id of another dataset or target too: it counts with the mean"


def table_lines(comparisons: Sequence[Comparison], width: int | None = None) -> Iterator[str]:
    """Yield a table for a terminal: all the figures of two files, or one line for each of several.

    Lines are broken where they would not fit into `width` columns, never inside a number.
    """
    for line in _table_lines(comparisons, width):
        yield from [line] if width is None else wrap(line, width)


def _table_lines(comparisons: Sequence[Comparison], width: int | None) -> Iterator[str]:
    if len(comparisons) == 1:
        yield from map(printable, detail_lines(comparisons[0], width))
        return
    yield f"A = {_file(comparisons[0].files[0])}"
    yield from _align(matrix_rows(comparisons), width)
    for comparison in comparisons:
        yield from extra_lines(comparison, width)


def extra_lines(comparison: Comparison, width: int | None = None) -> Iterator[str]:
    """Yield what the line of one of several comparisons has no room for."""
    yield ""
    yield printable(f"{comparison.files[1].path}: {' | '.join(_counts(comparison))}")
    yield from filter(None, [labels_line(comparison)])
    yield from changed_lines(comparison)
    yield from map(printable, note_lines(comparison))
    yield from _cost_lines(comparison, width)
    for kind, parts in comparison.by.items():
        yield from _align(part_rows(kind, parts), width)


def matrix_rows(comparisons: Sequence[Comparison]) -> Iterator[tuple[str, ...]]:
    parts = [comparison.statistics for comparison in comparisons]
    p_values = iter(holm([part.tests[0].p_value for part in parts if part.tests]))
    names = [printable(comparison.files[1].path) for comparison in comparisons]
    pairs = zip(names, [next(p_values) if part.tests else None for part in parts], parts, strict=True)
    return part_rows("B", (Part(name=name, p_adjusted=p_value, statistics=part) for name, p_value, part in pairs))


def part_rows(what: str, parts: Iterable[Part]) -> Iterator[tuple[str, ...]]:
    """Yield a heading, and a row of figures for each part."""
    yield what, "pairs", "mean A", "mean B", "Δ", "95% CI", "p (Holm)", "verdict"
    for part in parts:
        found = part.statistics
        if found.delta is None or found.mean1 is None or found.mean2 is None:
            yield part.name, "0", "", "", "", "", "", found.verdict
            continue
        means = f"{found.mean1:.3f}", f"{found.mean2:.3f}", signed(found.delta.mean)
        p_value = "" if part.p_adjusted is None else _p(part.p_adjusted)
        yield part.name, str(found.pairs), *means, _bare_interval(found.delta), p_value, found.verdict


def detail_lines(comparison: Comparison, width: int | None = None) -> Iterator[str]:
    found, summary, files = comparison.statistics, comparison.summary, comparison.files
    yield f"A = {_file(files[0])}   B = {_file(files[1])}"
    yield " | ".join(_counts(comparison))
    yield from changed_lines(comparison)
    yield from _figures(found, "")
    if comparison.unchanged is not None:
        yield f"only the {comparison.unchanged.pairs} pairs of which nothing else has changed:"
        yield from _figures(comparison.unchanged, "  ")
    wins = f"wins {summary.wins}  losses {summary.losses}  ties {summary.ties}"
    yield f"{wins}   (threshold {_threshold(comparison.threshold)}: a display rule, not a test)"
    yield from _limits(found)
    yield from filter(None, [labels_line(comparison)])
    yield from _cost_lines(comparison, width)
    for kind, parts in comparison.by.items():
        yield ""
        yield from _align(part_rows(kind, parts), width)
        yield ""
    yield from note_lines(comparison)
    yield f"verdict: {_verdict(comparison)}   ({'; '.join(_reasons(comparison))})"
    worst, best = pairs_of(comparison).extremes(SHOWN)
    for title, pairs in (("largest regressions", worst), ("largest gains", best)):
        if pairs:
            yield f"{title}: {', '.join(f'{pair.eval_id} {signed(pair.delta, 2)}' for pair in pairs)}"


def _threshold(value: float) -> str:
    return f"{value:.2f}" if round(value, 2) == value else f"{value:g}"


def pairs_of(comparison: Comparison) -> Pairs:
    assert isinstance(comparison.matched, Pairs)
    return comparison.matched


def _file(source: Source) -> str:
    about = [", ".join(source.targets)] if source.targets else []
    about += [source.timestamp[:10]] if source.timestamp else []
    return f"{source.path} ({', '.join(about)})" if about else source.path


def _counts(comparison: Comparison) -> Iterator[str]:
    summary, unmatched = comparison.summary, comparison.unmatched
    yield f"cases {summary.total}"
    yield f"in both {summary.matched}"
    yield f"only A {unmatched.file1}, only B {unmatched.file2}"
    yield f"scored in both {comparison.statistics.pairs}"
    counted = {
        "errors": [file.errors for file in comparison.files],
        "judge-failed": [file.judge_failures for file in comparison.files],
        "retried": [file.retried for file in comparison.files],
        "cut off": [file.cut_off for file in comparison.files],
        "repeats": [summary.repeats.file1, summary.repeats.file2],
    }
    for what, counts in counted.items():
        if any(counts):
            yield f"{what} {', '.join(f'{side} {count}' for side, count in zip('AB', counts, strict=True) if count)}"


def describe_changes(changed: Changed) -> str:
    """Return what else has changed, as text."""
    texts = {
        "the judge's prompt or script": changed.prompts,
        "the judge": changed.judges,
        "the evaluators": changed.evaluators if not changed.prompts and not changed.judges else 0,
        "the results of one case in one file": changed.mixed,
        "how agentv scores": changed.scoring,
        "the version of agentv": changed.agentv,
        "answered in a batch on one side only": changed.batch,
    }
    cases = [f"the texts or files of {_counted(changed.cases, 'case')}"] if changed.cases else []
    return ", ".join(cases + [f"{text} ({_counted(count, 'pair')})" for text, count in texts.items() if count])


def _counted(count: int, what: str) -> str:
    return f"1 {what}" if count == 1 else f"{count} {what}s"


def _figures(found: Statistics, indent: str) -> Iterator[str]:
    delta, passes = found.delta, found.passes
    if delta is None or passes is None:
        yield f"{indent}no pair has a score on both sides"
        return
    how = [delta.method.partition(",")[0]]
    how += [f"{delta.clusters} clusters"] if delta.clusters is not None else []
    how += [f"deff {delta.design_effect:.1f}"] if delta.design_effect is not None else []
    means = f"A {found.mean1:.3f}   B {found.mean2:.3f}   Δ {signed(delta.mean)}"
    yield f"{indent}mean   {means}   {interval_text(delta)}   ({', '.join(how)})"
    tests = {test.name: test for test in found.tests}
    flips = tests["sign-flip permutation"]
    yield f"{indent}       {flips.name} p = {_p(flips.p_value)} ({flips.method})"
    counts = f"A {passes.passed1:<5}   B {passes.passed2:<5}   flips: +{passes.gained} / −{passes.lost}"
    yield f"{indent}pass   {counts}   exact McNemar p = {_p(tests['exact McNemar'].p_value)}"


def _limits(found: Statistics) -> Iterator[str]:
    bounds = found.bounds
    if bounds is not None and bounds.unscored:
        between = f"[{signed(bounds.lower)}, {signed(bounds.upper)}]"
        what = "the unscored pair" if bounds.unscored == 1 else f"the {bounds.unscored} unscored pairs"
        yield f"bounds if {what} went either way: Δ in {between}"
    if found.mde is not None and found.delta is not None:
        size = "smaller" if abs(found.delta.mean) < found.mde else "not smaller"
        yield f"this design can detect |Δ| ≥ {found.mde:.3f} (80% power); observed is {size}"


def _reasons(comparison: Comparison) -> Iterator[str]:
    yield "primary metric: score"
    yield f"margin {comparison.statistics.margin:g}"
    for kind, parts in comparison.by.items():
        significant = [part.name for part in parts if part.p_adjusted is not None and part.p_adjusted <= LEVEL]
        many = "s" if len(parts) != 1 else ""
        what = f"{len(parts)} {kind}{many}" if kind in BY else f"{len(parts)} group{many} of {kind}"
        yield f"Holm over {what}: {', '.join(significant) or 'none'} significant"


def _cost_lines(comparison: Comparison, width: int | None) -> Iterator[str]:
    if costs := list(answer_costs(comparison)):
        yield from _align([("per answer", "A", "B", "change"), *costs], width)
    if price := price_line(comparison):
        yield from wrap(price, width) if width is not None else [price]


def _align(rows: Iterable[tuple[str, ...]], width: int | None = None) -> Iterator[str]:
    """Yield rows in columns; if these are wider than `width`, the figures of each row below its name."""
    table = [tuple(map(printable, row)) for row in rows]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    if width is not None and sum(widths) + 3 * (len(widths) - 1) > width:
        for row in table[1:]:
            yield row[0]
            named = zip(table[0][1:], row[1:], strict=True)
            yield from wrap(f"  {', '.join(f'{name} {cell}' for name, cell in named if cell)}", width)
        return
    for row in table:
        yield "   ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


def signed(value: float, digits: int = 3) -> str:
    return f"{value:+.{digits}f}".replace("-", "−")


def _bare_interval(delta: Delta) -> str:
    if delta.ci_lower is None or delta.ci_upper is None:
        return "none (no variation)" if delta.se == 0 else "none"
    return f"[{signed(delta.ci_lower)}, {signed(delta.ci_upper)}]"


def interval_text(delta: Delta) -> str:
    return f"95% CI {_bare_interval(delta)}"


def _p(value: float) -> str:
    return f"{value:.2g}" if value >= 0.0001 else "< 0.0001"
