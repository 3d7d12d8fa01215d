"""What comes with `pip install .`, and what does not."""

import re
from importlib.metadata import Distribution, distribution

import pytest

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
    size = sum(_size(each) for name, each in found.items() if name != "agentv")
    assert 1_000_000 < size < MOST_BYTES


def _size(of: Distribution) -> int:
    return sum(path.stat().st_size for file in of.files or () if (path := of.locate_file(file)).is_file())  # type: ignore[attr-defined]
