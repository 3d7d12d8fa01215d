"""`--cluster` -> where the cluster is. Knows nothing of Dask, so that a bad value is told before that is loaded."""

import re
from typing import NamedTuple

from agentv.errors import ConfigError

MOST_LOCAL = 256
HINT = "it is tcp://HOST:PORT or tls://HOST:PORT of a Dask scheduler, or local:N for N worker processes here"
_ADDRESS = re.compile(r"(tcp|tls)://(\[[0-9A-Fa-f:.%]+\]|[^\s/:@\[\]]+):([0-9]{1,5})/?")


class LocalAddress(NamedTuple):
    """A cluster of so many worker processes, on this machine and for this run alone."""

    workers: int


class SchedulerAddress(NamedTuple):
    """A cluster that is there already."""

    url: str


Address = LocalAddress | SchedulerAddress


def parse_address(text: str) -> Address:
    """Return what `--cluster` names; raise `ConfigError` if it names nothing."""
    if text == "local" or text.startswith("local:"):
        count = text.removeprefix("local").removeprefix(":")
        if not (count.isascii() and count.isdecimal()):
            hint = "write local:2 for two worker processes on this machine"
            raise ConfigError(f"--cluster {text!r}: the number of workers is missing or no number", hint=hint)
        if not 1 <= int(count) <= MOST_LOCAL:
            raise ConfigError(f"--cluster {text!r}: the number of workers is not in the range from 1 to {MOST_LOCAL}")
        return LocalAddress(int(count))
    found = _ADDRESS.fullmatch(text)
    if found is None or not 1 <= int(found[3]) <= 65535:
        raise ConfigError(f"--cluster {text!r} is no address of a cluster", hint=HINT)
    return SchedulerAddress(text.rstrip("/"))


def is_private(url: str) -> bool:
    """Return whether nobody else can read what is sent to an address: it is encrypted, or stays on this machine."""
    scheme, _, place = url.partition("://")
    if scheme in ("tls", "inproc"):
        return True
    import ipaddress  # which takes longer to import than all of this module

    host = place.rpartition(":")[0].strip("[]")
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
