"""Eval cases as files."""

import os
from collections.abc import Iterator
from contextlib import contextmanager


def yaml_case(**fields: str) -> str:
    """A YAML file of one case whose fields are written as given; the case begins on line 2."""
    lines = {"id": "x", "expected_outcome": "Goal", "input": "Query"} | fields
    return "evalcases:\n  - " + "\n    ".join(f"{name}: {text}" for name, text in lines.items()) + "\n"


@contextmanager
def as_nobody() -> Iterator[None]:
    """Root may read everything, so switch to another user temporarily."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


ONE_LINE = '{"id": "test-1", "expected_outcome": "Goal", "input_messages": [{"role": "user", "content": "Query"}]}\n'


SAME_IN_YAML = """
evalcases:
  - id: test-1
    expected_outcome: Goal
    input_messages:
      - role: user
        content: Query
"""
