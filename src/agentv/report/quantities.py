"""Format counts, money and durations as text."""


def counted(number: int, noun: str, separator: str = "") -> str:
    """Return a number and its noun, in the plural unless the number is 1. `separator` separates thousands."""
    amount = f"{number:{separator}}"
    if number == 1:
        return f"{amount} {noun}"
    return f"{amount} {noun}s"


def format_count(value: float) -> str:
    """Return a number, rounded to an integer, with commas between thousands."""
    return f"{round(value):,}"


def format_money(usd: float) -> str:
    """Return an amount in US dollars. Small amounts have more digits."""
    if usd >= 10 or usd == 0:
        return f"${usd:,.2f}"
    if usd >= 0.01:
        return f"${usd:.4f}"
    return f"${usd:.2g}"


def format_duration(ms: float) -> str:
    """Return a duration, given in milliseconds, in a suitable unit."""
    if ms < 1:
        return "< 1 ms"
    if ms < 1000:
        return f"{ms:.0f} ms"
    if ms < 100_000:
        return f"{ms / 1000:.1f} s"
    return f"{ms / 60_000:.1f} min"


def format_change(before: float, after: float) -> str:
    """Return the relative change of a quantity in percent."""
    if before == after:
        return "±0%"
    if before == 0:
        return "new"
    change = (after - before) / before
    return f"{change:+.0%}".replace("-", "−")
