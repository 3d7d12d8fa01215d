"""A project whose target is a command that works on files, in a workspace."""

import json
import sys
from typing import Any

from tests.kits.project import Write, a_case
from tests.kits.runs import ANY, evaluate, results

PYTHON = sys.executable


class Project:
    """A target `default` that runs a command in copies of the folder `template`."""

    def __init__(self, write: Write, command: str = "echo two > a.txt; echo done", **settings: Any):
        self.write = write
        self.settings: dict[str, Any] = {
            "name": "default",
            "provider": "cli",
            "command_template": command,
            "workspace_template": "template",
            **settings,
        }
        self.evaluators: list[dict[str, Any]] = [ANY]
        write("template/a.txt", "one\n")

    def save(self, ids: tuple[str, ...] = ("a",), **case: Any) -> None:
        settings = {name: value for name, value in self.settings.items() if value is not None}
        self.write("targets.yaml", json.dumps({"targets": [settings]}, indent=1))
        self.write("cases.jsonl", [a_case(id_, evaluators=self.evaluators, **case) for id_ in ids])

    def run(self, *args: str, ids: tuple[str, ...] = ("a",), expect: int = 0, **case: Any) -> list[dict[str, Any]]:
        """The results of cases of these ids."""
        self.save(ids, **case)
        self.ran = evaluate("cases.jsonl", "--out", "out.jsonl", *args, expect=expect)
        return results("out.jsonl")

    def one(self, *args: str, expect: int = 0, **case: Any) -> dict[str, Any]:
        (result,) = self.run(*args, expect=expect, **case)
        return result

    def refused(self, *args: str) -> str:
        """The error messages of a run that does not start."""
        self.save()
        return evaluate("cases.jsonl", "--out", "out.jsonl", *args, expect=2).stderr


def command(line: str | list[str], **settings: Any) -> dict[str, Any]:
    return {"type": "command", "command": line, **settings}
