"""Access control: the checks of every request, before it is processed.

A server on 127.0.0.1 can be reached by every user of the machine, and by every page in the user's browser. Therefore

- a request for data needs the token in a header. The token is in the printed address, behind the `#`, which browsers do
  not send. The page keeps it in storage that belongs to its host and port. It is not a cookie: browsers send cookies to
  all ports of a host, and so to the servers of other users. Without the token there are only pages without data;
- `Host` must be that of this server, to prevent DNS rebinding: another site could resolve its name to 127.0.0.1;
- `Origin` and `Sec-Fetch-Site` must not be those of another site, or of another port of this machine. Another site can
  send the header with the token only after a CORS preflight, which is never granted.
"""

import hmac
import secrets
from typing import Protocol

TOKEN_BYTES = 24
TOKEN_HEADER = "X-Agentv-Token"


class Headers(Protocol):
    """The headers of a request."""

    def get_all(self, name: str) -> list[str] | None:
        """Return all values of a header."""


class Refused(Exception):
    """The request is refused, for the reason in the message."""


class Guard:
    """Checks requests for one server."""

    def __init__(self, port: int, token: str | None = None):
        self.port = port
        self.token = token or secrets.token_urlsafe(TOKEN_BYTES)
        self._hosts = {f"127.0.0.1:{port}", f"localhost:{port}"}

    def check_place(self, headers: Headers) -> None:
        """Raise `Refused` unless the request has a single `Host` header with the address of this server."""
        hosts = headers.get_all("Host") or []
        if len(hosts) != 1 or _normalized(hosts[0]) not in self._hosts:
            raise Refused("this is not the address of the viewer")

    def check_origin(self, headers: Headers, *, is_page: bool = False) -> None:
        """Raise `Refused` if the request comes from a page of another site.

        A link to a page may be anywhere, such as in the file that opens the browser.
        """
        hosts = headers.get_all("Host") or [""]
        own_origin = f"http://{_normalized(hosts[0])}"
        for origin in headers.get_all("Origin") or []:
            if _normalized(origin) != own_origin:
                raise Refused("requests from other sites are not allowed")
        if is_page:
            return
        for site in headers.get_all("Sec-Fetch-Site") or []:
            if site.strip() not in ("same-origin", "none"):
                raise Refused("requests from other sites are not allowed")

    def has_token(self, headers: Headers) -> bool:
        """Return whether the request has the token. Compares in constant time, to prevent timing attacks."""
        values = headers.get_all(TOKEN_HEADER) or []
        if len(values) != 1:
            return False
        given = values[0].strip().encode("utf-8", "replace")
        return hmac.compare_digest(given, self.token.encode())


def _normalized(header: str) -> str:
    return header.strip().lower()
