"""Numbers and dates as people write them -> values that can be compared."""

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
    """Return the number that a value is or spells: `1,234.50`, `1.234,50`, `€ 1 234,50`, `(5.00)`; else None."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    if isinstance(value, str):
        return _parse_text(value) if len(value) <= MAX_CHARACTERS else None
    if isinstance(value, int):
        return Decimal(value)
    return Decimal(repr(value)) if math.isfinite(value) else None  # as it is written: 0.1 is a tenth


def _parse_text(text: str) -> Decimal | None:
    text = text.strip()
    negative = text.startswith("(") and text.endswith(")")
    text, minus = _split_sign(text[1:-1] if negative else text)
    text, second = _split_sign(_UNIT.sub("", text).strip())
    text = _remove_separators(_SPACES.sub("", text)) or ""
    if not _PLAIN.fullmatch(text) or negative + minus + second > 1:
        return None
    number = Decimal(text)
    return -number if negative or minus or second else number


def _split_sign(text: str) -> tuple[str, bool]:
    text = text.strip()
    minus = text.startswith(("-", "−"))
    return (text[1:].strip() if minus or text.startswith("+") else text), minus


def _remove_separators(text: str) -> str | None:
    """Return the number with a point before its decimals and no other separators; None if it is not well formed."""
    if "," not in text and text.count(".") <= 1:
        return text
    last, other = (",", ".") if text.rfind(",") > text.rfind(".") else (".", ",")
    if other not in text and _is_grouped(text, last):
        return text.replace(last, "")
    whole, _, decimals = text.rpartition(last)
    if last in whole or (other in whole and not _is_grouped(whole, other)):
        return None
    return f"{whole.replace(other, '')}.{decimals}"


def _is_grouped(text: str, mark: str) -> bool:
    """Return whether the separators stand before groups of three digits; in India those in the middle have two."""
    return re.fullmatch(rf"[1-9]\d{{0,2}}(?:[{mark}]\d{{2,3}})*[{mark}]\d{{3}}", text) is not None


_NAMES = {"YYYY": "%Y", "YY": "%y", "MMMM": "%B", "MMM": "%b", "MM": "%m", "M": "%m", "DD": "%d", "D": "%d"}
_NAME = re.compile("|".join(_NAMES))
_SAMPLE = date(2023, 11, 25)


def date_format(written: str) -> str:
    """Return a format for `strptime`, from one or from a name such as DD/MM/YYYY.

    Raise `ValueError` if it does not make a whole date.
    """
    form = written if "%" in written else _NAME.sub(lambda name: _NAMES[name.group()], written.replace("yyyy", "YYYY"))
    try:
        whole = datetime.strptime(_SAMPLE.strftime(form), form).date() == _SAMPLE
    except (ValueError, re.error, Warning):
        whole = False
    if not whole:
        raise ValueError(f"{written!r} is no format of a whole date")
    return form


def parse_date(value: Any, formats: Sequence[str] = ()) -> date | None:
    """Return the day that a text names, in one of the formats or as ISO 8601; None if it names none."""
    if not isinstance(value, str) or len(value) > MAX_CHARACTERS:
        return None
    for form in formats:
        try:
            return datetime.strptime(value.strip(), form).date()
        except ValueError:
            continue
    try:
        return datetime.fromisoformat(value.strip()).date()
    except ValueError:
        return None
