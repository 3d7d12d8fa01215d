"""Who may ask: the checks of every request, before anything else is done with it.

Others may share the machine, and other sites the browser. A server on a port of 127.0.0.1 can be reached by every user
of the machine, and by every page that a browser shows, so

- a request needs the token: from the address that was printed, or from the cookie that it became. A cookie is for a
  host and not for a port, so its name holds the port;
- `Host` must be ours, or a name of somebody else's that is made to lead to 127.0.0.1 would make their page one of ours;
- `Origin` and `Sec-Fetch-Site` must not be those of another site, or of another port of this machine;
- a change needs a header that a page of another site cannot send without being asked first, which we never allow.
"""

import hmac
import secrets
from http.cookies import CookieError, SimpleCookie
from typing import Protocol

TOKEN_BYTES = 24
CHANGE_HEADER = "X-Agentv"


class Headers(Protocol):
    """The headers of a request."""

    def get_all(self, name: str) -> list[str] | None:
        """Return all values of a header."""


class Refused(Exception):
    """The request is not answered; the text says why."""


class Guard:
    """Checks requests for one server."""

    def __init__(self, port: int, token: str | None = None):
        self.port = port
        self.token = token or secrets.token_urlsafe(TOKEN_BYTES)
        self._hosts = {f"127.0.0.1:{port}", f"localhost:{port}"}

    @property
    def cookie_name(self) -> str:
        return f"agentv-{self.port}"

    @property
    def cookie(self) -> str:
        """What makes a browser send the token with each request, and no script read it."""
        return f"{self.cookie_name}={self.token}; HttpOnly; SameSite=Strict; Path=/"

    def check_place(self, headers: Headers) -> None:
        """Raise `Refused` unless the request is for this server."""
        hosts = headers.get_all("Host") or []
        if len(hosts) != 1 or hosts[0].strip().lower() not in self._hosts:
            raise Refused("this address is not that of the viewer")

    def check_origin(self, headers: Headers) -> None:
        """Raise `Refused` if another site made the browser ask."""
        host = (headers.get_all("Host") or [""])[0].strip().lower()
        if any(origin.strip().lower() != f"http://{host}" for origin in headers.get_all("Origin") or []):
            raise Refused("another site asked")
        if any(site.strip() not in ("same-origin", "none") for site in headers.get_all("Sec-Fetch-Site") or []):
            raise Refused("another site asked")

    def knows(self, token: str) -> bool:
        """Whether this is the token; takes as long for any text."""
        return hmac.compare_digest(token.encode("utf-8", "replace"), self.token.encode())

    def has_cookie(self, headers: Headers) -> bool:
        """Whether the request has the cookie."""
        return any(self.knows(value) for value in _cookies(headers, self.cookie_name))

    def check_change(self, headers: Headers) -> None:
        """Raise `Refused` unless a page of ours asks for a change."""
        if headers.get_all(CHANGE_HEADER) != ["1"]:
            raise Refused(f"a change needs the header {CHANGE_HEADER}")


def _cookies(headers: Headers, name: str) -> list[str]:
    found = []
    for text in headers.get_all("Cookie") or []:
        for part in text.split(";"):
            try:
                morsel = SimpleCookie(part.strip()).get(name)
            except CookieError:
                continue
            if morsel is not None:
                found.append(morsel.value)
    return found
