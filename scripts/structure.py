"""Prints the figures of the code's structure, and finds imports that point up.

Run it as `python scripts/structure.py`; the tests use the same functions.
"""

import ast
import itertools
import sys
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

SOURCE = Path(__file__).parent.parent / "src" / "agentv"
ORDER = (
    "cli pytest_plugin",
    "api",
    "view grading importers project",
    "report",
    "budget cluster",
    "trust batches telemetry metrics hooks",
    "run compare",
    "evaluators",
    "cases",
    "calls targets",
    "config",
    "providers",
    "results",
    "filters registry versions",
    "files extras",
    "log protocols scoring",
    "records processes placeholders",
    "errors option redact text stats judge hook_settings",
)
"""The packages, each row above the next; those in one row do not import each other."""


PATH = (
    "__main__.main",
    "cli.run",
    "cli.eval.command",  # called by click
    "run.evaluate.evaluate",
    "run.local.run_jobs",
    "run.runner.work",
    "run.case.run_case",
    "run.attempts.answer",
    "calls.caller.ask",
    "protocols.invoke",
)
"""The functions from `main` to a provider's answer, each called by the one before it."""
MAX_SHARED_NAMES = 5
"""Public names that may exist in several modules, such as `evaluate` in the API and in the run."""


def modules() -> dict[str, ast.Module]:
    """Return the syntax tree of each module, by its dotted name below `agentv`."""
    paths = [path for path in sorted(SOURCE.rglob("*.py")) if "templates" not in path.parts]
    names = [".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__") for path in paths]
    return {name: ast.parse(path.read_text()) for name, path in zip(names, paths, strict=True)}


@cache
def imports(tree: ast.Module) -> tuple[str, ...]:
    """Return the modules of ours that a module imports, those aside that only type checkers need."""
    return tuple(_find_imports(tree))


def _find_imports(tree: ast.Module) -> Iterator[str]:
    statements = [node for node in ast.walk(tree) if isinstance(node, ast.If | ast.ImportFrom)]
    only_for_types = {node for block in statements if _is_type_checking(block) for node in ast.walk(block)}
    for node in statements:
        if isinstance(node, ast.ImportFrom) and node not in only_for_types and node.module:
            if node.module == "agentv":
                names = [alias.name for alias in node.names]
                # Constants of the package itself, such as __version__, are not modules.
                yield from (name for name in names if not name.startswith("__") and not name.isupper())
            elif node.module.startswith("agentv."):
                yield node.module.removeprefix("agentv.")


def upward_imports(trees: dict[str, ast.Module]) -> list[str]:
    """Return a line for each import that does not point down the `ORDER`."""
    row = {package: number for number, line in enumerate(ORDER) for package in line.split()}
    found = []
    for name, tree in trees.items():
        own = name.partition(".")[0]
        if own in ("__init__", "__main__", "extend"):
            continue
        for imported in imports(tree):
            other = imported.partition(".")[0]
            if other != own and row[other] <= row[own]:
                found.append(f"{name} imports {imported}")
    return found


def cycles(trees: dict[str, ast.Module]) -> list[str]:
    """Return the modules that import themselves, by whatever way."""
    below = {name: {found for found in imports(tree) if found in trees} for name, tree in trees.items()}
    for middle, reached in below.items():
        for found in below.values():
            if middle in found:
                found.update(reached)
    return [name for name, found in below.items() if name in found]


def long_functions(trees: dict[str, ast.Module], most: int = 80) -> list[str]:
    """Return the functions that have more lines than `most`."""
    return [
        f"{name}.{node.name} ({lines} lines)"
        for name, tree in trees.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (lines := (node.end_lineno or node.lineno) - node.lineno + 1) > most
    ]


def long_modules(most: int = 600) -> list[str]:
    """Return the modules that have more lines than `most`."""
    found = []
    for path in sorted(SOURCE.rglob("*.py")):
        lines = len(path.read_text().splitlines())
        if lines > most:
            found.append(f"{path.relative_to(SOURCE)} ({lines} lines)")
    return found


def broken_path(trees: dict[str, ast.Module]) -> list[str]:
    """Return the steps of `PATH` that are not there: the first function does not name the second."""
    found = []
    for caller, callee in itertools.pairwise(PATH):
        module, _, name = caller.rpartition(".")
        called = callee.rpartition(".")[2]
        functions = [node for node in ast.walk(trees[module]) if getattr(node, "name", None) == name]
        names = {getattr(node, "attr", getattr(node, "id", None)) for top in functions for node in ast.walk(top)}
        if called not in names and caller != "cli.run":
            found.append(f"{caller} does not call {called}")
    return found


def shared_names(trees: dict[str, ast.Module]) -> list[str]:
    """Return the public classes and functions that have the same name in several modules, those of commands aside."""
    places: dict[str, list[str]] = {}
    for module, tree in trees.items():
        for node in tree.body:
            if not isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            is_private = node.name.startswith("_")
            if not is_private and node.name != "command":
                places.setdefault(node.name, []).append(module)
    return [f"{name} in {', '.join(found)}" for name, found in sorted(places.items()) if len(set(found)) > 1]


def folder_sizes() -> Counter[str]:
    """Return how many modules each folder has, empty `__init__.py` files aside."""
    paths = [path for path in SOURCE.rglob("*.py") if "templates" not in path.parts and path.stat().st_size]
    return Counter(str(path.parent.relative_to(SOURCE)) for path in paths)


def _is_type_checking(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def main() -> None:
    trees = modules()
    sizes = folder_sizes()
    largest = max(sizes, key=sizes.__getitem__)
    print(f"modules in the largest folder: {sizes[largest]} in {largest} (at most 26)")
    print(f"calls from main to provider.invoke: {len(PATH) - 1} (at most 9)")
    shared = shared_names(trees)
    print(f"public names in several modules: {len(shared)} (at most {MAX_SHARED_NAMES})")
    for line in shared:
        print(f"  {line}")
    wrong = 0
    for title, found in (
        ("imports that point up", upward_imports(trees)),
        ("modules in a cycle", cycles(trees)),
        ("functions over 80 lines", long_functions(trees)),
        ("modules over 600 lines", long_modules()),
        ("missing steps from main to provider.invoke", broken_path(trees)),
    ):
        print(f"{title}: {len(found)}")
        for line in found:
            print(f"  {line}")
        wrong += len(found)
    sys.exit(bool(wrong) or sizes[largest] > 26 or len(shared) > MAX_SHARED_NAMES)


if __name__ == "__main__":
    main()
