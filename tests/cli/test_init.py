"""A new project runs immediately, and an existing one loses nothing."""

import json
import os
import re
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

import pytest
import yaml

from agentv.project.scaffold import TEMPLATES
from agentv.project.validate import check_file
from agentv.providers import BUILT_IN
from agentv.targets.dotenv import load_env
from agentv.targets.read import VARIABLE
from tests.kits.model_servers import openai_server
from tests.kits.project import Write, agentv

OFFLINE = [template for template in TEMPLATES if template != "openai"]
FILES = {
    *[".agentv/schemas/eval.schema.json", ".agentv/schemas/sidecar.schema.json", ".agentv/schemas/targets.schema.json"],
    *[".agentv/config.yaml", ".agentv/targets.yaml", ".env.example", ".gitignore"],
    *["evals/capitals.yaml", "evals/sums.jsonl", "evals/sums.yaml", "evals/judge.py"],
}


@pytest.fixture(autouse=True)
def no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)


def files_in(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def results(path: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in Path(path).read_text().splitlines()]


def told(kind: str, output: str) -> set[str]:
    return set(re.findall(rf"^{kind} +(.*)", output, re.MULTILINE))


@pytest.mark.parametrize("template", TEMPLATES)
def test_an_empty_folder_becomes_a_project(template: str, write: Write, tmp_path: Path) -> None:
    ran = agentv("init", "--template", template)
    assert (ran.returncode, ran.stderr) == (0, "")
    own = set() if template == "openai" else {"evals/agent.py"}
    assert set(files_in(tmp_path)) == FILES | own == told("written", ran.stdout)
    assert "agentv eval evals/" in ran.stdout
    assert max(map(len, ran.stdout.splitlines())) <= 60


@pytest.mark.parametrize("template", OFFLINE)
def test_the_project_is_valid_and_runs_offline_at_once(template: str, write: Write) -> None:
    agentv("init", "--template", template)
    assert agentv("validate", ".").stdout == "5 files, 6 cases: 0 errors, 0 warnings\n"
    ran = agentv("eval", "evals/", "--out", "results.jsonl")
    assert ran.returncode == 0, ran.stderr
    scores = {result["eval_id"]: result["score"] for result in results("results.jsonl")}
    assert scores.pop("seven-times-six") == 0  # as we say
    assert list(scores.values()) == [1, 1, 1, 1, 1]
    assert agentv("doctor").returncode == 0


def test_the_openai_template_says_what_to_set_and_runs_dry(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    ran = agentv("init", "--template", "openai")
    assert "Set OPENAI_API_KEY in .env (first: cp .env.example .env).\n" in ran.stdout
    assert agentv("validate", ".").stdout.endswith("5 files, 6 cases: 0 errors, 1 warning\n")
    dry = agentv("eval", "evals/", "--dry-run", "--out", ".agentv/dry.jsonl")
    assert dry.returncode == 0, dry.stderr
    assert sum(result["score"] for result in results(".agentv/dry.jsonl")) > 0
    refused = agentv("eval", "evals/")
    assert refused.returncode == 2
    assert "the environment variable OPENAI_API_KEY is not set\nhint: set it, or add it to .env\n" in refused.stderr

    write(".env", "OPENAI_API_KEY=sk-of-nobody-at-all\n")
    with openai_server(lambda _body: "It is Paris.") as server:
        monkeypatch.setenv("OPENAI_BASE_URL", f"{server.url}/v1")
        asked = agentv("eval", "evals/", "--out", ".agentv/real.jsonl")
    assert asked.returncode == 0, asked.stderr
    assert {result["eval_id"]: result["score"] for result in results(".agentv/real.jsonl")}["france"] == 1
    assert agentv("validate", ".").stdout.endswith("5 files, 6 cases: 0 errors, 0 warnings\n")


@pytest.mark.parametrize("template", TEMPLATES)
def test_every_kind_of_target_is_included_as_a_comment(template: str, write: Write) -> None:
    agentv("init", "--template", template)
    path = Path(".agentv/targets.yaml")
    text = path.read_text()
    commented = re.findall(r"^  # - name:.*\n(?:  #   .*\n)+", text, re.MULTILINE)
    found = {}
    for block in commented:
        path.write_text(text.replace(block, block.replace("  # ", "  ")))
        assert [problem for problem in check_file(path).problems if problem.severity == "error"] == []
        *_, target = yaml.safe_load(path.read_text())["targets"]
        found[target["provider"]] = target["name"]
    assert set(found) == set(BUILT_IN)
    path.write_text("".join([text, *(block.replace("  # ", "  ") for block in commented)]))
    assert [problem for problem in check_file(path).problems if problem.severity == "error"] == []


def test_the_variables_of_all_targets_are_in_the_example_of_an_env_file(write: Write, tmp_path: Path) -> None:
    agentv("init")
    example = Path(".env.example").read_text()
    write(".env", re.sub(r"^# (\w+=)$", r"\1x", example, flags=re.MULTILINE))
    (variables,) = load_env([tmp_path], {}).values()
    assert set(variables) == set(VARIABLE.findall(Path(".agentv/targets.yaml").read_text())) - {"NAME"}


def test_every_yaml_file_starts_with_a_reference_to_its_schema(write: Write, tmp_path: Path) -> None:
    import jsonschema

    agentv("init")
    for path in [*tmp_path.glob("evals/*.yaml"), tmp_path / ".agentv/targets.yaml"]:
        first = path.read_text().splitlines()[0]
        schema = json.loads((path.parent / first.removeprefix("# yaml-language-server: $schema=")).read_text())
        jsonschema.validate(yaml.safe_load(path.read_text()), schema)
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate({"execution": 5, "targets": 5}, schema)


def test_git_ignores_secrets_and_what_runs_leave_behind(write: Write) -> None:
    agentv("init")
    subprocess.run(["git", "init", "-q"], check=True)
    agentv("eval", "evals/", "--cache", "--dump-prompts", "--dump-traces")
    write(".env", "OPENAI_API_KEY=x")
    assert Path(".agentv/results").is_dir()
    git = ["git", "ls-files", "--others", "--exclude-standard"]
    seen = subprocess.run(git, capture_output=True, text=True, check=True).stdout.split()
    assert set(seen) == FILES | {"evals/agent.py"}


def test_existing_files_are_kept_and_missing_ones_added(write: Write, tmp_path: Path) -> None:
    mine = {".gitignore": b"*.log\n.env\n", "evals/judge.py": b"# mine\n", "notes.txt": b"mine"}
    for name, content in mine.items():
        write(name, content)
    ran = agentv("init")
    assert ran.returncode == 0
    after = files_in(tmp_path)
    assert {name: after[name] for name in mine} == mine
    assert set(after) == FILES | {"evals/agent.py", "notes.txt"}
    assert told("kept", ran.stdout) == {".gitignore", "evals/judge.py"}
    assert "Add to .gitignore: .agentv/batches/ .agentv/cache/" in ran.stdout
    again = agentv("init", "--template", "cli")
    assert files_in(tmp_path) == after
    assert (told("written", again.stdout), told("kept", again.stdout)) == (set(), FILES | {"evals/agent.py"})


def test_nothing_is_added_that_would_affect_existing_files(write: Write, tmp_path: Path) -> None:
    """A second targets file, or a sidecar for a dataset that has none."""
    write("targets.yml", "targets: [{name: default, provider: mock, response: Paris}]")
    write("evals/sums.jsonl", [{"id": "a", "expected_outcome": "b", "input": "c"}])
    write("evals/capitals.yml", "evalcases: []")
    ran = agentv("init")
    assert set(files_in(tmp_path)).isdisjoint({".agentv/targets.yaml", "evals/sums.yaml", "evals/capitals.yaml"})
    assert told("kept", ran.stdout) == {"targets.yml", "evals/sums.jsonl", "evals/capitals.yml"}


def test_a_dangling_symlink_is_not_written_through(write: Write, tmp_path: Path) -> None:
    write("evals/capitals.yaml", "evalcases: []")
    (tmp_path / ".gitignore").symlink_to("elsewhere")
    agentv("init")
    assert (tmp_path / ".gitignore").is_symlink()
    assert not (tmp_path / "elsewhere").exists()


def test_a_new_folder_is_created_and_the_cd_command_printed(write: Write) -> None:
    ran = agentv("init", "some where/new")
    assert ran.returncode == 0
    assert "\nChange to the folder:  cd 'some where/new'\n" in ran.stdout
    assert Path("some where/new/evals/capitals.yaml").is_file()
    assert "Go there" not in agentv("init", ".").stdout


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["a.txt"], "error: a.txt: a file, not a folder\nhint: choose a new or existing folder\n"),
        (["a.txt/b"], "error: a.txt/b/.agentv/config.yaml: cannot be written: Not a directory\nhint: "),
        (["/proc/nowhere"], "cannot be written: No such file or directory\nhint: check the permissions, or "),
        (
            ["--template", "cly"],
            "'cly' is not one of 'python', 'cli', 'openai', 'batch'\nhint: did you mean 'cli'?\n",
        ),
    ],
)
def test_an_invalid_folder(args: list[str], said: str, write: Write, tmp_path: Path) -> None:
    write("a.txt", "mine")
    ran = agentv("init", *args)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert said in ran.stderr
    assert files_in(tmp_path) == {"a.txt": b"mine"}


