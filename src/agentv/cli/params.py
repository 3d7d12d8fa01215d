"""Kinds of values that options take."""

import math
from typing import Any

import click


class Amount(click.FloatRange):
    """A number that is one: `nan` and `inf` are not."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        number: float = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value!r} is no finite number", param, ctx)
        return number
