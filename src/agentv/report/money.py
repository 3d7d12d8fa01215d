"""Format the money spent by a run: in total, per target and per judge."""

from collections.abc import Iterator

from agentv.results.spending import Spending, Spent
from agentv.text import format_money, join_names

SHOWN = 6
"""The maximum number of targets and judges in the text."""


def spent_text(spending: Spending) -> str:
    """Return the total and its parts as text, or an empty string if no cost is known."""
    usd = spending.usd
    if usd is None:
        return ""
    total = f"{format_money(usd)} spent"
    parts = list(_parts(spending))
    if len(parts) <= 1:
        return total
    return f"{total} ({join_names(parts, SHOWN, ', and ')})"


def _parts(spending: Spending) -> Iterator[str]:
    """Yield the amount of each target and judge, the largest first."""
    parts = sorted(spending.parts, key=lambda part: -part[1].usd)
    for name, spent in parts:
        yield f"{name} {_amount(spent)}"


def _amount(spent: Spent) -> str:
    if not spent.is_known:
        return "unknown"
    money = format_money(spent.usd)
    if spent.unknown:
        return f"{money} plus {spent.unknown} of unknown cost"
    return money
