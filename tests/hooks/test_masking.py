"""Strings that are masked temporarily."""

from agentv.redact import Redactor


def test_held_secrets_are_masked_until_they_are_released() -> None:
    redact = Redactor(["permanent-secret"])
    first = redact.hold(["/tmp/database one", "permanent-secret", "short"])
    second = redact.hold(["/tmp/database one"])
    text = "permanent-secret /tmp/database one \\/tmp\\/database one short"
    assert redact(text) == "*** *** *** short"
    redact.release(first)
    assert redact(text) == "*** *** *** short"
    redact.release(second)
    assert redact(text) == text.replace("permanent-secret", "***")


def test_a_held_secret_that_is_learned_is_masked_permanently() -> None:
    redact = Redactor()
    held = redact.hold(["my-secret-value"])
    redact.learn(["my-secret-value"])
    redact.release(held)
    assert redact("my-secret-value") == "***"


def test_a_held_secret_that_contains_another_is_masked_as_a_whole() -> None:
    redact = Redactor(["database"])
    redact.hold(["database-of-a"])
    assert redact("database-of-a database") == "*** ***"
