"""Parse the value of `--cluster`. Does not import Dask, so that an invalid value is reported immediately."""

import re
from typing import NamedTuple

from agentv.errors import ConfigError

MAX_LOCAL_WORKERS = 256
HINT = "use tcp://HOST:PORT or tls://HOST:PORT of a Dask scheduler, or local:N for N worker processes on this machine"
_SCHEDULER_URL = re.compile(r"(tcp|tls)://(\[[0-9A-Fa-f:.%]+\]|[^\s/:@\[\]]+):([0-9]{1,5})/?")


class LocalAddress(NamedTuple):
    """A cluster of `workers` processes that agentv starts on this machine for one run."""

    workers: int


class SchedulerAddress(NamedTuple):
    """A cluster that is already running."""

    url: str


Address = LocalAddress | SchedulerAddress


def parse_address(text: str) -> Address:
    """Return the cluster that `--cluster` names; raise `ConfigError` if the value is invalid."""
    if text == "local" or text.startswith("local:"):
        return _parse_local(text)
    found = _SCHEDULER_URL.fullmatch(text)
    if found is None or not 1 <= int(found[3]) <= 65535:
        raise ConfigError(f"invalid value for --cluster: {text!r}", hint=HINT)
    return SchedulerAddress(text.rstrip("/"))


def _parse_local(text: str) -> LocalAddress:
    count = text.removeprefix("local").removeprefix(":")
    if not (count.isascii() and count.isdecimal()):
        hint = "use local:2 for two worker processes on this machine"
        raise ConfigError(f"--cluster {text!r}: the number of workers is missing or not a number", hint=hint)
    if not 1 <= int(count) <= MAX_LOCAL_WORKERS:
        raise ConfigError(f"--cluster {text!r}: the number of workers must be between 1 and {MAX_LOCAL_WORKERS}")
    return LocalAddress(int(count))


def is_private(url: str) -> bool:
    """Return whether messages to this address are encrypted or stay on this machine."""
    scheme, _, place = url.partition("://")
    if scheme in ("tls", "inproc"):
        return True
    # Imported here because it takes longer to import than the rest of this module.
    import ipaddress

    host = place.rpartition(":")[0].strip("[]")
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
