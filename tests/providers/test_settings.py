"""Declarations of settings: which values are secret, and which affect answers."""

from typing import Annotated, Any

import msgspec
import pytest

from agentv.extend import IN_CACHE_KEY, NOT_IN_CACHE_KEY, SECRET, Secret, TargetSettings, Text
from agentv.providers import BUILT_IN, settings_type
from agentv.providers.settings import SECRET_NAMES, cache_key_fields, secret_values, target_digest


class Login(msgspec.Struct, frozen=True, kw_only=True):
    user_name: str
    pass_phrase: Secret | None = None


class Settings(TargetSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    auth_token: Secret | None = None
    cookies: Annotated[dict[str, str] | None, SECRET, IN_CACHE_KEY] = None
    keys: tuple[Secret, ...] = ()
    region: Text | None = None
    color: Annotated[Text | None, NOT_IN_CACHE_KEY] = None
    login: Login | None = None
    logins: tuple[Login, ...] = ()


def settings(**fields: Any) -> Settings:
    return Settings(name="a", provider="b", **fields)


def secret_fields(type_: Any) -> set[str]:
    return {name for name in type_.__struct_fields__ if list(secret_values({name: "x"}, type_))}


def test_secret_fields_are_declared() -> None:
    assert secret_fields(Settings) == {"auth_token", "cookies", "keys"}
    declared = {kind: sorted(secret_fields(settings_type(kind))) for kind in BUILT_IN}
    models = {key: ["api_key"] for key in ("anthropic", "azure", "gemini", "openai")}
    assert {kind: names for kind, names in declared.items() if names} == models | {"http": ["headers"]}


@pytest.mark.parametrize(
    ("raw", "found"),
    [
        ({"auth_token": "one", "region": "two"}, ["one"]),
        ({"authToken": "one"}, ["one"]),
        ({"auth_token": {"does": ["not", "fit"]}}, [{"does": ["not", "fit"]}]),
        ({"login": {"user_name": "me", "passPhrase": "one"}}, ["one"]),
        ({"login": [{"pass_phrase": 7}]}, [7]),
        ({"logins": [{"pass_phrase": "one"}, {"pass_phrase": "two"}]}, ["one", "two"]),
        ({"keys": ["one"], "unknown": "two"}, [["one"]]),
    ],
)
def test_secret_values_are_found_in_any_setting(raw: dict[str, Any], found: list[Any]) -> None:
    assert list(secret_values(raw, Settings)) == found


@pytest.mark.parametrize(
    "secret",
    [
        {"auth_token": "x"},
        {"cookies": {"a": "x"}},
        {"keys": ("x",)},
    ],
)
def test_a_digest_does_not_depend_on_secrets(secret: dict[str, Any]) -> None:
    assert target_digest(settings(**secret)) == target_digest(settings())


def test_a_digest_does_not_depend_on_nested_secrets() -> None:
    same = {
        target_digest(settings(login=Login(user_name="me", pass_phrase=secret), logins=(Login(user_name="you"),)))
        for secret in ("one", "two", None)
    }
    assert len(same) == 1
    assert target_digest(settings(login=Login(user_name="you"))) != target_digest(settings(login=Login(user_name="me")))


def test_all_other_settings_are_part_of_a_digest() -> None:
    several = [settings(), settings(region="x"), settings(color="x"), settings(region="x", color="x")]
    assert len({target_digest(one) for one in several}) == 4


def test_a_cache_key_contains_what_affects_answers() -> None:
    fields = cache_key_fields(settings(auth_token="one", cookies={"a": "b"}, region="x", color="y", workers=3))
    assert fields == {"provider": "b", "cookies": {"a": "b"}, "region": "x", "login": None, "logins": [], "hooks": None}


class WithVariables(TargetSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    env: Annotated[dict[str, str] | None, SECRET_NAMES] = None


def test_only_values_with_secret_names_are_secret_in_a_mapping() -> None:
    one, two = (WithVariables(name="a", provider="b", env={"COLOR": "red", "API_KEY": key}) for key in ("one", "two"))
    assert list(secret_values({"env": {"COLOR": "red", "API_KEY": "one"}}, WithVariables)) == ["one"]
    assert list(secret_values({"env": ["API_KEY"]}, WithVariables)) == []
    assert repr(one) == "WithVariables(name='a', provider='b', env={'COLOR': 'red', 'API_KEY': '***'})"
    assert target_digest(one) == target_digest(two)
    assert cache_key_fields(one) == cache_key_fields(two)
    assert target_digest(one) != target_digest(WithVariables(name="a", provider="b", env={"COLOR": "blue"}))
