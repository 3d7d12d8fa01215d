"""Runs GitHub Actions workflows locally: those of the docs, those of this repository, and its action."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

from tests.kits.docs import ROOT, blocks

GH = """#!{python}
import json, os, pathlib, re, sys

OURS = re.compile(r'\\.\\[\\] \\| select\\(\\.body \\| (startswith|contains)\\("(.*)"\\)\\) \\| \\.id')
store = pathlib.Path(os.environ["COMMENTS"])
comments = json.loads(store.read_text())
match sys.argv[1:]:
    case ["api", "--paginate", "repos/me/repo/issues/7/comments", "--jq", query] if asked := OURS.fullmatch(query):
        for number, body in enumerate(comments):
            if body.startswith(asked[2]) or (asked[1] == "contains" and asked[2] in body):
                print(number)
    case ["api", "--method", "PATCH", path, "--field", body] if body.startswith("body=@"):
        number = int(path.removeprefix("repos/me/repo/issues/comments/"))
        comments[number] = pathlib.Path(body.removeprefix("body=@")).read_text()
    case ["pr", "comment", "7", *repo, "--body-file", path] if repo in ([], ["--repo", "me/repo"]):
        comments.append(pathlib.Path(path).read_text())
    case other:
        sys.exit(f"unexpected: {{other}}")
