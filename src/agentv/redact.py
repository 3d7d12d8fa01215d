"""Text -> the same text without the run's secrets: the one door for everything that is written.

A secret is known by its value, so it is found wherever it turns up, and however it is escaped there.
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
_URL = re.compile(r"(?=\b([A-Za-z][A-Za-z0-9+.-]*://\S+))")
_PLAIN = re.compile(r"[A-Za-z0-9_.~-]+")
"""Signs that no encoding changes."""
_NAMED = {"\n": "n", "\r": "r", "\t": "t", "\b": "b", "\f": "f"}
_SECRET_NAME = re.compile(r"KEY|TOKEN|SECRET|PASSWORD|CREDENTIAL", re.IGNORECASE)


class Redactor:
    """Masks the secrets that it has been told of."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._forms: tuple[_Form, ...] = ()
        self.learn(secrets)

    def learn(self, secrets: Iterable[str]) -> None:
        """Mask these values too, from now on."""
        plain = {form for secret in secrets for form in (secret, secret.strip())}  # headers are sent without line ends
        forms = {form for secret in plain if len(secret) >= MIN_LENGTH for form in _forms(secret)}
        self._forms = tuple(sorted(forms.union(self._forms), key=lambda form: (-form.length, form.part)))

    def start_over(self, secrets: Iterable[str]) -> None:
        """Mask these values, and none of those before."""
        self._forms = ()
        self.learn(secrets)

    @property
    def longest(self) -> int:
        """How many bytes the longest secret has in JSON in JSON in JSON."""
        return max((form.most for form in self._forms), default=0)

    def __call__(self, text: str) -> str:
        for form in self._forms:
            if form.part in text:
                text = form.pattern.sub(MASK, text) if form.pattern else text.replace(form.part, MASK)
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
    """The values of all variables whose name says that they are secret, and the credentials in URLs, as of proxies."""
    named = [value for name, value in environment.items() if is_secret_name(name)]
    return named + [secret for value in environment.values() for secret in secrets_in_urls(value)]


def is_secret_name(name: str) -> bool:
    """Whether a name says that what it stands for is secret."""
    return _SECRET_NAME.search(name) is not None


def secrets_in_urls(text: str) -> list[str]:
    """The credentials in all the URLs that stand in a text, such as a command."""
    return [secret for url in _URL.findall(text) for secret in secrets_in_url(url)] if "://" in text else []


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


class _Form(NamedTuple):
    """How a secret is found: by a part that no encoding changes, and then, if not all of it is such, by a pattern."""

    length: int
    most: int
    part: str
    pattern: re.Pattern[str] | None = None


def _forms(secret: str) -> Iterator[_Form]:
    """The secret as it may stand in a text, in JSON inside JSON, in a URL, and in an HTTP header."""
    if _PLAIN.fullmatch(secret):
        yield _Form(len(secret), len(secret), secret)
    else:
        longest = max(_PLAIN.findall(secret), key=len, default="")
        nested = json.dumps(json.dumps(json.dumps(secret)))
        yield _Form(len(secret), len(nested), longest, re.compile("".join(map(_pattern, secret))))
    yield from (_Form(len(text), len(text), text) for text in _in_base64(secret))


def _pattern(sign: str) -> str:
    """A sign as it is and as it is escaped, be it ever so often: as JSON, Python, a URL or Latin-1 have it."""
    if _PLAIN.fullmatch(sign):
        return re.escape(sign)
    data = sign.encode("utf-8", "surrogateescape")
    units = sign.encode("utf-16-be", "surrogatepass").hex()
    escaped = [
        "".join(rf"\\+u{units[at : at + 4]}" for at in range(0, len(units), 4)),
        "".join(rf"\\+x{byte:02x}" for byte in data),
        "".join(f"%{byte:02x}" for byte in data),
    ]
    if len(data) > 1:
        escaped += [re.escape(data.decode("latin-1")), rf"\\+x{ord(sign):02x}"]
    if sign in _NAMED:
        escaped.append(rf"\\+{_NAMED[sign]}")
    itself = r"\\+" if sign == "\\" else rf"\\*{re.escape(sign)}"
    plus = r"|\+" if sign == " " else ""
    return f"(?:{itself}|(?i:{'|'.join(escaped)}){plus})"


def _in_base64(secret: str) -> set[str]:
    """The secret in base64, alone and with whatever before and behind it, as in Basic authorization."""
    data = secret.encode("utf-8", "surrogateescape")
    whole = {b64encode(text).decode() for text in (data, b":" + data, data + b":")}
    for shift in range(3):  # three bytes are four signs, so that it depends on what goes before
        first, end = -(-shift * 8 // 6), (shift + len(data)) * 8 // 6
        whole.add(b64encode(bytes(shift) + data).decode()[first:end])
    return whole


clean = Redactor(secrets_in(os.environ))
"""The one door: all that is shown or written in this process goes through it."""
