"""Paths, folders and globs -> the files that they name, sorted, each once."""

import os
from collections.abc import Callable, Iterable, Iterator
from glob import has_magic, iglob
from pathlib import Path

import msgspec

from agentv.cases.guidelines import CONFIG_NAMES
from agentv.cases.read import READERS, is_sidecar
from agentv.errors import AgentvError, EvalFileError
from agentv.formats.yaml import open_regular, read_bytes
from agentv.notices import say
from agentv.targets.read import TARGETS_NAMES

IGNORED_FOLDERS = frozenset({"node_modules", "__pycache__", "venv", "site-packages", "dist", "build"})


class NothingFound(AgentvError):
    """No file matches a path or a pattern."""


def agentv_files(pattern: str, results: list[Path] | None = None) -> list[Path]:
    """Return the files that a path or a glob names; a folder names all files of agentv under it.

    Results files of agentv are left out, and added to `results`. Raise `NothingFound` if there are no files,
    `EvalFileError` if the pattern is the path of a results file.
    """
    is_path = bool(pattern) and os.path.exists(pattern)
    if is_path and os.path.isfile(pattern) and is_results_file(Path(pattern)):
        hint = "name an eval file; 'agentv compare' reads results"
        raise EvalFileError("these are results of agentv, and no eval cases", file=Path(pattern), hint=hint)
    found = [Path(pattern)] if is_path else _matches(pattern)
    if not found:
        hint = "check the path and the folder you are in; 'agentv init' makes a first project"
        if has_magic(pattern):
            hint = "check the pattern and the folder you are in; quote it so that the shell leaves it alone"
        raise NothingFound(f"no file matches {pattern!r}", hint=hint)
    all_files = [file for path in found for file in (_files_under(path) if path.is_dir() else [path])]
    left_out = {path for path in all_files if is_results_file(path)}
    files = [path for path in all_files if path not in left_out]
    if results is not None:
        results.extend(sorted(left_out))
    if not files:
        hint = f"eval files end in {', '.join(READERS)}; a YAML file has 'evalcases:' in it"
        if left_out:
            hint = "there are only results of agentv, such as " + str(min(left_out))
        raise NothingFound(f"no eval, targets or config file under {pattern!r}", hint=hint)
    return unique(files)


def unique(paths: Iterable[Path]) -> list[Path]:
    """Return the paths, sorted; of several that lead to one file, the first."""
    return list({os.path.realpath(path): path for path in sorted(set(paths), reverse=True)}.values())[::-1]


def tell_of_results(results: Iterable[Path]) -> None:
    """Tell the user which results files were left out, if any were."""
    if names := [str(path) for path in unique(results)]:
        more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
        what = "these are results" if len(names) > 1 else "this is a results file"
        say(f"left out, as {what} of agentv: {', '.join(names[:SHOWN])}{more}")


def eval_files(patterns: Iterable[str], tell: Callable[[list[Path]], None] = tell_of_results) -> list[Path]:
    """Return the eval files that paths, folders and globs name, without sidecars, targets files and config files.

    `tell` is given the results files that were left out.
    """
    found: set[Path] = set()
    results: list[Path] = []
    for pattern in patterns:
        files = agentv_files(pattern, results)
        evals = [path for path in files if not is_sidecar(path) and (path == Path(pattern) or not _is_other(path))]
        if not evals:
            hint = f"eval files end in {', '.join(READERS)}; a sidecar belongs to the .jsonl file beside it"
            raise NothingFound(f"no eval file matches {pattern!r}", hint=hint)
        found.update(evals)
    tell(results)
    return unique(found)


RESULT_KEYS = (b"timestamp", b"eval_id", b"score", b"verdict")
"""What the first result in a file of agentv has, and no eval case."""
SHOWN = 5
_HEAD_BYTES = 1 << 16


class _ResultHead(msgspec.Struct):
    timestamp: str
    eval_id: str
    score: float
    verdict: str


_is_result = msgspec.json.Decoder(_ResultHead).decode


def is_results_file(path: Path) -> bool:
    """Return whether a file holds results of agentv, by its first record."""
    try:
        with open_regular(path) as file:
            head = file.read(_HEAD_BYTES).removeprefix(b"\xef\xbb\xbf").lstrip()
    except (OSError, ValueError):
        return False
    if head.startswith(b"---\n"):
        first = head.partition(b"\n...")[0]
        return all(b"\n" + key + b": " in first for key in RESULT_KEYS)
    if not head.startswith(b"{"):
        return False
    line, _, rest = head.partition(b"\n")
    if not rest and len(head) >= _HEAD_BYTES:  # a long answer
        return all(b'"' + key + b'":' in line for key in RESULT_KEYS)
    try:
        _is_result(line)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return False
    return True


def _is_other(path: Path) -> bool:
    """Return whether a file belongs to agentv, but is no eval file."""
    return path.name in (*TARGETS_NAMES, *CONFIG_NAMES) or path.parent.name == ".agentv"


def _matches(pattern: str) -> list[Path]:
    return [Path(path) for path in iglob(pattern, recursive=True)] if has_magic(pattern) else []


def _files_under(folder: Path) -> Iterator[Path]:
    here = folder.name or folder.absolute().name
    for place, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if name == ".agentv" or not _is_ignored(name)]
        inside = (Path(place).name if Path(place) != folder else here) == ".agentv"
        if inside:
            folders.clear()  # there are only results, caches and logs below
        yield from (path for name in names if _is_agentv_file(path := Path(place, name), inside))


def _is_ignored(name: str) -> bool:
    return name.startswith(".") or name in IGNORED_FOLDERS


def _is_agentv_file(path: Path, inside: bool) -> bool:
    """Return whether a file in a folder (inside `.agentv`, or elsewhere) belongs to agentv.

    YAML files may belong to any tool, so their content is read.
    """
    known = (*TARGETS_NAMES, *CONFIG_NAMES)
    if inside or path.name in known:
        return path.name in known or f".agentv/{path.name}" in known
    suffix = path.suffix.lower()
    return suffix == ".jsonl" or (
        suffix in READERS and (is_sidecar(path) or _holds_cases(path) or is_results_file(path))
    )


def _holds_cases(path: Path) -> bool:
    """Return whether a YAML file looks like an eval file, or cannot be read: then its reader says why."""
    try:
        data = read_bytes(path, EvalFileError)
    except EvalFileError:
        return True
    return b"evalcases" in data or data.startswith((b"\xff\xfe", b"\xfe\xff"))