store.write_text(json.dumps(comments))
"""
"""A `gh` that keeps the comments of pull request 7 in a file."""
SHELLS = {"": ["/bin/bash", "-e", "-c"], "bash": ["/bin/bash", "-eo", "pipefail", "-c"]}
"""What GitHub runs commands with."""


def workflow_of(page: str, folder: str = ".github/") -> dict[str, Any]:
    """Return the workflow in a page of the docs."""
    for block in blocks(ROOT / "docs" / page):
        if block.text.startswith(f"# {folder}"):
            workflow: dict[str, Any] = yaml.safe_load(block.text)
            return workflow
    raise AssertionError(f"{page} has no workflow")


def action_as_workflow(path: Path, **given: str) -> dict[str, Any]:
    """Return a workflow with the one job `action`: the steps of a composite action, called with these inputs."""
    action = yaml.safe_load(path.read_text())
    assert action["runs"]["using"] == "composite"
    inputs = {}
    for name, settings in action["inputs"].items():
        inputs[f"inputs.{name}"] = settings["default"]
    for name, value in given.items():
        key = "inputs." + name.replace("_", "-")
        assert key in inputs
        inputs[key] = value
    return {"jobs": {"action": {"steps": action["runs"]["steps"]}}, "inputs": inputs}


class Runner:
    """Runs the jobs of a workflow: the commands unchanged, artifacts and caches as copies, other actions not at all."""

    def __init__(self, folder: Path, workflow: dict[str, Any]):
        self.folder = folder
        self._jobs = workflow["jobs"]
        self._inputs: dict[str, str] = workflow.get("inputs", {})
        self.artifacts = folder / "artifacts"
        self._caches = folder / "caches"
        self._comments = folder / "comments.json"
        self._comments.write_text(json.dumps(["Looks good to me"]))
        programs = folder / "programs"
        programs.mkdir()
        _write_program(programs / "gh", GH.format(python=sys.executable))
        _write_program(programs / "pip", "#!/bin/sh\n")  # everything is installed
        self._path = os.pathsep.join([str(programs), str(Path(sys.executable).parent), os.environ["PATH"]])
        self.printed = ""
        """The output of all commands of the last job."""
        self._summary = folder / "summary.md"
        self._temporary = folder

    @property
    def summary(self) -> str:
        """The summary of the last job."""
        return self._summary.read_text()

    @property
    def comments(self) -> list[str]:
        """The comments of agentv on the pull request."""
        comments: list[str] = json.loads(self._comments.read_text())
        assert comments[0] == "Looks good to me"
        return comments[1:]

    def run(self, job: str, checkout: Path, **values: str) -> list[str]:
        """Run the steps of a job, and return the commands that failed it."""
        settings = self._jobs[job]
        self._temporary = _new_folder(self.folder / "runner-temp")
        self._summary.write_text("")
        known = self._known(checkout, values)
        environment = {
            **os.environ,
            "PATH": self._path,
            "COMMENTS": str(self._comments),
            "GITHUB_REPOSITORY": "me/repo",
            "GITHUB_STEP_SUMMARY": str(self._summary),
            "RUNNER_TEMP": str(self._temporary),
        }
        if "github.ref_name" in values:
            environment["GITHUB_REF_NAME"] = values["github.ref_name"]
        environment.update(_filled_all(settings.get("env", {}), known))
        failed: list[str] = []
        self.printed = ""
        for step in settings["steps"]:
            if not _is_met(step.get("if", "success()"), known, has_failed=bool(failed)):
                continue
            options = _filled_all(step.get("with", {}), known)
            action = step.get("uses", "").partition("@")[0]
            if action == "actions/cache/restore":
                known["steps.baseline.outputs.cache-hit"] = self._restore_cache(options, checkout)
                continue
            if action:
                self._use(action, options, checkout)
                continue
            command = _filled(step["run"], known)
            folder = checkout / _filled(step.get("working-directory", ""), known)
            step_environment = {**environment, **_filled_all(step.get("env", {}), known)}
            shell = SHELLS[step.get("shell", "")]
            code = self._run_command([*shell, command], folder, step_environment)
            if code != 0 and not step.get("continue-on-error"):
                failed.append(step.get("name", command))
        return failed

    def _known(self, checkout: Path, values: dict[str, str]) -> dict[str, str]:
        """Return the values of expressions."""
        known = {
            "github.event.number": "7",
            "github.event.pull_request.number": "7",
            "github.event.pull_request.base.sha": git(checkout, "rev-parse", "origin/main"),
            "secrets.OPENAI_API_KEY": "",
            "github.token": "",
            "runner.temp": str(self._temporary),
            **values,
        }
        for name, value in self._inputs.items():
            known[name] = _filled(value, known)
        return known

    def _run_command(self, command: list[str], folder: Path, environment: dict[str, str]) -> int:
        ran = subprocess.run(
            command,
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        self.printed += f"$ {command[-1]}\n{ran.stdout}{ran.stderr}"
        return ran.returncode

    def _use(self, action: str, options: dict[str, str], checkout: Path) -> None:
        """Simulate an action, as far as commands depend on it."""
        if action == "actions/upload-artifact":
            source = checkout / options["path"]
            place = self.artifacts / options["name"]
            shutil.rmtree(place, ignore_errors=True)
            place.mkdir(parents=True)
            files = [source]
            if source.is_dir():
                files = list(source.iterdir())
            for path in files:
                shutil.copy(path, place)
        elif action == "actions/download-artifact":
            place = checkout / options["path"]
            place.mkdir()
            for path in self.artifacts.glob(f"{options['pattern']}/*"):
                shutil.copy(path, place)
        elif action == "actions/cache/save":
            self._save_cache(options, checkout)

    def _restore_cache(self, options: dict[str, str], checkout: Path) -> str:
        """Copy a file from the cache, and return whether it was there, as an output of the action."""
        cached = self._caches / options["key"]
        if not cached.exists():
            return ""
        place = checkout / options["path"]
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(cached, place)
        return "true"

    def _save_cache(self, options: dict[str, str], checkout: Path) -> None:
        self._caches.mkdir(exist_ok=True)
        cached = self._caches / options["key"]
        source = checkout / options["path"]
        if source.exists() and not cached.exists():
            shutil.copy(source, cached)


def _write_program(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o755)


def _new_folder(path: Path) -> Path:
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir()
    return path


def _filled(text: object, values: dict[str, str]) -> str:
    """Return the text with the values of its expressions."""
    return re.sub(r"\$\{\{ *(\S+?) *\}\}", lambda found: values[found[1]], str(text))


def _filled_all(texts: dict[str, object], values: dict[str, str]) -> dict[str, str]:
    return {name: _filled(text, values) for name, text in texts.items()}


def _is_met(condition: str, values: dict[str, str], *, has_failed: bool) -> bool:
    """Return whether a step runs. Without a function for the status, a condition implies `success()`."""
    terms = condition.removeprefix("${{ ").removesuffix(" }}").split(" && ")
    if "!cancelled()" not in terms and has_failed:
        return False
    for term in terms:
        if term in ("!cancelled()", "success()"):
            continue
        compared = re.fullmatch(r"([\w.-]+) (==|!=) '(.*)'", term)
        assert compared is not None, f"a condition that this runner does not know: {term}"
        is_equal = values[compared[1]] == compared[3]
        if is_equal != (compared[2] == "=="):
            return False
    return True


def git(folder: Path, *args: str) -> str:
    """Run a Git command and return its output."""
    identity = ["-c", "user.name=a", "-c", "user.email=a@b"]
    ran = subprocess.run(["git", *identity, *args], cwd=folder, check=True, capture_output=True, text=True)
    return ran.stdout.strip()
