"""The workflow in docs/sharding.md does what the page says: its commands are run, with a `gh` that keeps the comment."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.kits.docs import ROOT, blocks
from tests.kits.shards import rows

AGENT = "def answer(question):\n    return question if ODD in question or question < '5' else 'no idea'\n"
EVALS = "execution:\n  evaluators: [{type: contains, value: good}]\nevalcases:\n"
GH = """#!/bin/sh
test "$1 $2 $3 $4" = "pr comment 7 --body-file" && cp "$5" "$COMMENT"
"""


class Runner:
    """Runs the jobs of a workflow: the commands as they are, artifacts as copies, other actions not at all."""

    def __init__(self, folder: Path, workflow: dict[str, Any]):
        self.folder, self._jobs = folder, workflow["jobs"]
        self.artifacts = folder / "artifacts"
        programs = folder / "programs"
        programs.mkdir()
        (programs / "gh").write_text(GH)
        (programs / "gh").chmod(0o755)
        self._path = os.pathsep.join([str(programs), str(Path(sys.executable).parent), os.environ["PATH"]])
        self.comment = folder / "comment.md"
        self.ran: list[str] = []

    def run(self, job: str, checkout: Path, **values: str) -> None:
        """Run the steps of a job; raise if one fails."""
        known = {
            "github.base_ref": "main",
            "github.event.number": "7",
            "secrets.OPENAI_API_KEY": "",
            "github.token": "",
        }
        settings = self._jobs[job]

        def filled(text: object) -> str:
            return re.sub(r"\$\{\{ *(\S+?) *\}\}", lambda found: (known | values)[found[1]], str(text))

        variables = {name: filled(value) for name, value in settings.get("env", {}).items()}
        environment = {**os.environ, "PATH": self._path, "COMMENT": str(self.comment), **variables}
        for step in settings["steps"]:
            options = {name: filled(value) for name, value in step.get("with", {}).items()}
            if step.get("uses", "").startswith("actions/upload-artifact@"):
                source, place = checkout / options["path"], self.artifacts / options["name"]
                place.mkdir(parents=True)
                for path in [source] if source.is_file() else source.iterdir():
                    shutil.copy(path, place)
            elif step.get("uses", "").startswith("actions/download-artifact@"):
                (checkout / options["path"]).mkdir()
                for path in self.artifacts.glob(f"{options['pattern']}/*"):
                    shutil.copy(path, checkout / options["path"])
            elif "run" in step and not step["run"].startswith("pip install "):
                command, cwd = filled(step["run"]), checkout / step.get("working-directory", "")
                ran = subprocess.run(
                    ["/bin/sh", "-e", "-c", command],
                    cwd=cwd,
                    env=environment,
                    capture_output=True,
                    text=True,
                    check=False,
                )
                assert ran.returncode == 0, f"{command}\n{ran.stdout}{ran.stderr}"
                self.ran.append(command)


def git(folder: Path, *args: str) -> None:
    identity = ["-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run(["git", *identity, *args], cwd=folder, check=True, capture_output=True)


def repository(folder: Path) -> Path:
    """A repository whose branch has a better agent than its base."""
    (folder / "evals").mkdir(parents=True)
    cases = "".join(f"  - {{id: case-{n}, expected_outcome: x, input: '{n % 10} good'}}\n" for n in range(40))
    (folder / "evals" / "some.yaml").write_text(EVALS + cases)
    (folder / "targets.yaml").write_text(
        "targets: [{name: default, provider: python, function: '../agent.py:answer'}]\n"
    )
    (folder / "agent.py").write_text(AGENT.replace("ODD", "'no such thing'"))
    git(folder, "init", "-q", "-b", "main")
    git(folder, "add", ".")
    git(folder, "commit", "-qm", "base")
    git(folder, "checkout", "-qb", "branch")
    (folder / "agent.py").write_text(AGENT.replace("ODD", "'7'"))
    git(folder, "commit", "-qam", "better")
    return folder


@pytest.mark.slow
def test_the_workflow_of_the_docs_shards_merges_compares_and_comments(tmp_path: Path) -> None:
    found = [block.text for block in blocks(ROOT / "docs" / "sharding.md") if block.text.startswith("# .github/")]
    workflow = yaml.safe_load(found[0])
    runner = Runner(tmp_path, workflow)
    repo = repository(tmp_path / "repo")
    shards = workflow["jobs"]["shards"]["strategy"]["matrix"]["shard"]
    assert len(shards) == 4
    for shard in shards:
        git(tmp_path, "clone", "-q", "-b", "branch", str(repo), f"shard-{shard}")
        values = {"matrix.shard": str(shard), "strategy.job-total": str(len(shards))}
        runner.run("shards", tmp_path / f"shard-{shard}", **values)
    git(tmp_path, "clone", "-q", "-b", "branch", str(repo), "compare")
    runner.run("compare", tmp_path / "compare")

    assert len(runner.ran) == 4 * 3 + 5
    for name in ("base", "candidate"):
        assert len(rows(tmp_path / "compare" / f"{name}.jsonl")) == 40
    comment = runner.comment.read_text()
    assert comment.startswith("### agentv: better\n")
    assert "| passed | 20 | 24 | +4 / −0 |" in comment
    assert "**4 fixed (fail → pass)**: `case-17`, `case-27`, `case-37`, `case-7`" in comment
    assert "target default is another version" in comment
    assert (runner.artifacts / "report" / "report.html").stat().st_size > 10_000
