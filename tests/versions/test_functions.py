"""Versions of callables: their code, and the values that they depend on."""

import dataclasses
import datetime
import functools
import importlib.util
import logging
import sys
import textwrap
import types
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from agentv.versions.functions import UnknownVersion, function_version
from tests.kits.project import Write


def make(city: Any) -> Callable[[str], str]:
    def answer(question: str) -> str:
        return str(city)

    return answer


def with_default(city: str) -> Callable[[str], str]:
    def answer(question: str, city: str = city) -> str:
        return city

    return answer


class Agent:
    def __init__(self, city: Any):
        self.city = city
        self.calls = 0
        self.seen: list[str] = []

    def __call__(self, question: str) -> str:
        self.calls += 1
        self.seen.append(question)
        return str(self.city)

    def answer(self, question: str) -> str:
        return str(self.city)


@dataclasses.dataclass
class Settings:
    city: str
    client: object = None


AT_PROMPT = """
import dataclasses

@dataclasses.dataclass
class Settings:
    city: str

settings = Settings(city)

def answer(q):
    return settings.city
"""


def first(question: str, city: str) -> str:
    return city


def defined(source: str, name: str = "answer", **values: Any) -> Callable[..., Any]:
    """A function as an interactive prompt defines it: without a file."""
    namespace: dict[str, Any] = {"__name__": "__main__", **values}
    exec(source, namespace)
    function: Callable[..., Any] = namespace[name]
    return function


@pytest.mark.parametrize(
    "made",
    [
        make,
        with_default,
        Agent,
        lambda city: Agent(city).answer,
        lambda city: functools.partial(first, city=city),
        lambda city: make([city]),
        lambda city: make({"city": city}),
        lambda city: make(make(city)),
        lambda city: make(Path(city)),
        lambda city: functools.lru_cache(make(city)),
        lambda city: make(Settings(city)),
        lambda city: make(Decimal(len(city))),
        lambda city: make(datetime.date(2026, 1, len(city))),
        lambda city: make(types.SimpleNamespace(city=city)),
        lambda city: defined(AT_PROMPT, city=city),
        lambda city: defined("def answer(q):\n    return CITY\n", CITY=city),
        lambda city: defined(f"def answer(q):\n    return {city!r}\n"),
        lambda city: defined(f"def helper():\n    return {city!r}\ndef answer(q):\n    return helper()\n"),
        lambda city: defined(f"class A:\n    def __call__(self, q):\n        return {city!r}\nanswer = A()\n"),
        lambda city: defined(f"answer = lambda q: {city!r}\n"),
    ],
)
def test_each_value_makes_a_version(made: Callable[[str], Callable[..., Any]]) -> None:
    assert function_version(made("London")) == function_version(made("London"))
    assert function_version(made("London")) != function_version(made("Paris"))


def test_two_lambdas_of_one_file_are_two_versions() -> None:
    functions = [lambda question: "London", lambda question: "Paris"]
    assert function_version(functions[0]) != function_version(functions[1])


def test_what_a_function_changes_itself_is_not_part_of_its_version() -> None:
    calls: list[str] = []
    count = {"n": 0}
    number = 0

    def answer(question: str) -> str:
        nonlocal number
        number += 1
        calls.append(question)
        count["n"] += 1
        return "Paris"

    before = function_version(answer)
    answer("?")
    assert (number, calls, count) == (1, ["?"], {"n": 1})
    assert function_version(answer) == before
    agent = Agent("Paris")
    before = function_version(agent)
    agent("?")
    assert function_version(agent) == before
    agent.city = "Rome"
    assert function_version(agent) != before


@pytest.mark.parametrize(
    ("function", "why"),
    [
        (make(object()), "make.<locals>.answer() uses 'city', an object of the class object"),
        (Agent(iter("x")), "the target has the attribute 'city', an object of the class str_ascii_iterator"),
        (
            defined("def answer(q):\n    return client\n", client=iter("x")),
            "answer() uses 'client', an object of the class str_ascii_iterator",
        ),
    ],
)
def test_a_version_that_cannot_be_determined(function: Callable[..., Any], why: str) -> None:
    with pytest.raises(UnknownVersion) as raised:
        function_version(function)
    assert str(raised.value) == why


def test_loggers_and_recursion_have_versions() -> None:
    source = "def answer(q):\n    log.info(q)\n    return answer(q)\n"
    assert function_version(defined(source, log=logging.getLogger("x")))


def test_comments_do_not_change_a_version() -> None:
    source = "def answer(q):\n    return 'Paris'\n"
    assert function_version(defined(source)) == function_version(defined("# why\n\n" + source))


def load(path: Path) -> Callable[..., Any]:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    exec(compile(path.read_bytes(), str(path), "exec"), module.__dict__)
    function: Callable[..., Any] = module.answer
    return function


def test_the_modules_that_a_function_imports_are_part_of_its_version(write: Write) -> None:
    path = write("agent.py", "def answer(q):\n    import helper\n    return helper.city()\n")
    write("helper.py", "def city():\n    return 'London'\n")
    before = function_version(load(path))
    write("helper.py", "# a comment\ndef city():\n    return 'London'\n")
    assert function_version(load(path)) == before
    write("helper.py", "def city():\n    return 'Paris'\n")
    assert function_version(load(path)) != before


def test_a_loaded_function_does_not_get_the_version_of_its_changed_file(write: Write) -> None:
    source = "def make(x):\n    def answer(q):\n        return 'London'\n    return answer\nanswer = make(1)\n"
    path = write("agent.py", source)
    old = load(path)
    write("agent.py", source.replace("London", "Paris"))
    assert function_version(old) != function_version(load(path))


@pytest.mark.parametrize(
    "line",
    [
        "settings['city'] = 'Paris'",
        "namespace.city = 'Paris'",
        "chosen.city = 'Paris'",
        "places.city = 'Paris'",
    ],
)
def test_values_of_modules_that_have_changed_since(write: Write, line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(".")
    for name in ("places", "agent"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    write("places.py", "city = 'London'\ndef find():\n    return city\n")
    source = """
        import dataclasses
        import types
        import places

        @dataclasses.dataclass
        class Chosen:
            city: str
            client: object

        settings = {'city': 'London', 'client': object()}
        namespace = types.SimpleNamespace(city='London')
        chosen = Chosen('London', object())

        def answer(question):
            return settings['city'] + namespace.city + chosen.city + places.find()
        """
    write("agent.py", textwrap.dedent(source))
    answer = importlib.import_module("agent").answer
    before = function_version(answer)
    assert function_version(answer) == before
    exec(line, answer.__globals__)
    assert function_version(answer) != before
