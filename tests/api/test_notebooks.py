"""Real notebooks: a running event loop, re-run cells, edited agents, interrupts and killed kernels."""

import asyncio
import json
import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.kits.docs import ROOT
from tests.kits.project import Write

nbclient = pytest.importorskip("nbclient", reason="the extra 'dev' is not installed")
nbformat = pytest.importorskip("nbformat")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning", "ignore::RuntimeWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
START = """
import agentv

cases = [{"id": f"c{n}", "input": f"hello {n}", "expected_outcome": "greets"} for n in range(5)]
hello = {"type": "contains", "value": "hello"}

async def run(agent, **options):
    return await agentv.evaluate(cases=cases, target=agent, evaluators=[hello], **options)
"""


class Notebook:
    """A kernel in the current folder, to which cells are sent one by one."""

    def __init__(self) -> None:
        self.client = nbclient.NotebookClient(nbformat.v4.new_notebook(), timeout=120, kernel_name="python3")
        self.client.km = self.client.create_kernel_manager()
        self.client.start_new_kernel(cwd=os.getcwd())
        self.client.start_new_kernel_client()
        self.stderr = ""
        self.html = ""

    def run(self, source: str) -> str:
        """Run a cell and return the text of its last value. Raise `CellExecutionError` if it fails."""
        cell = nbformat.v4.new_code_cell(source)
        self.client.nb.cells.append(cell)
        self.client.execute_cell(cell, len(self.client.nb.cells) - 1)
        value = ""
        for output in cell.outputs:
            if output.output_type == "execute_result":
                value = output.data["text/plain"]
                self.html = output.data.get("text/html", "")
            elif output.output_type == "stream" and output.name == "stderr":
                self.stderr += output.text
        return value

    def kill(self) -> None:
        os.kill(self.client.km.provisioner.process.pid, signal.SIGKILL)


@pytest.fixture
def notebook(write: Write) -> Iterator[Notebook]:
    started = Notebook()
    try:
        yield started
    finally:
        started.client._cleanup_kernel()


def test_cells_can_be_rerun_and_functions_redefined(notebook: Notebook) -> None:
    notebook.run(START)
    define = "def agent(question):\n    calls.append(question)\n    return question"
    notebook.run("calls = []")
    notebook.run(define)
    again = 'report = await run(agent, out="o.jsonl", resume=True, version=None)\nlen(report.results), len(calls)'
    cell = again.replace(", version=None", "")
    assert notebook.run(cell) == "(5, 5)"
    assert notebook.run(cell) == "(5, 5)"  # all is done
    notebook.run(define)
    assert notebook.run(cell) == "(5, 5)"  # the same function
    notebook.run(define.replace("return question", "return question + '!'"))
    assert notebook.run(cell) == "(5, 10)"
    assert "5/5 done" in notebook.stderr  # plain text, without control codes
    assert "\x1b" not in notebook.stderr
    notebook.run("report")
    assert "mean 1.000" in notebook.html
    notebook.run('report.case("c1")')
    assert "<pre>c1: 1.000 pass" in notebook.html


def test_an_edited_agent_is_loaded_again(notebook: Notebook) -> None:
    notebook.run(START)
    notebook.run("%%writefile my_agent.py\ndef agent(question):\n    return 'bye'\n")
    notebook.run("import my_agent")
    assert notebook.run("(await run(my_agent.agent)).summary.mean") == "0.0"
    notebook.run("%%writefile my_agent.py\ndef agent(question):\n    return 'hello'\n")
    assert notebook.run("(await run(my_agent.agent)).summary.mean") == "1.0"


def test_an_interrupt_ends_the_run_and_keeps_its_results(notebook: Notebook) -> None:
    notebook.run(START)
    notebook.run("""
import asyncio, os, signal

async def agent(question):
    if question == "hello 3":
        os.kill(os.getpid(), signal.SIGINT)
        await asyncio.sleep(60)
    return question
""")
    with pytest.raises(nbclient.exceptions.CellExecutionError, match=r"KeyboardInterrupt|CancelledError"):
        notebook.run('await run(agent, out="o.jsonl")')
    assert Path("o.jsonl").read_text().count("\n") == 3
    (record,) = Path(".agentv/runs").glob("*.json")
    assert json.loads(record.read_text())["exit_reason"] == "interrupted"
    assert notebook.run("(await run(str)).summary.mean") == "1.0"  # the kernel goes on


def test_a_killed_kernel_is_resumed(notebook: Notebook) -> None:
    notebook.run(START)
    agent = """
async def agent(question):
    if question == "hello 3" and not os.path.exists("again"):
        os.kill(os.getpid(), signal.SIGKILL)
    with open("calls", "a") as calls:
        calls.write(question + "\\n")
    return question
"""
    notebook.run(f"import os, signal\n{agent}")
    with pytest.raises(nbclient.exceptions.DeadKernelError):
        notebook.run('await run(agent, out="o.jsonl")')
    assert Path("o.jsonl").read_text().count("\n") == 3
    Path("again").touch()
    second = Notebook()
    try:
        second.run(START)
        second.run(f"import os, signal\n{agent}")
        cell = 'report = await run(agent, out="o.jsonl", resume=True)\n[result.eval_id for result in report.results]'
        assert second.run(cell) == "['c0', 'c1', 'c2', 'c3', 'c4']"
    finally:
        second.client._cleanup_kernel()
    assert Path("calls").read_text().splitlines() == [f"hello {number}" for number in range(5)]


def test_evaluate_sync_is_rejected_in_a_notebook(notebook: Notebook) -> None:
    notebook.run(START)
    with pytest.raises(nbclient.exceptions.CellExecutionError, match=r"use 'await agentv\.evaluate"):
        notebook.run("agentv.evaluate_sync(cases=cases, target=str)")


@pytest.mark.parametrize("path", sorted((ROOT / "examples/notebook").glob("*.ipynb")), ids=lambda path: path.stem)
def test_the_notebooks_of_the_examples_run(path: Path, write: Write) -> None:
    shutil.copytree(path.parent, "copy", ignore=shutil.ignore_patterns("*.jsonl", ".agentv"))
    content: Any = nbformat.read(path, as_version=4)
    code = [cell for cell in content.cells if cell.cell_type == "code"]
    assert [cell.outputs for cell in code] == [[]] * len(code), "strip the output"
    assert {cell.execution_count for cell in code} == {None}
    client = nbclient.NotebookClient(content, timeout=120, resources={"metadata": {"path": "copy"}})
    asyncio.run(client.async_execute())
