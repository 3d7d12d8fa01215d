"""Runs of `agentv eval` in a folder, and their results."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.kits.processes import start_process, wait_until
from tests.kits.project import Write, a_case, agentv

MOCK = "targets:\n  - {name: default, provider: mock, response: hello from default}\n"


HELLO = {"type": "contains", "value": "hello"}
ANY = {"type": "contains", "value": ""}


def results(path: str | Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in Path(path).read_text().split("\n") if line]


def evaluate(*args: str | Path, expect: int = 0) -> "subprocess.CompletedProcess[str]":
    ran = agentv("eval", *args)
    assert ran.returncode == expect, ran.stdout + ran.stderr
    assert "Traceback" not in ran.stderr, ran.stderr
    return ran


def evaluate_judged(*args: str | Path) -> list[dict[str, Any]]:
    """Return the results in `out.jsonl` of a run whose exit code is 1 if a case was not judged, and else 0."""
    ran = agentv("eval", *args, "--out", "out.jsonl")
    assert "Traceback" not in ran.stderr, ran.stderr
    found = results("out.jsonl")
    is_judged = all("failure" not in result for result in found)
    assert ran.returncode == (0 if is_judged else 1), ran.stdout + ran.stderr
    return found


def run_one(*args: str | Path, expect: int = 0) -> dict[str, Any]:
    evaluate(*args, "--out", "out.jsonl", expect=expect)
    (result,) = results("out.jsonl")
    return result


SLOW = "targets:\n  - {name: default, provider: mock, response: hello, delay_min_ms: 5, delay_max_ms: 30}\n"


def start(*args: str, **options: Any) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "agentv", "eval", *args]
    return start_process(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)


def wait_for_results(path: Path, count: int) -> None:
    """Until that many results are in the file."""
    wait_until(lambda: path.exists() and path.read_bytes().count(b"\n") >= count)


def target(command: str, **settings: Any) -> str:
    entry = {"name": "default", "provider": "cli", "command_template": command, **settings}
    return json.dumps({"targets": [entry]})


def one_case(write: Write, command: str, *args: str, expect: int = 1, **settings: Any) -> dict[str, Any]:
    """The result of one case that a command answers."""
    write("targets.yaml", target(command, **settings))
    write("cases.jsonl", [a_case("a", evaluators=[ANY])])
    evaluate("cases.jsonl", "--out", "out.jsonl", *args, expect=expect)
    (result,) = results("out.jsonl")
    return result


class Batch:
    """A project whose target answers in a batch, with records that a test chooses."""

    def __init__(self, write: Write):
        self.write = write
        write("targets.yaml", target("cp records.jsonl {OUTPUT_FILE}", provider_batching=True))

    def run(self, *lines: dict[str, Any] | str, ids: tuple[str, ...] = ("a", "b"), args: tuple[str, ...] = ()) -> Any:
        """The results for cases of these ids when the command writes these lines."""
        text = "".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines)
        self.write("records.jsonl", text)
        check = {"type": "contains", "value": ""}
        self.write("cases.jsonl", [a_case(id_, evaluators=[check]) for id_ in ids])
        self.ran = evaluate("cases.jsonl", "--out", "out.jsonl", *args, expect=self.expected)
        return {result["eval_id"]: result for result in results("out.jsonl")}

    expected = 0

    def fails(self, *lines: dict[str, Any] | str, **options: Any) -> str:
        """The error that all the cases of the batch have in common."""
        self.expected = 1
        found = self.run(*lines, **options)
        (error,) = {result["error"] for result in found.values()}
        assert {result["failure"] for result in found.values()} == {"target"}
        return str(error)


ECHO = """
import json, sys
with open(sys.argv[1]) as asked, open(sys.argv[2], "w") as answers:
    for line in asked:
        request = json.loads(line)
        answers.write(json.dumps({"id": request["id"], "text": request["question"]}) + "\\n")
"""
