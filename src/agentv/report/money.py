"""Money that was spent -> text: by target, by judge, and what is not known."""

from collections.abc import Iterator

from agentv.report.quantities import format_money
from agentv.results.spending import Spending, Spent

SHOWN = 6


def spent_text(spending: Spending) -> str:
    """Return that money was spent, and on what; empty if nothing is known of it."""
    usd = spending.usd
    if usd is None:
        return ""
    parts = list(_parts(spending))
    more = f", and {len(parts) - SHOWN} more" if len(parts) > SHOWN else ""
    by = f" ({', '.join(parts[:SHOWN])}{more})" if len(parts) > 1 else ""
    return f"{format_money(usd)} spent{by}"


def _parts(spending: Spending) -> Iterator[str]:
    for name, spent in sorted(spending.parts, key=lambda part: -part[1].usd):
        yield f"{name} {_amount(spent)}"


def _amount(spent: Spent) -> str:
    if not spent.is_known:
        return "unknown"
    return format_money(spent.usd) + (f" and {spent.unknown} of unknown cost" if spent.unknown else "")