@pytest.mark.slow
def test_a_project_from_an_installed_wheel(tmp_path: Path) -> None:
    """With nothing of the source tree around: the templates are in the wheel."""
    root = Path(__file__).parent.parent.parent
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
    environment = tmp_path / "venv"
    subprocess.run([*pip, "wheel", root, "--no-deps", "--no-build-isolation", "-w", tmp_path], check=True)
    (wheel,) = tmp_path.glob("agentv-*.whl")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", environment], check=True)
    python = environment / "bin/python"
    subprocess.run([*pip, "--python", python, "install", "--no-deps", "--no-index", wheel], check=True)
    (packages,) = environment.glob("lib/python*/site-packages")
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib"))
    project = tmp_path / "project"

    def run(*words: str) -> str:
        command = [str(environment / "bin/agentv"), *words]
        clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        project.mkdir(exist_ok=True)
        ran = subprocess.run(command, cwd=project, capture_output=True, text=True, check=False, env=clean)
        assert ran.returncode == 0, ran.stderr
        return ran.stdout

    assert told("written", run("init")) == FILES | {"evals/agent.py"}
    assert run("validate", ".") == "5 files, 6 cases: 0 errors, 0 warnings\n"
    assert "6 planned = 6 scored" in run("eval", "evals/")
    assert f"({python})" in run("doctor")
