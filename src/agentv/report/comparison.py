"""Format comparisons as JSON for programs, and as a table for a terminal."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec

from agentv.compare.gate import has_unmatched
from agentv.compare.groups import make_part
from agentv.compare.pairs import pairs_of
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
from agentv.compare.verdict import LEVEL
from agentv.files.printable import printable
from agentv.report.layout import wrap
from agentv.report.metrics import MAX_METRICS, format_difference, format_value, interval_of_metric
from agentv.stats.inference import holm
from agentv.stats.metrics import MetricDifference
from agentv.text import format_change, format_count, format_duration, format_money, join_names, plural

SHOWN = 10
"""The maximum number of regressions and gains that are listed."""
MAX_TARGETS = 5
_COLUMN_GAP = "   "
Row = tuple[str, ...]
Rows = Sequence[Row]
Format = Callable[[float], str]


def json_blocks(comparisons: Sequence[Comparison]) -> Iterator[bytes]:
    """Yield the comparisons as JSON: one object, or an object with a list if there are several."""
    if len(comparisons) == 1:
        yield from _json(comparisons[0])
    else:
        yield b'{\n"comparisons": [\n'
        for number, comparison in enumerate(comparisons):
            if number:
                yield b",\n"
            yield from _json(comparison)
        yield b"\n]\n}"
    yield b"\n"


def _json(comparison: Comparison) -> Iterator[bytes]:
    """Yield a comparison as JSON, one line per pair. There may be a million pairs, so they are encoded in chunks."""
    encoder = msgspec.json.Encoder()
    yield b'{\n  "matched": [\n'
    separator = b"    "
    for chunk in pairs_of(comparison).chunks():
        lines = encoder.encode_lines(chunk).rstrip(b"\n")
        yield separator + lines.replace(b"\n", b",\n    ")
        separator = b",\n    "
    without_pairs = msgspec.structs.replace(comparison, matched=())
    encoded = msgspec.json.encode(without_pairs)
    formatted = msgspec.json.format(encoded, indent=2)
    # The first two lines are the opening brace and the empty list of pairs, which were written above.
    rest = formatted.split(b"\n", 2)[2]
    yield b"\n  ],\n" + rest


def verdict_lines(comparisons: Sequence[Comparison]) -> Iterator[str]:
    """Yield the verdict of each comparison, what else has changed, and notes."""
    for comparison in comparisons:
        name = ""
        if len(comparisons) > 1:
            name = f"{comparison.files[1].path}: "
        statistics = comparison.statistics
        difference = ""
        if statistics.delta is not None:
            difference = f"Δ {format_signed(statistics.delta.mean)}, {interval_text(statistics.delta)}, "
        pairs = plural(statistics.pairs, "pair")
        yield f"{name}{_verdict(comparison)}: {difference}{pairs}, margin {statistics.margin:g}"
        yield from _optional(labels_line(comparison))
        yield from changed_lines(comparison)
        costs = cost_changes(comparison)
        if costs:
            yield f"per answer: {costs}"
        yield from _optional(price_line(comparison))
        yield from note_lines(comparison)


def _optional(line: str) -> Iterator[str]:
    """Yield the line unless it is empty."""
    if line:
        yield line


def _verdict(comparison: Comparison) -> str:
    """Return the verdict. If one file lacks cases of the other, add that it is about the cases in both."""
    verdict = comparison.statistics.verdict.upper()
    if has_unmatched(comparison):
        return f"{verdict} (for the cases in both runs)"
    return verdict


def changed_lines(comparison: Comparison) -> Iterator[str]:
    """Yield what differs between the runs in addition to the answers, and whether only the scoring differs."""
    if comparison.grading is not None:
        yield f"both runs have the same answers, only the scoring differs: {grading_text(comparison.grading)}"
    targets = comparison.changed.targets
    for name in targets[:MAX_TARGETS]:
        yield f"target {name!r} has changed between the runs"
    more = len(targets) - MAX_TARGETS
    if more > 0:
        yield f"{more} more targets have changed"
    changes = describe_changes(comparison.changed)
    if changes:
        yield f"other changes: {changes}"
    if comparison.changed.formats:
        yield describe_formats(comparison.changed)


def grading_text(grading: Grading) -> str:
    """Return the agreement of two gradings of the same answers."""
    pairs = grading.agreed + grading.flipped
    text = f"the gradings agree for {grading.agreed} of {pairs} pairs"
    if grading.kappa is None:
        return text
    text += f", Cohen's kappa {grading.kappa:.2f}"
    if grading.ci_lower is not None and grading.ci_upper is not None:
        text += f" (95%: {grading.ci_lower:.2f} to {grading.ci_upper:.2f})"
    return text


def labels_line(comparison: Comparison) -> str:
    """Return the difference of the pass rates by human labels, or why it is unknown. Empty without labels."""
    labels = comparison.labels
    if not isinstance(labels, LabelDifference):
        return ""
    if labels.difference.value is None:
        return f"labels: {labels.difference.note}"
    corrected = labels.corrected.note
    if labels.corrected.value is not None:
        corrected = f"corrected {_label_figure(labels.corrected)}"
    same = ""
    if labels.same_answers:
        same = f" ({labels.same_answers} of {labels.of} cases have the same answer)"
    difference = f"{_label_figure(labels.difference)} by {plural(labels.cases, 'case')} labelled in both"
    return f"labels: pass rate {difference}, {corrected}{same}"


def _label_figure(figure: LabelFigure) -> str:
    value = format_signed(figure.value or 0.0)
    low = format_signed(figure.ci_lower or 0.0)
    high = format_signed(figure.ci_upper or 0.0)
    return f"Δ {value}, 95% CI [{low}, {high}]"


class CostRow(NamedTuple):
    """The usage per answer in both runs, and the relative change. Empty if the change is unknown."""

    what: str
    before: str
    after: str
    change: str


_COSTS: tuple[tuple[str, str, Format], ...] = (
    ("input tokens", "input_tokens", format_count),
    ("output tokens", "output_tokens", format_count),
    ("reasoning tokens", "reasoning_tokens", format_count),
    ("cost", "cost_usd", format_money),
    ("duration p50", "duration_p50_ms", format_duration),
    ("duration p95", "duration_p95_ms", format_duration),
)
"""The figures per answer: title, field of `AnswerCosts`, and formatter."""


def answer_costs(comparison: Comparison) -> Iterator[CostRow]:
    """Yield the tokens, cost and duration per answer, each if at least one of the runs reports it."""
    first, second = comparison.files
    for title, field, text in _COSTS:
        before = getattr(first.per_answer, field)
        after = getattr(second.per_answer, field)
        if before is None and after is None:
            continue
        if field == "reasoning_tokens" and not before and not after:
            continue
        before_text = _text_or_unknown(before, text)
        after_text = _text_or_unknown(after, text)
        change = ""
        is_known = before is not None and after is not None
        # A change that is too small to show in the texts is not given in percent either.
        if is_known and (before_text != after_text or before == after):
            change = format_change(before, after)
        yield CostRow(title, before_text, after_text, change)


def _text_or_unknown(value: float | None, text: Format) -> str:
    if value is None:
        return "unknown"
    return text(value)


def cost_changes(comparison: Comparison, arrow: str = "->") -> str:
    """Return the usage per answer in both runs as text, or an empty string if it is unknown."""
    parts = []
    for row in answer_costs(comparison):
        part = f"{row.what} {row.before} {arrow} {row.after}"
        if row.change:
            part += f" ({row.change})"
        parts.append(part)
    return ", ".join(parts)


def price_line(comparison: Comparison) -> str:
    """Return whether B is cheaper or more expensive than A. Empty if the cost of one of them is unknown."""
    first, second = (file.per_answer for file in comparison.files)
    if first.cost_usd is None or second.cost_usd is None:
        return ""
    known = f"cost reported for {_cost_known(first)} in A and {_cost_known(second)} in B"
    if first.cost_usd == second.cost_usd:
        return f"an answer costs the same in A and B ({known})"
    word = "more expensive"
    if second.cost_usd < first.cost_usd:
        word = "cheaper"
    by = ""
    if first.cost_usd:
        share = abs(second.cost_usd - first.cost_usd) / first.cost_usd
        by = f"{share:.0%} "
    return f"an answer in B is {by}{word} than in A ({known})"


def _cost_known(costs: AnswerCosts) -> str:
    return f"{costs.cost_known} of {costs.answers} answers"


def note_lines(comparison: Comparison) -> Iterator[str]:
    """Yield warnings and notes about the figures."""
    for warning in comparison.warnings:
        yield f"warning: {warning}"
    for note in (*comparison.notes, *comparison.statistics.notes):
        yield f"note: {note}"
    if isinstance(comparison.labels, LabelDifference):
        for note in comparison.labels.notes:
            yield f"note: labels: {note}"
    for file in dict.fromkeys(comparison.files):  # a file may be compared with itself
        if not file.ambiguous:
            continue
        results = plural(file.ambiguous, "result has", "results have")
        yield f"note: {file.path}: {results} the same id as a result of another target; the mean score is used"


def table_lines(comparisons: Sequence[Comparison], width: int | None = None) -> Iterator[str]:
    """Yield a table for a terminal: all figures of one comparison, or one row for each of several.

    Lines longer than `width` are broken, never inside a number.
    """
    for line in _table_lines(comparisons, width):
        if width is None:
            yield line
        else:
            yield from wrap(line, width)


def _table_lines(comparisons: Sequence[Comparison], width: int | None) -> Iterator[str]:
    if len(comparisons) == 1:
        yield from map(printable, detail_lines(comparisons[0], width))
        return
    yield f"A = {_source_text(comparisons[0].files[0])}"
    yield from _align(matrix_rows(comparisons), width)
    for comparison in comparisons:
        yield from extra_lines(comparison, width)


def extra_lines(comparison: Comparison, width: int | None = None) -> Iterator[str]:
    """Yield the figures that the row of one of several comparisons does not have."""
    yield ""
    yield printable(f"{comparison.files[1].path}: {' | '.join(_counts(comparison))}")
    yield from _optional(labels_line(comparison))
    yield from changed_lines(comparison)
    yield from map(printable, note_lines(comparison))
    yield from _cost_lines(comparison, width)
    yield from _metric_lines(comparison, width)
    for kind, parts in shown_groups(comparison):
        yield from _align(part_rows(kind, parts), width)


def shown_groups(comparison: Comparison) -> Iterator[tuple[str, Sequence[Part]]]:
    """Yield the groups of each key. There are none for a key that no result has, which a note reports."""
    for kind, parts in comparison.by.items():
        if parts:
            yield kind, parts


def matrix_rows(comparisons: Sequence[Comparison]) -> Iterator[Row]:
    """Yield a heading and one row per comparison, with p-values adjusted for their number."""
    p_values = []
    for comparison in comparisons:
        tests = comparison.statistics.tests
        if tests:
            p_values.append(tests[0].p_value)
    adjusted = iter(holm(p_values))
    parts = []
    for comparison in comparisons:
        p_holm = None
        if comparison.statistics.tests:
            p_holm = next(adjusted)
        name = printable(comparison.files[1].path)
        parts.append(make_part(name, p_holm, comparison.statistics))
    return part_rows("B", parts)


def part_rows(what: str, parts: Iterable[Part]) -> Iterator[Row]:
    """Yield a heading, and a row of figures for each part."""
    yield what, "pairs", "mean A", "mean B", "Δ", "95% CI", "p (Holm)", "pass A", "pass B", "Δ pass, 95% CI", "verdict"
    for part in parts:
        found = part.statistics
        if found.delta is None or found.mean1 is None or found.mean2 is None:
            yield part.name, "0", "", "", "", "", "", "", "", "", found.verdict
            continue
        p_value = ""
        if part.p_holm is not None:
            p_value = _p_text(part.p_holm)
        yield (
            part.name,
            str(found.pairs),
            f"{found.mean1:.3f}",
            f"{found.mean2:.3f}",
            format_signed(found.delta.mean),
            _bare_interval(found.delta),
            p_value,
            *_pass_cells(found),
            found.verdict,
        )


def _pass_cells(found: Statistics) -> tuple[str, str, str]:
    """Return the pass rates of both runs, and the interval of their difference."""
    passes = found.passes
    if passes is None:
        return "", "", ""
    return (
        f"{passes.passed1 / found.pairs:.3f}",
        f"{passes.passed2 / found.pairs:.3f}",
        f"[{format_signed(passes.ci_lower)}, {format_signed(passes.ci_upper)}]",
    )


def detail_lines(comparison: Comparison, width: int | None = None) -> Iterator[str]:
    """Yield all figures of a comparison."""
    first, second = comparison.files
    yield f"A = {_source_text(first)}   B = {_source_text(second)}"
    yield " | ".join(_counts(comparison))
    yield from changed_lines(comparison)
    yield from _statistics_lines(comparison.statistics, "")
    if comparison.unchanged is not None:
        yield f"only the {comparison.unchanged.pairs} pairs in which nothing else changed:"
        yield from _statistics_lines(comparison.unchanged, "  ")
    summary = comparison.summary
    wins = f"wins {summary.wins}  losses {summary.losses}  ties {summary.ties}"
    yield f"{wins}   (threshold {_threshold_text(comparison.threshold)}: for display only, not a test)"
    yield from _optional(errored_line(comparison))
    yield from _limit_lines(comparison.statistics)
    yield from _optional(labels_line(comparison))
    yield from _cost_lines(comparison, width)
    yield from _metric_lines(comparison, width)
    for kind, parts in shown_groups(comparison):
        yield ""
        yield from _align(part_rows(kind, parts), width)
        yield ""
    yield from note_lines(comparison)
    yield f"verdict: {_verdict(comparison)}   ({'; '.join(_reasons(comparison))})"
    worst, best = pairs_of(comparison).extremes(SHOWN)
    for title, pairs in (("largest regressions", worst), ("largest gains", best)):
        if pairs:
            cases = ", ".join(f"{pair.name} {format_signed(pair.delta, 2)}" for pair in pairs)
            yield f"{title}: {cases}"


def errored_line(comparison: Comparison) -> str:
    """Return the cases that ended in an error or were not judged in one of the runs, or an empty string."""
    if not comparison.summary.errored:
        return ""
    pairs = pairs_of(comparison)
    errored = pairs.flips.errored
    names = join_names(pairs.names(errored), SHOWN)
    return f"errored {len(errored)}: {names}   (ended in an error or not judged in A or B; not counted as regressions)"


def _threshold_text(value: float) -> str:
    if round(value, 2) == value:
        return f"{value:.2f}"
    return f"{value:g}"


def _source_text(source: Source) -> str:
    """Return the path of a results file, with its targets and the date of its results."""
    about = []
    if source.targets:
        about.append(", ".join(source.targets))
    if source.timestamp:
        about.append(source.timestamp[:10])
    if not about:
        return source.path
    return f"{source.path} ({', '.join(about)})"


def _counts(comparison: Comparison) -> Iterator[str]:
    """Yield the number of cases in each file and in both, and the number of errors and similar results, if any."""
    summary = comparison.summary
    unmatched = comparison.unmatched
    yield f"cases {summary.total}"
    yield f"in both {summary.matched}"
    yield f"only A {unmatched.file1}, only B {unmatched.file2}"
    yield f"scored in both {comparison.statistics.pairs}"
    first, second = comparison.files
    counts = {
        "errors": (first.errors, second.errors),
        "judge-failed": (first.judge_failures, second.judge_failures),
        "retried": (first.retried, second.retried),
        "cut off": (first.cut_off, second.cut_off),
        "repeats": (summary.repeats.file1, summary.repeats.file2),
    }
    for what, (count_a, count_b) in counts.items():
        sides = []
        if count_a:
            sides.append(f"A {count_a}")
        if count_b:
            sides.append(f"B {count_b}")
        if sides:
            yield f"{what} {', '.join(sides)}"


def describe_changes(changed: Changed) -> str:
    """Return what else differs between the runs, with the number of pairs, or an empty string."""
    # A changed prompt or judge changes the digest of the evaluators as well.
    evaluators = changed.evaluators
    if changed.prompts or changed.judges:
        evaluators = 0
    pairs = {
        "the judge's prompt or script": changed.prompts,
        "the judge": changed.judges,
        "the evaluators": evaluators,
        "several versions of a case in one file": changed.mixed,
        "the scoring rules of agentv": changed.scoring,
        "batch API used for one run only": changed.batch,
    }
    texts = []
    if changed.cases:
        texts.append(f"the content of {plural(changed.cases, 'case')}")
    for what, count in pairs.items():
        if count:
            texts.append(f"{what} ({plural(count, 'pair')})")
    return ", ".join(texts)


def describe_formats(changed: Changed) -> str:
    """Return what cannot be compared because the digests of the runs have different formats."""
    pairs = plural(changed.formats, "pair has", "pairs have")
    return f"{pairs} different digest formats: changed evaluators, judge prompts and targets may go unnoticed"


def _statistics_lines(found: Statistics, indent: str) -> Iterator[str]:
    """Yield the means, the difference and the pass counts, with their tests."""
    delta = found.delta
    passes = found.passes
    if delta is None or passes is None:
        yield f"{indent}no case has a score in both runs"
        return
    method = [delta.method.partition(",")[0]]
    if delta.clusters is not None:
        method.append(f"{delta.clusters} clusters")
    if delta.design_effect is not None:
        method.append(f"deff {delta.design_effect:.1f}")
    means = f"A {found.mean1:.3f}   B {found.mean2:.3f}   Δ {format_signed(delta.mean)}"
    yield f"{indent}mean   {means}   {interval_text(delta)}   ({', '.join(method)})"
    tests = {test.name: test for test in found.tests}
    permutation = tests["sign-flip permutation"]
    mcnemar = tests["exact McNemar"]
    yield f"{indent}       {permutation.name} p = {_p_text(permutation.p_value)} ({permutation.method})"
    counts = f"A {passes.passed1:<5}   B {passes.passed2:<5}   flips: +{passes.gained} / −{passes.lost}"
    yield f"{indent}pass   {counts}   exact McNemar p = {_p_text(mcnemar.p_value)}"


def _limit_lines(found: Statistics) -> Iterator[str]:
    """Yield the bounds of the difference if pairs are unscored, and the minimum detectable effect."""
    bounds = found.bounds
    if bounds is not None and bounds.unscored:
        what = f"the {bounds.unscored} unscored pairs were"
        if bounds.unscored == 1:
            what = "the unscored pair was"
        yield f"if {what} scored, Δ could be {format_signed(bounds.lower)} to {format_signed(bounds.upper)}"
    if found.mde is not None and found.delta is not None:
        size = "at least as large"
        if abs(found.delta.mean) < found.mde:
            size = "smaller"
        yield f"minimum detectable effect (80% power): {found.mde:.3f}; observed Δ is {size}"


def _reasons(comparison: Comparison) -> Iterator[str]:
    """Yield what the verdict is based on."""
    yield "primary metric: score"
    yield f"margin {comparison.statistics.margin:g}"
    for kind, parts in shown_groups(comparison):
        significant = []
        for part in parts:
            if part.p_holm is not None and part.p_holm < LEVEL:
                significant.append(part.name)
        what = plural(len(parts), kind)
        if kind not in BY:
            what = f"{plural(len(parts), 'group')} of {kind}"
        yield f"Holm over {what}: {', '.join(significant) or 'none'} significant"


def _cost_lines(comparison: Comparison, width: int | None) -> Iterator[str]:
    costs = list(answer_costs(comparison))
    if costs:
        heading = ("per answer", "A", "B", "change")
        yield from _align([heading, *costs], width)
    price = price_line(comparison)
    if price and width is not None:
        yield from wrap(price, width)
    elif price:
        yield price


def _metric_lines(comparison: Comparison, width: int | None) -> Iterator[str]:
    if comparison.metrics:
        yield from _align(metric_rows(comparison.metrics), width)


def metric_rows(metrics: Mapping[str, MetricDifference]) -> Iterator[Row]:
    """Yield a heading and a row per metric of two runs. Yield nothing without metrics."""
    if not metrics:
        return
    yield "metric", "A", "B", "Δ", "95% CI"
    for name, metric in list(metrics.items())[:MAX_METRICS]:
        yield (
            printable(name),
            format_value(metric.value1),
            format_value(metric.value2),
            format_difference(metric.delta.value),
            interval_of_metric(metric.delta, format_difference),
        )


def _align(rows: Iterable[Row], width: int | None = None) -> Iterator[str]:
    """Yield the lines of a table. If it is wider than `width`, yield the cells of each row below its name instead."""
    table: Rows = [tuple(map(printable, row)) for row in rows]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    gaps = len(_COLUMN_GAP) * (len(widths) - 1)
    table_width = sum(widths) + gaps
    if width is not None and table_width > width:
        yield from _stack(table, width)
        return
    for row in table:
        cells = [cell.ljust(size) for cell, size in zip(row, widths, strict=True)]
        yield _COLUMN_GAP.join(cells).rstrip()


def _stack(table: Rows, width: int) -> Iterator[str]:
    """Yield the title and name of each row, and below it the titles and cells of the other columns."""
    titles = table[0]
    for row in table[1:]:
        yield from wrap(f"{titles[0]}: {row[0]}", width)
        cells = []
        for title, cell in zip(titles[1:], row[1:], strict=True):
            if cell:
                cells.append(f"{title} {cell}")
        yield from wrap(f"  {', '.join(cells)}", width)


def format_signed(value: float, digits: int = 3) -> str:
    """Return a number with its sign. The minus sign is U+2212, not a hyphen."""
    return f"{value:+.{digits}f}".replace("-", "−")


def _bare_interval(delta: Delta) -> str:
    if delta.ci_lower is not None and delta.ci_upper is not None:
        return f"[{format_signed(delta.ci_lower)}, {format_signed(delta.ci_upper)}]"
    if delta.se == 0:
        return "none (no variation)"
    return "none"


def interval_text(delta: Delta) -> str:
    """Return the confidence interval of a difference."""
    return f"95% CI {_bare_interval(delta)}"


def _p_text(value: float) -> str:
    if value >= 0.0001:
        return f"{value:.2g}"
    return "< 0.0001"
