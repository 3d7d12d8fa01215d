"""Prices in a shop, in cents."""


def total(prices: list[int]) -> int:
    """Return the sum of prices."""
    return sum(prices)


def discount(price: int, percent: int) -> int:
    """Return a price with a discount in percent."""
    return price - percent
