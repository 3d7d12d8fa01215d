"""The figures of a run -> HTML for a notebook: how good, how sure, what failed. All text is escaped."""

from collections.abc import Callable, Iterable
from html import escape

from agentv.report.quantities import format_money
from agentv.results.summary import Summary


def summary_html(summary: Summary, clean: Callable[[str], str] = str) -> str:
    """Return a sentence, what went wrong, and a table of the worst cases; `clean` masks secrets."""
    lines = [f"<p><b>{escape(_headline(summary))}</b></p>"]
    if troubles := ", ".join(_troubles(summary)):
        lines.append(f"<p>{escape(troubles)}</p>")
    rows = [
        (f"{case.score:.3f}", clean(case.eval_id), "; ".join(case.misses), case.answer)
        for case in summary.failures.worst
    ]
    if rows:
        lines.append(_table(("score", "case", "misses", "answer"), rows))
    return "\n".join(lines)


def _headline(summary: Summary) -> str:
    """Return how good the run is, and how sure that is, in one line."""
    if summary.mean is None:
        return "no results"
    interval = summary.interval
    sure = f" (95%: {interval[0]:.3f} to {interval[1]:.3f})" if interval else ""
    passed = f", {summary.pass_at(1):.0%} passed" if summary.complete else ""
    cost = f", {format_money(summary.usage.cost_usd.sum)}" if summary.usage.cost_usd.answers else ""
    cases = "1 case" if summary.cases == 1 else f"{summary.cases:,} cases"
    return f"mean {summary.mean:.3f}{sure}{passed}, {cases}{cost}"


def _troubles(summary: Summary) -> Iterable[str]:
    """Yield what became of the runs of cases that were not scored."""
    return (f"{count} {what}" for what, count in summary.ledger.items() if count and what != "scored")


def _table(titles: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    head = "".join(f"<th>{escape(title)}</th>" for title in titles)
    body = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
