"""A type checker accepts the examples of the pages about Python."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import agentv
from tests.kits.docs import ROOT, blocks
from tests.kits.project import Write


@pytest.mark.slow
@pytest.mark.parametrize("page", ["python-api.md", "notebook.md", "python-evaluators.md"])
def test_the_examples_of_a_page_have_no_type_errors(page: str, write: Write) -> None:
    files = []
    for number, block in enumerate(blocks(ROOT / "docs" / page)):
        if block.language == "python":
            write(f"example_{number}.py", block.text)
            files.append(f"example_{number}.py")
    assert files
    ran = subprocess.run(
        [sys.executable, "-m", "mypy", "--check-untyped-defs", "--no-incremental", "--cache-dir", "cache", *files],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "MYPYPATH": str(Path(agentv.__file__).parent.parent)},
    )
    assert ran.returncode == 0, ran.stdout
