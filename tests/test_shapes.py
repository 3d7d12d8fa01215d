"""The walk that finds every misfit agrees with msgspec on whether there is one."""

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentv.case_records import CaseRecord, FileRecord
from agentv.config import Config
from agentv.providers import BUILT_IN, settings_type
from agentv.shapes import converted, label, misfits
from tests.test_cases import written_cases

junk = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.floats(-2, 2) | st.sampled_from(["", "x", "user", "${{ A }}"]),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["type", "value", "url", "role"]), inner)
    ),
    max_leaves=4,
)


@st.composite
def spoiled(draw: st.DrawFn) -> dict[str, Any]:
    """A case with something put, somewhere, in the place of something else."""
    case = draw(written_cases)
    for _ in range(draw(st.integers(0, 3))):
        holder: Any = case
        while True:
            if not holder:
                break
            steps = list(holder) if isinstance(holder, dict) else range(len(holder))
            step = draw(st.sampled_from(steps))
            if not isinstance(holder[step], dict | list) or draw(st.booleans()):
                holder[step] = draw(junk)
                break
            holder = holder[step]
    return case


def fits(value: Any, type_: Any) -> bool:
    try:
        msgspec.convert(value, type_)
    except msgspec.ValidationError:
        return False
    return True


@settings(max_examples=500, deadline=None)
@given(spoiled())
def test_cases(case: dict[str, Any]) -> None:
    assert fits(case, CaseRecord) == (not list(misfits(case, CaseRecord)))


@settings(max_examples=500, deadline=None)
@given(st.data())
def test_settings(data: st.DataObject) -> None:
    type_ = data.draw(st.sampled_from([FileRecord, Config, *map(settings_type, sorted(BUILT_IN))]))
    names = [field.encode_name for field in msgspec.structs.fields(type_)]
    value = {"name": "n", "provider": "p"} if "provider" in names else {}
    value |= data.draw(st.dictionaries(st.sampled_from([*names, "unknown"]), junk, max_size=4))
    assert fits(value, type_) == (not list(misfits(value, type_)))


def test_every_misfit_is_found() -> None:
    found = converted({"id": 1, "rubrics": [2, "x", []], "input_messages": [{"role": "r"}, {}]}, CaseRecord)
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
