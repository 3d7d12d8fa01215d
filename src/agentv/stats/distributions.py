"""The distributions that the standard library lacks."""

import math
from functools import lru_cache

Z = 1.959963984540054
"""The 97.5% quantile of the standard normal distribution."""
SEED = 20240411
RESAMPLES = 10_000
"""Random numbers are the same in every run: the seed, and how many resamples are drawn."""


@lru_cache(maxsize=64)
def t_quantile(probability: float, df: int) -> float:
    """Return the quantile of Student's t distribution for a probability of 0.5 or more."""
    low, high = 0.0, 1.0
    while t_cdf(high, df) < probability:
        high *= 2
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if t_cdf(middle, df) < probability else (low, middle)
    return (low + high) / 2


def t_cdf(value: float, df: int) -> float:
    """Return the cumulative distribution function of Student's t at `value`, which is 0 or more."""
    return 1 - incomplete_beta(df / (df + value * value), df / 2, 0.5) / 2


def incomplete_beta(x: float, a: float, b: float) -> float:
    """Return the regularised incomplete beta function, by its continued fraction (Lentz)."""
    if x in (0.0, 1.0):
        return x
    if x > (a + 1) / (a + b + 2):
        return 1 - incomplete_beta(1 - x, b, a)
    front = math.exp(math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)) / a
    tiny = 1e-300
    c, d = 1.0, 1 / max(1 - (a + b) * x / (a + 1), tiny)
    fraction = d
    for m in range(1, 400 + int(10 * math.sqrt(max(a, b)))):
        for term in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1 / (1 + term * d or tiny)
            c = 1 + term / c or tiny
            fraction *= c * d
        if abs(c * d - 1) < 1e-14:
            break
    return front * fraction


def normal_two_sided(value: float) -> float:
    """Return the two-sided p-value of a standard normal number: the probability of one as far from 0 as `value`."""
    return math.erfc(abs(value) / math.sqrt(2))


def fair_coin_cdf(heads: int, coins: int) -> float:
    """Return the probability of at most `heads` heads in tosses of `coins` fair coins."""
    if heads >= coins:
        return 1.0
    if coins <= MAX_EXACT_COINS:  # which is exact, and quick enough
        return sum(math.comb(coins, number) for number in range(heads + 1)) / (1 << coins)
    return incomplete_beta(0.5, coins - heads, heads + 1)


MAX_EXACT_COINS = 1000
