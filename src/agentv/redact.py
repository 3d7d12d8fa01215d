"""Mask secrets in text. Everything that is printed or written passes through `clean`.

Secrets are recognized by their value, so they are found anywhere in a text and in any common encoding.
"""

import json
import os
import re
from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

MASK = "***"
MIN_LENGTH = 8
"""Shorter values are not masked: they occur in ordinary text too often."""
_URL = re.compile(r"(?=\b([A-Za-z][A-Za-z0-9+.-]*://\S+))")
_UNRESERVED = re.compile(r"[A-Za-z0-9_.~-]+")
"""Characters that JSON, Python and URLs never escape."""
_SHORT_ESCAPES = {
    "\n": "n",
    "\r": "r",
    "\t": "t",
    "\b": "b",
    "\f": "f",
}
_SECRET_NAME = re.compile(r"KEY|TOKEN|SECRET|PASSWORD|CREDENTIAL", re.IGNORECASE)


class Redactor:
    """Replace known secrets with a mask."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._forms: tuple[_Form, ...] = ()
        self.learn(secrets)

    def learn(self, secrets: Iterable[str]) -> None:
        """Mask these values too, from now on."""
        forms = set(self._forms)
        for secret in secrets:
            # HTTP headers are sent without surrounding whitespace, so mask the stripped value too.
            for value in {secret, secret.strip()}:
                if len(value) >= MIN_LENGTH:
                    forms.update(_forms(value))
        self._forms = tuple(sorted(forms, key=_longest_first))

    def start_over(self, secrets: Iterable[str]) -> None:
        """Forget all secrets learned so far and mask these values instead."""
        self._forms = ()
        self.learn(secrets)

    @property
    def longest(self) -> int:
        """The length in bytes of the longest secret, in JSON nested three levels deep."""
        return max((form.max_length for form in self._forms), default=0)

    def __call__(self, text: str) -> str:
        for form in self._forms:
            # The substring test is much faster than a regular expression, and most texts contain no secret.
            if form.part in text:
                text = form.mask(text)
        return text

    def values(self, value: Any) -> Any:
        """Return the JSON value with all strings and keys masked. A number that is a secret becomes the mask."""
        if isinstance(value, str):
            return self(value)
        if isinstance(value, dict):
            return {self(key): self.values(inner) for key, inner in value.items()}
        if isinstance(value, list):
            return [self.values(inner) for inner in value]
        if isinstance(value, bool) or not isinstance(value, int | float):
            return value
        text = str(value)
        if self(text) != text:
            return MASK
        return value


def secrets_in(environment: Mapping[str, str]) -> list[str]:
    """Return the values of all variables with a secret name, and the credentials in URLs, such as those of proxies."""
    found = [value for name, value in environment.items() if is_secret_name(name)]
    for value in environment.values():
        found.extend(secrets_in_urls(value))
    return found


def is_secret_name(name: str) -> bool:
    """Return whether a variable or field of this name holds a secret."""
    return _SECRET_NAME.search(name) is not None


def secrets_in_urls(text: str) -> list[str]:
    """Return the credentials in all URLs of a text, such as a command."""
    found: list[str] = []
    if "://" not in text:
        return found
    for url in _URL.findall(text):
        found.extend(secrets_in_url(url))
    return found


def secrets_in_url(url: str) -> list[str]:
    """Return the user name and the password in a URL, each also unquoted, and both encoded for Basic authorization."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return []
    if "@" not in parts.netloc:
        return []
    credentials = parts.netloc.rpartition("@")[0]
    user, _, password = credentials.partition(":")
    plain_user = unquote(user)
    plain_password = unquote(password)
    plain = f"{plain_user}:{plain_password}"
    basic = b64encode(plain.encode()).decode()
    return [user, password, plain_user, plain_password, plain, basic]


class _Form(NamedTuple):
    """One encoding of a secret, and how to find it in a text."""

    length: int
    max_length: int
    """The maximum number of characters that a match may have."""
    part: str
    """A part of the secret that no encoding changes. A text without it does not contain the secret."""
    pattern: re.Pattern[str] | None = None
    """Matches the whole secret. None if `part` is the whole secret."""

    def mask(self, text: str) -> str:
        """Return the text with all occurrences masked."""
        if self.pattern is None:
            return text.replace(self.part, MASK)
        return self.pattern.sub(MASK, text)


def _forms(secret: str) -> Iterator[_Form]:
    """Yield the encodings of a secret: in text, nested JSON, URLs and HTTP headers."""
    if _UNRESERVED.fullmatch(secret):
        yield _plain_form(secret)
    else:
        nested = json.dumps(json.dumps(json.dumps(secret)))
        unchanged_parts = _UNRESERVED.findall(secret)
        pattern = "".join(map(_pattern, secret))
        yield _Form(
            length=len(secret),
            max_length=len(nested),
            part=max(unchanged_parts, key=len, default=""),
            pattern=re.compile(pattern),
        )
    for text in _base64_forms(secret):
        yield _plain_form(text)


def _plain_form(text: str) -> _Form:
    """Return the form of a secret that no encoding changes."""
    return _Form(length=len(text), max_length=len(text), part=text)


def _longest_first(form: _Form) -> tuple[int, str]:
    """Return the sort key of a form. A secret that contains another one must be masked first, as a whole."""
    return -form.length, form.part


def _pattern(character: str) -> str:
    """Return a pattern for a character, plain or escaped any number of times (JSON, Python, URL or Latin-1)."""
    if _UNRESERVED.fullmatch(character):
        return re.escape(character)
    data = character.encode("utf-8", "surrogateescape")
    utf16 = character.encode("utf-16-be", "surrogatepass")
    code_units = utf16.hex(" ", 2).split()
    escapes = [
        "".join(rf"\\+u{code_unit}" for code_unit in code_units),
        "".join(rf"\\+x{byte:02x}" for byte in data),
        "".join(f"%{byte:02x}" for byte in data),
    ]
    if len(data) > 1:
        latin_1 = data.decode("latin-1")
        escapes.append(re.escape(latin_1))
        escapes.append(rf"\\+x{ord(character):02x}")
    if character in _SHORT_ESCAPES:
        escapes.append(rf"\\+{_SHORT_ESCAPES[character]}")
    plain = rf"\\*{re.escape(character)}"
    if character == "\\":
        plain = r"\\+"
    plus = ""
    if character == " ":
        plus = r"|\+"  # a space in the query of a URL
    return f"(?:{plain}|(?i:{'|'.join(escapes)}){plus})"


def _base64_forms(secret: str) -> set[str]:
    """Return the secret in base64: alone, next to a colon, and inside longer data, as in Basic authorization."""
    data = secret.encode("utf-8", "surrogateescape")
    forms = set()
    for text in (data, b":" + data, data + b":"):
        forms.add(b64encode(text).decode())
    # Base64 encodes three bytes as four characters, so the result depends on how many bytes precede the secret.
    # Characters that also encode neighboring bytes are cut off at both ends.
    for shift in range(3):
        start = -(-shift * 8 // 6)
        end = (shift + len(data)) * 8 // 6
        encoded = b64encode(bytes(shift) + data).decode()
        forms.add(encoded[start:end])
    return forms


clean = Redactor(secrets_in(os.environ))
"""The redactor of this process: everything that is printed or written passes through it."""
