"""Parse numbers and dates in the notations that people use."""

import math
import re
from collections.abc import Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import Any

MAX_CHARACTERS = 100
_PLAIN = re.compile(r"\d*\.?\d+(?:[eE][+-]?\d{1,3})?|\d+\.", re.ASCII)
_SPACES = re.compile(r"[\s'’_]+")
_UNIT = re.compile(r"^(?:[A-Z]{3}|[$€£¥₹₩]|(?:US|A|C)\$|Fr\.)|(?:[A-Z]{3}|[$€£¥₹₩])$")


def parse_number(value: Any) -> Decimal | None:
    """Return the number that a value is or spells: `1,234.50`, `1.234,50`, `€ 1 234,50`, `(5.00)`; otherwise None."""
    if isinstance(value, bool):
        return None
    if isinstance(value, str) and len(value) <= MAX_CHARACTERS:
        return _parse_text(value)
    if isinstance(value, int):
        return Decimal(value)
    if isinstance(value, float) and math.isfinite(value):
        return Decimal(repr(value))  # not Decimal(value): 0.1 is exactly a tenth
    return None


def _parse_text(text: str) -> Decimal | None:
    text = text.strip()
    in_parentheses = text.startswith("(") and text.endswith(")")
    if in_parentheses:
        text = text[1:-1]
    # a minus sign may be before or after the currency
    text, minus_before = _split_sign(text)
    text = _UNIT.sub("", text).strip()
    text, minus_after = _split_sign(text)
    digits = _remove_separators(_SPACES.sub("", text))
    if digits is None or not _PLAIN.fullmatch(digits):
        return None
    signs = in_parentheses + minus_before + minus_after
    if signs > 1:
        return None
    number = Decimal(digits)
    if signs:
        return -number
    return number


def _split_sign(text: str) -> tuple[str, bool]:
    """Return the text without its sign, and whether that is a minus sign."""
    text = text.strip()
    is_negative = text.startswith(("-", "−"))
    if is_negative or text.startswith("+"):
        text = text[1:].strip()
    return text, is_negative


def _remove_separators(text: str) -> str | None:
    """Return the number with a decimal point and no other separators; None if it is not well formed."""
    if "," not in text and text.count(".") <= 1:
        return text
    last = "."
    other = ","
    if text.rfind(",") > text.rfind("."):
        last = ","
        other = "."
    if other not in text and _is_grouped(text, last):
        return text.replace(last, "")
    whole, _, decimals = text.rpartition(last)
    if last in whole or (other in whole and not _is_grouped(whole, other)):
        return None
    return f"{whole.replace(other, '')}.{decimals}"


def _is_grouped(text: str, mark: str) -> bool:
    """Return whether the separators divide groups of three digits, or of two in the middle, as in India."""
    return re.fullmatch(rf"[1-9]\d{{0,2}}(?:[{mark}]\d{{2,3}})*[{mark}]\d{{3}}", text) is not None


# Longer names come first: the pattern below tries them in this order.
_NAMES = {
    "YYYY": "%Y",
    "YY": "%y",
    "MMMM": "%B",
    "MMM": "%b",
    "MM": "%m",
    "M": "%m",
    "DD": "%d",
    "D": "%d",
}
_NAME = re.compile("|".join(_NAMES))
_SAMPLE = date(2023, 11, 25)


def date_format(written: str) -> str:
    """Return a format for `strptime`, given one or a pattern such as DD/MM/YYYY.

    Raise `ValueError` if it does not determine a whole date.
    """
    form = written
    if "%" not in written:
        form = _NAME.sub(lambda name: _NAMES[name.group()], written.replace("yyyy", "YYYY"))
    try:
        parsed = datetime.strptime(_SAMPLE.strftime(form), form)
        is_whole = parsed.date() == _SAMPLE
    except (ValueError, re.error, Warning):
        is_whole = False
    if not is_whole:
        raise ValueError(f"{written!r} is not the format of a complete date")
    return form


def parse_date(value: Any, formats: Sequence[str] = ()) -> date | None:
    """Return the date that a text spells, in one of the formats or in ISO 8601; otherwise None."""
    if not isinstance(value, str) or len(value) > MAX_CHARACTERS:
        return None
    text = value.strip()
    for form in formats:
        try:
            return datetime.strptime(text, form).date()
        except ValueError:
            continue
    try:
        return datetime.fromisoformat(text).date()
    except ValueError:
        return None
