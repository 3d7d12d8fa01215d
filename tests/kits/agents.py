"""Stand-ins for coding agents: small programs that replay events and record how they were called."""

import json
import sys
from pathlib import Path
from typing import Any

from tests.kits.project import Write, a_case
from tests.kits.runs import evaluate, results

ANY = {"type": "contains", "value": ""}
NOTES = """#!{python}
import json, os, signal, subprocess, sys, time
from pathlib import Path
HERE = Path({folder!r})
prompt = sys.stdin.read()
files = sorted(str(path.relative_to(".")) for path in Path(".").rglob("*"))
with open(HERE / "calls.jsonl", "a") as notes:
    notes.write(json.dumps({{"args": sys.argv[1:], "prompt": prompt, "cwd": os.getcwd(), "files": files}}) + "\\n")
number = (HERE / "calls.jsonl").read_text().count("\\n")
def hang():
    if "TESTS_REACHED" in os.environ:
        with open(os.environ["TESTS_REACHED"], "a") as reached: reached.write("\\n")
    while True: time.sleep(1)
def replay(name="events"):
    sys.stdout.buffer.write((HERE / name).read_bytes())
    sys.stdout.flush()
"""


class Agents:
    """A project whose target is a stand-in for a coding agent."""

    def __init__(self, write: Write, provider: str, **settings: Any):
        self.write, self.provider = write, provider
        self.settings = {"executable": "./stand-in", **settings}
        self.case: dict[str, Any] = {}

    def does(self, script: str, *events: dict[str, Any] | str | bytes) -> "Agents":
        """The program runs this script, which can replay these events."""
        lines = [json.dumps(event, ensure_ascii=False) if isinstance(event, dict) else event for event in events]
        data = b"\n".join(line if isinstance(line, bytes) else line.encode() for line in lines)
        folder = self.write("events", data).parent
        path = self.write("stand-in", NOTES.format(python=sys.executable, folder=str(folder)) + script)
        path.chmod(0o755)
        self.write("calls.jsonl", "")
        return self

    def run(self, *args: str, ids: tuple[str, ...] = ("a",), expect: int = 0) -> list[dict[str, Any]]:
        """The results of cases of these ids."""
        entry = {"name": "default", "provider": self.provider, **self.settings}
        self.write("targets.yaml", json.dumps({"targets": [entry]}))
        self.write("cases.jsonl", [a_case(id_, evaluators=[ANY], **self.case) for id_ in ids])
        self.ran = evaluate("cases.jsonl", "--out", "out.jsonl", "--include-trace", *args, expect=expect)
        return results("out.jsonl")

    def answer(self, *events: dict[str, Any] | str | bytes, then: str = "", expect: int = 0) -> dict[str, Any]:
        """The result of one case, when the program replays these events."""
        (result,) = self.does(f"replay()\n{then}", *events).run(expect=expect)
        return result

    def error(self, *events: dict[str, Any] | str | bytes, then: str = "") -> str:
        return str(self.answer(*events, then=then, expect=1)["error"])

    @property
    def calls(self) -> list[dict[str, Any]]:
        """How the program was called, each time."""
        return [json.loads(line) for line in Path("calls.jsonl").read_text().splitlines()]

    def logs(self, folder: str = "") -> dict[str, str]:
        paths = Path(folder or f".agentv/logs/{self.provider}").iterdir()
        return {path.name: path.read_text() for path in sorted(paths)}
