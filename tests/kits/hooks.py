"""A project with hooks that write to `log`."""

import json
from pathlib import Path
from typing import Any

from tests.kits.project import Write, a_case

FUNCTIONS = """
import os
import time

LOG = os.path.join(os.path.dirname(__file__), "log")


def note(*words):
    with open(LOG, "a") as log:
        log.write(" ".join(map(str, words)) + "\\n")


def before_all():
    note("before_all")
    return {"url": "http://127.0.0.1:8080/", "seen": []}


def before_each(eval_id, state):
    note("before_each", eval_id)
    state["seen"] = [*state.get("seen", ()), eval_id]
    return {"database": f"database-of-{eval_id}"}


async def after_each(eval_id, state):
    note("after_each", eval_id, *state["seen"], state.get("database"))


def after_all(state):
    note("after_all", *state["seen"])


def fail():
    note("fail")
    raise ValueError("no server")


def answer(question, state):
    return "hello from " + state.get("database", "nowhere")


def check(candidate_answer, state):
    return state.get("database", "nowhere") in candidate_answer
"""
FILE_HOOKS = {
    name: {"function": f"hooks.py:{name}"} for name in ("before_all", "before_each", "after_each", "after_all")
}


class Hooked:
    """Cases with hooks, answered by a function by default."""

    def __init__(self, write: Write, file_hooks: dict[str, Any] | None = None, **settings: Any):
        self.write = write
        self.hooks: dict[str, Any] = dict(FILE_HOOKS)
        if file_hooks is not None:
            self.hooks = file_hooks
        self.settings: dict[str, Any] = {
            "name": "default",
            "provider": "python",
            "function": "hooks.py:answer",
            **settings,
        }
        self.evaluators: list[dict[str, Any]] = [{"type": "contains", "value": "hello"}]
        write("hooks.py", FUNCTIONS)

    def save(self, *ids: str) -> None:
        """Write the files, with a case of each id."""
        self.write("targets.yaml", json.dumps({"targets": [self.settings]}))
        self.write("cases.yaml", json.dumps({"hooks": self.hooks, "evaluators": self.evaluators}))
        self.write("cases.jsonl", [a_case(id_) for id_ in ids or ("a",)])


def log() -> list[str]:
    """The entries that the hooks have written."""
    path = Path("log")
    if not path.exists():
        return []
    return path.read_text().splitlines()
