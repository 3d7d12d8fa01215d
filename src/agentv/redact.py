"""Mask secrets in text. Everything that is printed or written passes through `clean`.

Secrets are recognized by their value, so they are found anywhere in a text and in any common encoding.
"""

import json
import math
import os
import re
from base64 import b64encode
from bisect import insort
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

MASK = "***"
UNNAMED = "unknown"
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
_SECRET_NAME = re.compile(
    r"(?i:KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIAL)(?i:S)?"
    # must be followed by the end of the name, a separator, or a new word in camel case
    r"(?=$|[^A-Za-z]|(?<=[a-z])[A-Z]|(?<=[A-Z])[A-Z][a-z])"
)


class NamedSecret(str):
    """A secret value with the name of the variable or target setting that it comes from."""

    name: str

    def __new__(cls, value: str, name: str) -> "NamedSecret":
        secret = super().__new__(cls, value)
        secret.name = name
        return secret


class HeldSecrets(NamedTuple):
    """Secrets that are masked until they are released."""

    forms: "tuple[_Form, ...]"


class Redactor:
    """Replace known secrets with a mask."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._forms: tuple[_Form, ...] = ()
        self._names: dict[_Form, str] = {}
        """The name of the secret for each form; empty if unknown."""
        self._held: Counter[_Form] = Counter()
        """The number of holders of each form that is masked temporarily."""
        self.learn(secrets)

    def learn(self, secrets: Iterable[str]) -> None:
        """Mask these values permanently."""
        names = self._names
        for form, name in _named_forms(secrets):
            names[form] = names.get(form) or name
            self._held.pop(form, None)
        ordered = sorted(names, key=_longest_first)
        self._forms = tuple(ordered)

    def hold(self, secrets: Iterable[str]) -> "HeldSecrets":
        """Mask these values until the returned object is passed to `release`."""
        held = []
        forms = list(self._forms)
        for form, name in _named_forms(secrets):
            if form not in self._names:
                self._names[form] = name
                insort(forms, form, key=_longest_first)
            elif form not in self._held:
                continue  # masked permanently
            self._held[form] += 1
            held.append(form)
        self._forms = tuple(forms)
        return HeldSecrets(tuple(held))

    def release(self, held: "HeldSecrets") -> None:
        """Stop masking these values, unless another holder still masks them."""
        gone = set()
        for form in held.forms:
            if form not in self._held:
                continue  # masked permanently since then
            self._held[form] -= 1
            if not self._held[form]:
                del self._held[form]
                self._names.pop(form, None)
                gone.add(form)
        if gone:
            self._forms = tuple(form for form in self._forms if form not in gone)

    def start_over(self, secrets: Iterable[str]) -> None:
        """Forget all secrets learned so far and mask these values instead."""
        self._forms = ()
        self._names = {}
        self._held = Counter()
        self.learn(secrets)

    @property
    def is_needed(self) -> bool:
        """Whether there are secrets to mask."""
        return bool(self._forms)

    @property
    def longest(self) -> int:
        """The length in bytes of the longest secret when it is encoded as JSON three times."""
        lengths = [form.max_length for form in self._forms]
        return max(lengths, default=0)

    def __call__(self, text: str) -> str:
        for form in self._forms:
            # The substring test is much faster than a regular expression, and most texts contain no secret.
            if form.part in text:
                text = form.mask(text)
        return text

    def names_in(self, text: str) -> set[str]:
        """Return the names of the secrets that a text contains. A secret without a name is `UNNAMED`."""
        names = set()
        for form in self._forms:
            if form.part in text:
                masked = form.mask(text)
                if masked != text:
                    names.add(self._names[form] or UNNAMED)
                text = masked
        return names

    def values(self, value: Any) -> Any:
        """Return the JSON value with all strings and keys masked. A number that is a secret becomes the mask."""
        if isinstance(value, str):
            return self(value)
        if isinstance(value, dict):
            masked = {}
            for key, inner in value.items():
                masked_key = self(key)
                masked[masked_key] = self.values(inner)
            return masked
        if isinstance(value, list):
            return [self.values(inner) for inner in value]
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number:
            return value
        text = str(value)
        if self(text) != text:
            return MASK
        return value


def secrets_in(environment: Mapping[str, str]) -> list[str]:
    """Return the values of all variables with a secret name, and the credentials in URLs, such as those of proxies."""
    found: list[str] = []
    for name, value in environment.items():
        if is_secret_name(name):
            found.append(NamedSecret(value, name))
        for credential in secrets_in_urls(value):
            found.append(NamedSecret(credential, name))
    return found


def is_secret_name(name: str) -> bool:
    """Return whether a variable or field with this name is secret: a word of it ends with KEY, TOKEN or similar."""
    return _SECRET_NAME.search(name) is not None


def secrets_in_urls(text: str) -> list[str]:
    """Return the credentials in all URLs of a text, such as a command."""
    found: list[str] = []
    if "://" not in text:
        return found
    for url in _URL.findall(text):
        credentials = secrets_in_url(url)
        found.extend(credentials)
    return found


def secrets_in_url(url: str) -> list[str]:
    """Return the user name and the password in a URL, each also unquoted, and both encoded for Basic authorization."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return []
    if "@" not in parts.netloc:
        return []
    credentials, _, _ = parts.netloc.rpartition("@")
    user, _, password = credentials.partition(":")
    plain_user = unquote(user)
    plain_password = unquote(password)
    plain = f"{plain_user}:{plain_password}"
    return [
        user,
        password,
        plain_user,
        plain_password,
        plain,
        _base64(plain.encode()),
    ]


