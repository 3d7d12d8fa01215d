"""Processes: which of them live, and waiting for them."""

import contextlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.kits.project import Write, a_case
from tests.kits.runs import evaluate, results, target

ANY = {"type": "contains", "value": ""}


PATIENCE_SECONDS = 30.0


def living(sign: str) -> list[str]:
    """The command lines of living processes that hold a sign; the dead that nobody has buried do not count."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            line = folder.joinpath("cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            if sign in line and folder.joinpath("stat").read_text().rpartition(")")[2].split()[0] != "Z":
                found.append(line)
    return found


def wait_until(true: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE_SECONDS
    while not true():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.02)


def one_case(write: Write, command: str, *args: str, expect: int = 1, **settings: Any) -> dict[str, Any]:
    """The result of one case that a command answers."""
    write("targets.yaml", target(command, **settings))
    write("cases.jsonl", [a_case("a", evaluators=[ANY])])
    evaluate("cases.jsonl", "--out", "out.jsonl", *args, expect=expect)
    (result,) = results("out.jsonl")
    return result
