"""Text -> the same text without the run's secrets: the one door for everything that is written.

A secret is known by its value, so it is found wherever it turns up, and however it is escaped there.
"""

import json
import os
import re
from base64 import b64encode
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import quote, quote_plus, unquote, urlsplit

MASK = "***"
MIN_LENGTH = 8
_SECRET_NAME = re.compile(r"KEY|TOKEN|SECRET|PASSWORD|CREDENTIAL", re.IGNORECASE)


class Redactor:
    """Masks the secrets that it has been told of."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._forms: tuple[str, ...] = ()
        self.learn(secrets)

    def learn(self, secrets: Iterable[str]) -> None:
        """Mask these values too, from now on."""
        forms = {form for secret in secrets if len(secret) >= MIN_LENGTH for form in _forms(secret)}
        self._forms = tuple(sorted(forms.union(self._forms), key=lambda form: (-len(form), form)))

    @property
    def longest(self) -> int:
        """How many bytes the longest secret has, in whatever form."""
        return max((len(form.encode()) for form in self._forms), default=0)

    def __call__(self, text: str) -> str:
        for form in self._forms:
            if form in text:
                text = text.replace(form, MASK)
        return text

    def values(self, value: Any) -> Any:
        """The value with its texts masked, and its keys; a number that is a secret becomes a text."""
        if isinstance(value, str):
            return self(value)
        if isinstance(value, dict):
            return {self(key): self.values(inner) for key, inner in value.items()}
        if isinstance(value, list):
            return [self.values(inner) for inner in value]
        if isinstance(value, int | float) and not isinstance(value, bool) and self(str(value)) != str(value):
            return MASK
        return value


def secrets_in(environment: Mapping[str, str]) -> list[str]:
    """The values of all variables whose name says that they are secret."""
    return [value for name, value in environment.items() if _SECRET_NAME.search(name)]


def secrets_in_url(url: str) -> list[str]:
    """The user's name and the password that stand in a URL, and the two as Basic authorization sends them."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return []
    if "@" not in parts.netloc:
        return []
    user, _, password = parts.netloc.rpartition("@")[0].partition(":")
    plain = f"{unquote(user)}:{unquote(password)}"
    return [user, password, unquote(user), unquote(password), plain, b64encode(plain.encode()).decode()]


def _forms(secret: str) -> set[str]:
    """The secret as it may stand in a text, in JSON inside JSON, in a URL, and in an HTTP header."""
    forms = {secret, repr(secret)[1:-1]}
    for _ in range(3):
        forms |= {json.dumps(form, ensure_ascii=ascii_only)[1:-1] for form in forms for ascii_only in (True, False)}
    in_urls = {quote(secret, safe=""), quote_plus(secret), quote(secret)}
    in_headers = {b64encode(text.encode()).decode() for text in (secret, f":{secret}", f"{secret}:")}
    return forms | in_urls | in_headers


clean = Redactor(secrets_in(os.environ))
"""The one door: all that is shown or written in this process goes through it."""
