"""The packages that `pip install .` installs."""

import re
from collections.abc import Iterable
from importlib.metadata import Distribution, distribution
from pathlib import Path

import pytest

import agentv

pytestmark = pytest.mark.slow


MOST_DISTRIBUTIONS, MOST_BYTES = 12, 25_000_000


def closure(name: str) -> dict[str, Distribution]:
    """A distribution and all that it needs, without extras."""
    found: dict[str, Distribution] = {}
    waiting = [name]
    while waiting:
        key = re.sub(r"[-_.]+", "-", waiting.pop()).lower()
        if key not in found:
            found[key] = distribution(key)
            for needed in found[key].requires or ():
                if "extra ==" not in needed and not _is_for_others(needed):
                    waiting.append(re.split(r"[\s;<>=!~\[(]", needed, maxsplit=1)[0])
    return found


def _is_for_others(needed: str) -> bool:
    """Whether it is only needed on other systems or older versions of Python."""
    from packaging.requirements import Requirement

    marker = Requirement(needed).marker
    return marker is not None and not marker.evaluate({"extra": ""})


def test_the_core_is_at_most_twelve_distributions_and_25_mb() -> None:
    found = closure("agentv")
    assert len(found) <= MOST_DISTRIBUTIONS, sorted(found)
    assert {"openai", "anthropic", "google-genai", "httpx", "httpx2", "scipy"}.isdisjoint(found)
    size = _size(Path(agentv.__file__).parent.rglob("*"))
    for name, each in found.items():
        if name != "agentv":  # installed in editable mode: its files are not listed
            size += _size(Path(str(each.locate_file(file))) for file in each.files or ())
    assert 5_000_000 < size < MOST_BYTES


def _size(files: Iterable[Path]) -> int:
    """Return the size of files without bytecode, which pip and Python write themselves."""
    return sum(path.stat().st_size for path in files if path.is_file() and path.suffix != ".pyc")
