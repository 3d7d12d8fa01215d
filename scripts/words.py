"""Find phrases that readers stumble over, and name a better one for each.

Run it as `python scripts/words.py [PATH...]`; `make lint` does. It exits with 1 if it finds any. A phrase that a
specification fixes is allowed in `ALLOWED`.
"""

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
SUFFIXES = {".py", ".js", ".md", ".txt", ".yaml"}
FOLDERS = ("README.md", "CONTRIBUTING.md", "SECURITY.md", "docs", "examples", "src/agentv")
"""The files and folders that are checked."""

PHRASES = {
    r"\bnobody\b": "name the program: 'no target is called'",
    r"\bsomebody\b": "a user",
    r"\bwhoever\b": "the caller; anyone who",
    r"(?<!there )\b(?:is|are|was) no (?!longer\b|t\b)[a-z]": "is not a",
    r"\bgo(?:ne|es)? on with\b": "continue, resume",
    r"\bstands? (?:in|twice|several|alone)\b": "is in; duplicate",
    r"\bmend(?:ed|s)?\b": "fix",
    r"\bdearer\b": "more expensive",
    r"\bbe it\b": "regardless of whether",
    r"\bever so\b": "however",
    r"\bbesides\b": "apart from",
    r"\btells? (?:how|what|which|whether|that|all|every|of)\b": "report, print, show",
    r"\bone [a-z]+ a (?:case|line|run|file|result)\b": "one per case",
    r"\b(?:result|results|line|row|call|process|score) a (?:case|line|run|file|trial)\b": "per case",
    r"\b(?:is|are|was|were) left out\b": "is omitted, is skipped",
    r"\bin the place of\b": "instead of",
    r"\bpass(?:es|ed)? over\b": "skip",
    r"\bwhat is (?:none|no)\b": "say what it is",
    r"\bdo(?:es)? not (?:go|fit) together\b": "cannot be combined; are inconsistent",
    r"\bas it stands\b": "verbatim, unchanged",
    r"\bknown are\b": "available: ",
}
ALLOWED = {
    "src/agentv/cases/schema.py": "is left out",
    "src/agentv/run/planning/planner.py": "is left out",
}
"""Phrases that the specification of the dataset format fixes, by file."""


class Hit(NamedTuple):
    """A phrase in a file."""

    path: Path
    line: int
    phrase: str
    better: str


def hits(path: Path) -> Iterator[Hit]:
    """Yield the phrases in a file."""
    allowed = ALLOWED.get(path.relative_to(ROOT).as_posix())
    for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
        for pattern, better in PHRASES.items():
            for match in re.finditer(pattern, line, re.IGNORECASE):
                if match.group() != allowed:
                    yield Hit(path, number, match.group(), better)


def files(names: list[str]) -> Iterator[Path]:
    """Yield the files to check below the named files and folders."""
    for name in names:
        path = ROOT / name
        if path.is_file():
            yield path
            continue
        for file in sorted(path.rglob("*")):
            if file.is_file() and file.suffix in SUFFIXES:
                yield file


def main() -> int:
    """Print all hits and return the exit code."""
    names = sys.argv[1:] or list(FOLDERS)
    count = 0
    for file in files(names):
        for hit in hits(file):
            count += 1
            print(f"{hit.path.relative_to(ROOT)}:{hit.line}: {hit.phrase!r}: write {hit.better!r}")
    if count:
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
