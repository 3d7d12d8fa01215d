"""Show the figures of a run as HTML in a notebook. All text is escaped."""

from collections.abc import Callable, Iterable, Iterator
from html import escape

from agentv.results.summary import Summary
from agentv.text import format_money, plural


def summary_html(summary: Summary, clean: Callable[[str], str] = str) -> str:
    """Return a headline, the cases that were not scored, and a table of the worst cases. `clean` masks secrets."""
    lines = [f"<p><b>{escape(headline(summary))}</b></p>"]
    not_scored = ", ".join(_not_scored(summary))
    if not_scored:
        lines.append(f"<p>{escape(not_scored)}</p>")
    rows = []
    for case in summary.failures.worst:
        row = (
            f"{case.score:.3f}",
            clean(case.eval_id),
            "; ".join(case.misses),
            case.answer,
        )
        rows.append(row)
    if rows:
        lines.append(_table(("score", "case", "misses", "answer"), rows))
    return "\n".join(lines)


def headline(summary: Summary) -> str:
    """Return the mean score with its confidence interval, the pass rate, the number of cases and the cost."""
    if summary.mean is None:
        return "no results"
    text = f"mean {summary.mean:.3f}"
    interval = summary.interval
    if interval:
        text += f" (95%: {interval[0]:.3f} to {interval[1]:.3f})"
    if summary.complete:
        text += f", {summary.pass_at(1):.0%} passed"
    text += f", {plural(summary.cases, 'case', separator=',')}"
    cost = summary.usage.cost_usd
    if cost.answers:
        text += f", {format_money(cost.sum)}"
    return text


def _not_scored(summary: Summary) -> Iterator[str]:
    """Yield the number of runs for each outcome other than a score."""
    for outcome, count in summary.ledger.items():
        if count and outcome != "scored":
            yield plural(count, outcome.removesuffix("s"), outcome)  # "1 judge failure"


def _table(titles: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    head = "".join(f"<th>{escape(title)}</th>" for title in titles)
    body = ""
    for row in rows:
        cells = "".join(f"<td>{escape(cell)}</td>" for cell in row)
        body += f"<tr>{cells}</tr>"
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
