"""Text with placeholders."""

from typing import Any

import pytest

from agentv.placeholders import UnknownName, fill_value, lookup, names_in

VALUES = {
    "city": "Paris",
    "count": 2,
    "user": {"name": "Ada", "tags": ["a", "b"]},
    "first.name": "Bo",
    "q": "{{ vars.city }}",
}


def filled(text: str) -> Any:
    return fill_value(text, lambda name: lookup(name, "vars", VALUES))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("In {{ vars.city }}", "In Paris"),
        ("In {{vars.city}}, {{  vars.city  }}", "In Paris, Paris"),
        ("{{ vars.count }}", 2),
        ("{{ vars.user }}", VALUES["user"]),
        ("{{ vars.count }} of {{ vars.user.tags }}", '2 of ["a","b"]'),
        ("{{ vars.user.name }} {{ vars.user.tags.1 }}", "Ada b"),
        ("{{ vars.first.name }}", "Bo"),
        ("{{ vars.q }}!", "{{ vars.city }}!"),
        (r"\{{ vars.city }}", "{{ vars.city }}"),
        (r"\{{ vars.other }} {{ vars.city }}", "{{ vars.other }} Paris"),
        (r"\{{ question }} {{ question }} {{ vars }} {{}}", r"\{{ question }} {{ question }} {{ vars }} {{}}"),
        ("${{ vars.count }}", "$2"),
    ],
)
def test_a_text_with_its_placeholders_replaced(text: str, value: Any) -> None:
    assert filled(text) == value


def test_an_unknown_name_suggests_the_nearest_one() -> None:
    with pytest.raises(UnknownName, match=r"unknown variable \{\{ vars.ctiy \}\}") as raised:
        filled("In {{ vars.ctiy }}")
    assert raised.value.hint == "did you mean 'city'?"
    with pytest.raises(UnknownName) as raised:
        lookup("state.id", "state", None)
    assert raised.value.hint == "a hook has to return it"


def test_the_names_in_a_text_are_those_that_are_replaced() -> None:
    assert list(names_in(r"{{ a }} {{vars.b}} \{{ vars.c }} \{{ d }}")) == ["a", "vars.b", "d"]
