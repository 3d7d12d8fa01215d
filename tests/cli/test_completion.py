"""Shell completion: the protocol of each shell, and a real bash."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from agentv import cli
from tests.kits.imports import HEAVY
from tests.kits.project import Write, agentv

SHELLS = ("bash", "zsh", "fish")
TARGETS = "targets:\n- {name: default, provider: mock}\n- {name: my-model, provider: mock}\n"


def completed(shell: str, *words: str) -> list[str]:
    """The completions for the last of these words, each preceded by its kind."""
    line, last = " ".join(["agentv", *words]), words[-1]
    typed = {"COMP_WORDS": line, "COMP_CWORD": last if shell == "fish" else str(len(words))}
    ran = agentv(env={**os.environ, **typed, "_AGENTV_COMPLETE": f"{shell}_complete"})
    assert (ran.returncode, ran.stderr) == (0, "")
    lines = ran.stdout.splitlines()
    if shell == "zsh":  # a kind, a value and a text, each on a line of its own
        return [f"{kind},{value}" for kind, value in zip(lines[::3], lines[1::3], strict=True)]
    return [line.split("\t")[0] for line in lines if line]


@pytest.mark.parametrize("shell", SHELLS)
def test_commands_options_choices_and_paths_complete(shell: str, write: Write) -> None:
    write("targets.yaml", TARGETS)

    def offered(*words: str) -> set[str]:
        return {item.partition(",")[2] for item in completed(shell, *words)}

    assert offered("") == set(cli.PATHS)
    assert offered("com") == {"compare", "completion"}
    assert offered("--ver") == {"--version"}
    assert offered("eval", "--dump-") == {"--dump-prompts", "--dump-traces"}
    assert offered("run", "--lim") == {"--limit"}
    assert offered("compare", "--format", "") == {"json", "table", "markdown"}
    assert offered("eval", "--output-format", "y") == {"yaml"}
    assert offered("completion", "f") == {"fish"}
    assert offered("cache", "") == {"clear"}
    assert offered("init", "--template", "o") == {"openai"}
    assert offered("eval", "--target", "") == {"default", "my-model"}
    assert offered("eval", "--target", "my") == {"my-model"}
    for words in (["eval", "ev"], ["validate", "ev"], ["compare", "ev"], ["eval", "--out", "ev"]):
        assert completed(shell, *words) == ["file,ev"]


def test_target_names_are_completed_from_the_runs_targets_file(write: Write) -> None:
    write("targets.yaml", TARGETS)
    write("evals/targets.yaml", "targets: [{name: nearer, provider: mock}]")
    write("other.yaml", "targets: [{name: another, provider: mock}]")
    assert completed("bash", "eval", "evals", "--target", "") == ["plain,nearer"]
    assert completed("bash", "eval", "evals/cases.yaml", "--target", "") == ["plain,nearer"]
    assert completed("bash", "eval", "--targets", "other.yaml", "--target", "") == ["plain,another"]


@pytest.mark.parametrize("content", [None, "targets: [", "[]"])
def test_an_unreadable_targets_file_completes_nothing_silently(content: str | None, write: Write) -> None:
    if content is not None:
        write("targets.yaml", content)
    assert completed("bash", "eval", "--target", "") == []


def test_completing_a_command_imports_none_of_them() -> None:
    code = (
        "import atexit, sys; from agentv.cli import run\n"
        "atexit.register(lambda: print(*sys.modules, file=sys.stderr)); run()"
    )
    typed = {"COMP_WORDS": "agentv ", "COMP_CWORD": "1", "_AGENTV_COMPLETE": "bash_complete"}
    ran = subprocess.run(
        [sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True, env={**os.environ, **typed}
    )
    assert "plain,eval" in ran.stdout.splitlines()
    loaded = set(ran.stderr.split())
    assert loaded.isdisjoint(HEAVY)
    assert {name for name in loaded if name.startswith("agentv.cli.")} == {"agentv.cli.help"}


@pytest.mark.parametrize("shell", SHELLS)
def test_a_script_for_each_shell(shell: str) -> None:
    ran = agentv("completion", shell)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert f"_AGENTV_COMPLETE={shell}_complete" in ran.stdout


def test_an_unknown_shell_is_rejected_with_a_suggestion() -> None:
    ran = agentv("completion", "fisch")
    assert ran.returncode == 2
    assert ran.stderr.endswith("'fisch' is not one of 'bash', 'zsh', 'fish'\nhint: did you mean 'fish'?\n")


def test_the_real_bash_completes(write: Write) -> None:
    write("targets.yaml", TARGETS)
    script = """
        eval "$(agentv completion bash)"
        complete -p agentv
        try() { COMP_WORDS=(agentv "$@"); COMP_CWORD=$#; COMPREPLY=(); _agentv_completion agentv; echo "${COMPREPLY[@]}"; }
        try val
        try eval --target m
    """
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    bash = ["bash", "--norc", "--noprofile", "-c", script]
    ran = subprocess.run(bash, capture_output=True, text=True, check=False, env={**os.environ, "PATH": path})
    assert ran.stderr == ""
    registered, *offered = ran.stdout.splitlines()
    assert "-F _agentv_completion agentv" in registered
    assert offered == ["validate", "my-model"]
