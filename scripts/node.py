"""Checks and formats the JavaScript and CSS of the pages with Prettier and TypeScript.

`python scripts/node.py install` installs both from npm into `.venv/node`, in the versions of `package-lock.json`.
`check` is a part of `make lint`; `format` writes. Where npm cannot install them, `check` reports that and passes.
"""

import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from tests.kits.node import find_node, find_npm  # noqa: E402

FOLDER = ROOT / ".venv" / "node"
STAMP = ROOT / ".venv" / "node.stamp"
PRETTIER = FOLDER / "node_modules" / "prettier" / "bin" / "prettier.cjs"
TYPESCRIPT = FOLDER / "node_modules" / "typescript" / "bin" / "tsc"
FILES = "src/agentv/{report/page,view}/assets/*.{js,css}"
NPM_OPTIONS = ("--no-audit", "--no-fund", "--ignore-scripts", "--fetch-retries=1", "--loglevel=error")


def install() -> int:
    """Install the packages, and write the stamp if that worked."""
    npm = find_npm()
    if npm is None:
        return 0  # `check` reports it
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name in ("package.json", "package-lock.json"):
        shutil.copy(ROOT / name, FOLDER / name)
    ran = subprocess.run([*npm, "ci", *NPM_OPTIONS], cwd=FOLDER, check=False)
    if ran.returncode == 0:
        STAMP.touch()
    return 0


def check() -> int:
    """Check format and types; return the exit code."""
    node = find_node()
    if node is None or not STAMP.exists():
        print("JavaScript and CSS were not checked: npm could not install Prettier and TypeScript", file=sys.stderr)
        return 0
    cache = f"--cache-location={FOLDER / 'prettier-cache'}"
    commands = (
        [node, str(PRETTIER), "--check", "--cache", cache, "--log-level=warn", FILES],
        [node, str(TYPESCRIPT), "--project", "tsconfig.json"],
    )
    running = [subprocess.Popen(command, cwd=ROOT) for command in commands]
    return max(process.wait() for process in running)


def format_files() -> int:
    """Format the files; return the exit code."""
    node = find_node()
    if node is None or not STAMP.exists():
        print("npm could not install Prettier", file=sys.stderr)
        return 1
    return subprocess.run([node, str(PRETTIER), "--write", FILES], cwd=ROOT, check=False).returncode


COMMANDS = {"install": install, "check": check, "format": format_files}

if __name__ == "__main__":
    sys.exit(COMMANDS[sys.argv[1]]())
