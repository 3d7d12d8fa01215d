"""The structure of the code: which package may import which, and size limits."""

import importlib.util
import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parent.parent
_spec = importlib.util.spec_from_file_location("structure", ROOT / "scripts" / "structure.py")
assert _spec is not None and _spec.loader is not None
structure = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(structure)
parsed_modules = cache(structure.modules)


def test_a_package_imports_only_packages_below_it() -> None:
    assert structure.upward_imports(parsed_modules()) == []


def test_there_are_no_import_cycles() -> None:
    assert structure.cycles(parsed_modules()) == []


def test_no_function_is_longer_than_80_lines() -> None:
    assert structure.long_functions(parsed_modules()) == []


def test_no_module_is_longer_than_600_lines() -> None:
    assert structure.long_modules() == []


def test_a_provider_is_called_at_most_nine_calls_from_main() -> None:
    assert structure.broken_path(parsed_modules()) == []
    assert len(structure.PATH) - 1 <= 9


def test_folders_stay_small() -> None:
    sizes = structure.folder_sizes()
    assert {folder: size for folder, size in sizes.items() if size > 26} == {}


def test_few_public_names_are_in_several_modules() -> None:
    shared = structure.shared_names(parsed_modules())
    assert len(shared) <= structure.MAX_SHARED_NAMES, shared


def test_tests_import_nothing_from_other_tests() -> None:
    tests = Path(__file__).parent
    for path in tests.rglob("*.py"):
        assert "import test_" not in path.read_text() or path.name == Path(__file__).name, path
        lines = [line for line in path.read_text().splitlines() if line.startswith(("from tests.", "import tests."))]
        assert [line for line in lines if not line.startswith("from tests.kits.")] == [], path


ARCHITECTURE = (ROOT / "docs" / "architecture.md").read_text()


def test_the_page_on_architecture_has_the_order_of_the_packages() -> None:
    rows: list[list[str]] = []
    for number, package in re.findall(r"^    ([ \d]\d|  )  (\w+)  +\w", ARCHITECTURE, re.MULTILINE):
        if number.strip():
            assert int(number) == len(rows) + 1
            rows.append([])
        rows[-1].append(package)
    assert [" ".join(row) for row in rows] == list(structure.ORDER)


def test_the_page_on_architecture_has_the_path_of_a_case() -> None:
    steps = re.findall(r"^ +((?:__main__|cli|run|calls|provider)\.[\w.]+)", ARCHITECTURE, re.MULTILINE)
    assert steps == [*structure.PATH[:-1], "provider.invoke"]


def test_files_on_the_architecture_page_exist() -> None:
    paths = re.findall(r"`(?:\w+ of )?(\w+/[\w/]+\.py|\w+\.py)`", ARCHITECTURE)
    assert len(paths) > 10
    assert [path for path in paths if not (ROOT / path).exists() and not (structure.SOURCE / path).exists()] == []