class _Form(NamedTuple):
    """One encoding of a secret, and how to find it in a text."""

    length: int
    max_length: int
    """The maximum number of characters that a match may have."""
    part: str
    """A part of the secret that no encoding changes. A text without it does not contain the secret."""
    secret: str = ""
    """The secret, if an encoding may change other parts of it. Empty if `part` is the whole secret."""

    def mask(self, text: str) -> str:
        """Return the text with all occurrences masked."""
        if not self.secret:
            return text.replace(self.part, MASK)
        return _secret_pattern(self.secret).sub(MASK, text)


@lru_cache(maxsize=4096)
def _secret_pattern(secret: str) -> re.Pattern[str]:
    """Return a pattern for a secret in any encoding. Compiled on demand: few texts contain a part of a secret."""
    return re.compile("".join(map(_pattern, secret)))


def _named_forms(secrets: Iterable[str]) -> "Iterator[tuple[_Form, str]]":
    """Yield the encodings of secrets that are long enough to be masked, each with the name of its secret."""
    for secret in secrets:
        name = getattr(secret, "name", "")
        # HTTP headers are sent without surrounding whitespace, so mask the stripped value too.
        for value in {str(secret), secret.strip()}:
            if len(value) < MIN_LENGTH:
                continue
            for form in _forms(value):
                yield form, name


def _forms(secret: str) -> Iterator[_Form]:
    """Yield the encodings of a secret: in text, nested JSON, URLs and HTTP headers."""
    if _UNRESERVED.fullmatch(secret):
        yield _plain_form(secret)
    else:
        nested = json.dumps(json.dumps(json.dumps(secret)))
        unchanged_parts = _UNRESERVED.findall(secret)
        yield _Form(
            length=len(secret),
            max_length=len(nested),
            part=max(unchanged_parts, key=len, default=""),
            secret=secret,
        )
    for text in _base64_forms(secret):
        yield _plain_form(text)


def _plain_form(text: str) -> _Form:
    """Return the form of a secret that no encoding changes."""
    return _Form(
        length=len(text),
        max_length=len(text),
        part=text,
    )


def _longest_first(form: _Form) -> tuple[int, str]:
    """Return the sort key of a form. A secret that contains another one must be masked before it."""
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
        letter = _SHORT_ESCAPES[character]
        escapes.append(rf"\\+{letter}")
    plain = rf"\\*{re.escape(character)}"
    if character == "\\":
        plain = r"\\+"
    plus = ""
    if character == " ":
        plus = r"|\+"  # a space in the query of a URL
    escaped = "|".join(escapes)
    return f"(?:{plain}|(?i:{escaped}){plus})"


def _base64_forms(secret: str) -> set[str]:
    """Return the secret in base64: alone, next to a colon as in Basic authorization, and inside longer data."""
    data = secret.encode("utf-8", "surrogateescape")
    forms = set()
    before_colon = data + b":"
    after_colon = b":" + data
    for text in (data, before_colon, after_colon):
        encoded = _base64(text)
        forms.add(encoded)
    # Base64 encodes three bytes as four characters, so the result depends on how many bytes precede the secret.
    # Characters that also encode neighboring bytes are cut off at both ends.
    for shift in range(3):
        start = math.ceil(shift * 8 / 6)
        end = (shift + len(data)) * 8 // 6
        encoded = _base64(bytes(shift) + data)
        forms.add(encoded[start:end])
    return forms


def _base64(data: bytes) -> str:
    return b64encode(data).decode()


clean = Redactor(secrets_in(os.environ))
"""The redactor of this process: everything that is printed or written passes through it."""
