"""Tokens, money and times -> text."""


def format_count(value: float) -> str:
    """Return a whole number, with commas between thousands."""
    return f"{round(value):,}"


def format_money(usd: float) -> str:
    """Return an amount of US dollars; small ones have more digits."""
    return f"${usd:,.2f}" if usd >= 10 or usd == 0 else f"${usd:.4f}" if usd >= 0.01 else f"${usd:.2g}"


def format_duration(ms: float) -> str:
    """Return a time that is given in milliseconds."""
    if ms < 1:
        return "< 1 ms"
    if ms < 1000:
        return f"{ms:.0f} ms"
    if ms < 100_000:
        return f"{ms / 1000:.1f} s"
    return f"{ms / 60_000:.1f} min"


def format_change(before: float, after: float) -> str:
    """Return by how much a quantity has changed, in percent of what it was."""
    if before == after:
        return "±0%"
    return "new" if before == 0 else f"{(after - before) / before:+.0%}".replace("-", "−")
