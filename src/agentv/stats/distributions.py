"""Probability distributions that the standard library lacks."""

import math
from functools import lru_cache

Z = 1.959963984540054
"""The 97.5% quantile of the standard normal distribution."""
SEED = 20240411
"""Seed of all resampling, so that the same results always give the same figures."""
RESAMPLES = 10_000
MAX_EXACT_COINS = 1000
"""Number of coins up to which their distribution is summed exactly, which is fast enough."""
Interval = tuple[float, float]
"""Lower and upper bound of a 95% confidence interval."""


@lru_cache(maxsize=64)
def t_quantile(probability: float, df: float) -> float:
    """Return a quantile of Student's t distribution for a probability of at least 0.5."""
    low = 0.0
    high = 1.0
    while t_cdf(high, df) < probability:
        high *= 2
    for _ in range(80):
        middle = (low + high) / 2
        if t_cdf(middle, df) < probability:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def t_cdf(value: float, df: float) -> float:
    """Return the cumulative distribution function of Student's t at a `value` of at least 0."""
    x = df / (df + value * value)
    both_tails = incomplete_beta(x, df / 2, 0.5)
    return 1 - both_tails / 2


def incomplete_beta(
    x: float,
    a: float,
    b: float,
) -> float:
    """Return the regularized incomplete beta function, by Lentz's method for its continued fraction."""
    if x in (0.0, 1.0):
        return x
    if x > (a + 1) / (a + b + 2):  # the fraction converges faster on the other side
        return 1 - incomplete_beta(1 - x, b, a)
    log_front = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)
    log_front += a * math.log(x)
    log_front += b * math.log1p(-x)
    tiny = 1e-300  # replaces denominators of 0
    denominator = 1 - (a + b) * x / (a + 1)
    c = 1.0
    d = 1 / max(denominator, tiny)
    fraction = d
    max_terms = 400 + int(10 * math.sqrt(max(a, b)))
    for m in range(1, max_terms):
        even = a + 2 * m
        even_term = m * (b - m) * x
        even_term /= (even - 1) * even
        odd_term = -(a + m) * (a + b + m) * x
        odd_term /= even * (even + 1)
        for term in (even_term, odd_term):
            d = 1 / ((1 + term * d) or tiny)
            c = (1 + term / c) or tiny
            fraction *= c * d
        if abs(c * d - 1) < 1e-14:
            break
    return math.exp(log_front) / a * fraction


def normal_two_sided(value: float) -> float:
    """Return the two-sided p-value of a standard normal statistic."""
    scaled = abs(value) / math.sqrt(2)
    return math.erfc(scaled)


def fair_coin_cdf(heads: int, coins: int) -> float:
    """Return the probability of at most `heads` heads in tosses of `coins` fair coins."""
    if heads >= coins:
        return 1.0
    if coins > MAX_EXACT_COINS:
        return incomplete_beta(0.5, coins - heads, heads + 1)
    outcomes = 0
    for number in range(heads + 1):
        outcomes += math.comb(coins, number)
    return outcomes / (1 << coins)
