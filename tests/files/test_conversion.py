"""The walk that finds every misfit agrees with msgspec on whether there is one."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentv.cases.schema import CaseRecord, FileRecord
from agentv.config import Config
from agentv.files.conversion import convert, find_misfits, label
from agentv.providers import BUILT_IN, settings_type
from tests.kits.generated import junk, spoiled


def fits(value: Any, type_: Any) -> bool:
    try:
        msgspec.convert(value, type_)
    except msgspec.ValidationError:
        return False
    return True


@pytest.mark.slow  # generated values take seconds, few or many
@given(spoiled())
def test_cases(case: dict[str, Any]) -> None:
    assert fits(case, CaseRecord) == (not list(find_misfits(case, CaseRecord)))


@given(st.data())
def test_settings(data: st.DataObject) -> None:
    type_ = data.draw(st.sampled_from([FileRecord, Config, *map(settings_type, sorted(BUILT_IN))]))
    names = [field.encode_name for field in msgspec.structs.fields(type_)]
    value = {"name": "n", "provider": "p"} if "provider" in names else {}
    value |= data.draw(st.dictionaries(st.sampled_from([*names, "unknown"]), junk, max_size=4))
    assert fits(value, type_) == (not list(find_misfits(value, type_)))


def test_all_misfits_are_reported() -> None:
    found = convert({"id": 1, "rubrics": [2, "x", []], "input_messages": [{"role": "r"}, {}]}, CaseRecord)
    assert isinstance(found, list)
    assert [(label(misfit.steps), misfit.message) for misfit in found] == [
        ("id", "expected a string, got an integer"),
        ("input_messages[0].role", "unknown role 'r'"),
        ("input_messages[1]", "missing role"),
        ("rubrics[0]", "expected a string or an object, got an integer"),
        ("rubrics[2]", "expected a string or an object, got an array"),
    ]


@pytest.mark.parametrize(
    ("steps", "text"), [(("a", 0, "b"), "a[0].b"), ((0,), "[0]"), ((), ""), (("a", "b", 1, 2), "a.b[1][2]")]
)
def test_labels(steps: tuple[str | int, ...], text: str) -> None:
    assert label(steps) == text
