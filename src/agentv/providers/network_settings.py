"""The settings of the network in the environment: proxies and CA certificates."""

import importlib.util
import os
import ssl
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from agentv.errors import ProviderError
from agentv.redact import clean

CA_FILE = "SSL_CERT_FILE"
PROXIES = ("http", "https", "all")
"""The URL schemes that can have a proxy; `all` applies to those without their own."""
SCHEMES = ("http", "https", "socks5", "socks5h")
"""The kinds of proxies."""


def has_proxies() -> bool:
    """Return whether a proxy is set for any requests of targets."""
    return not getproxies().keys().isdisjoint(PROXIES)


def proxy_of(url: str) -> str | None:
    """Return the proxy for requests to a URL, without its password; None if there is none."""
    parts = urlsplit(url)
    proxies = getproxies()
    proxy = proxies.get(parts.scheme) or proxies.get("all")
    if not proxy or proxy_bypass(parts.netloc):
        return None
    return _without_password(proxy)


def check_proxies() -> None:
    """Raise `ProviderError` if a proxy in the environment is invalid."""
    proxies = getproxies()
    for scheme in PROXIES:
        proxy = proxies.get(scheme)
        if not proxy:
            continue
        problem = _proxy_problem(proxy)
        if problem:
            name = _variable_of(scheme)
            raise ProviderError(f"{name} is not a valid proxy: {_without_password(proxy)!r} {problem}")


def _proxy_problem(proxy: str) -> str:
    """Return the problem of a proxy setting, or an empty string."""
    if "://" not in proxy:
        proxy = f"http://{proxy}"
    try:
        parts = urlsplit(proxy)
        _ = parts.port  # raises ValueError if it is not a port
    except ValueError as error:
        return f"cannot be read ({error})"
    if parts.scheme not in SCHEMES:
        return f"has the scheme {parts.scheme!r} (expected http, https or socks5)"
    if not parts.hostname:
        return "has no host"
    if parts.scheme.startswith("socks") and importlib.util.find_spec("socksio") is None:
        return "needs the 'socksio' package (pip install socksio)"
    return ""


def _variable_of(scheme: str) -> str:
    """Return the name of the variable that sets the proxy of a scheme."""
    for name in (f"{scheme}_proxy", f"{scheme}_proxy".upper()):
        if os.environ.get(name):
            return name
    return f"the system's proxy for {scheme}"


def _without_password(proxy: str) -> str:
    scheme, separator, rest = proxy.rpartition("://")
    server = rest.rpartition("@")[2]
    return clean(f"{scheme}{separator}{server}")


def check_ca_file() -> None:
    """Raise `ProviderError` if the file with CA certificates in the environment cannot be used."""
    path = os.environ.get(CA_FILE)
    if not path:
        return
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cafile=path)
    except ssl.SSLError:
        raise ProviderError(f"{CA_FILE}: {path} has no certificates in PEM format") from None
    except OSError as error:
        raise ProviderError(f"{CA_FILE}: {path} cannot be read: {error.strerror}") from error
