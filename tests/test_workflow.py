"""The workflows of the docs, the action and the release: their commands run, with a fake `gh`."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.kits.docs import ROOT
from tests.kits.project import Write, a_case, agentv
from tests.kits.runs import HELLO, MOCK
from tests.kits.shards import rows
from tests.kits.workflows import Runner, action_as_workflow, git, workflow_of

AGENT = "def answer(question):\n    return question if ODD in question or question < '5' else 'no idea'\n"
EVALS = "execution:\n  evaluators: [{type: contains, value: good}]\nevalcases:\n"
TARGETS = "targets: [{name: default, provider: python, function: '../agent.py:answer'}]\n"
NOISY = """
import os, pathlib, zlib

RUN = SEED
FAILS = set()

def answer(question, eval_id):
    \"\"\"Three of four answers are good, but not the same ones in each run.\"\"\"
    with open(os.environ["CALLS"], "a") as calls:
        calls.write(f"{RUN} {eval_id}\\n")
    if eval_id in FAILS:
        raise ConnectionError("the model is overloaded")
    if zlib.crc32(f"{RUN} {eval_id}".encode()) % 4:
        return "good"
    return "no idea"
"""


def write_cases(folder: Path, count: int, name: str = "some.yaml") -> None:
    cases = "".join(f"  - {{id: case-{n}, expected_outcome: x, input: '{n % 10} good'}}\n" for n in range(count))
    (folder / name).write_text(EVALS + cases)


def repository(folder: Path, agent: str, evals: str = "evals/some.yaml") -> Path:
    """A repository whose branch is the same as its base."""
    (folder / evals).parent.mkdir(parents=True)
    write_cases(folder, 40, evals)
    (folder / "targets.yaml").write_text(TARGETS)
    if evals == "shop.yaml":
        (folder / "targets.yaml").write_text(TARGETS.replace("../", ""))
    (folder / "agent.py").write_text(agent)
    git(folder, "init", "-q", "-b", "main")
    git(folder, "add", ".")
    git(folder, "commit", "-qm", "base")
    git(folder, "checkout", "-qb", "branch")
    return folder


def push(repo: Path, agent: str) -> None:
    """Commit another agent with all other changes."""
    (repo / "agent.py").write_text(agent)
    git(repo, "commit", "-qam", "change")


@pytest.mark.slow
def test_the_workflow_of_the_docs_shards_merges_compares_and_comments(tmp_path: Path) -> None:
    workflow = workflow_of("sharding.md")
    runner = Runner(tmp_path, workflow)
    repo = repository(tmp_path / "repo", AGENT.replace("ODD", "'no such thing'"))
    push(repo, AGENT.replace("ODD", "'7'"))
    shards = workflow["jobs"]["shards"]["strategy"]["matrix"]["shard"]
    assert len(shards) == 4
    for shard in shards:
        git(tmp_path, "clone", "-q", "-b", "branch", str(repo), f"shard-{shard}")
        values = {"matrix.shard": str(shard), "strategy.job-total": str(len(shards))}
        assert runner.run("shards", tmp_path / f"shard-{shard}", **values) == [], runner.printed
    git(tmp_path, "clone", "-q", "-b", "branch", str(repo), "compare")
    assert runner.run("compare", tmp_path / "compare") == [], runner.printed

    for name in ("base", "candidate"):
        assert len(rows(tmp_path / "compare" / f"{name}.jsonl")) == 40
    (comment,) = runner.comments
    assert comment.startswith("### agentv: better\n")
    assert "| passed | 20 | 24 | +4 / −0 |" in comment
    assert "**4 fixed (fail → pass)**: `case-17`, `case-27`, `case-37`, `case-7`" in comment
    assert "target 'default' has changed between the runs" in comment
    assert (runner.artifacts / "report" / "report.html").stat().st_size > 10_000


def run_circleci(steps: list[Any], checkout: Path, workspace: Path, environment: dict[str, str]) -> list[str]:
    """Run the steps of a job as CircleCI does: none after one that failed. Return the commands that failed."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    for step in steps:
        if step == "checkout":
            continue
        ((kind, settings),) = step.items()
        if kind == "run" and not settings.startswith("pip install "):
            command = ["/bin/bash", "-eo", "pipefail", "-c", settings]
            ran = subprocess.run(command, cwd=checkout, env={**os.environ, "PATH": path, **environment}, check=False)
            if ran.returncode != 0:
                return [settings]
        elif kind == "persist_to_workspace":
            for name in settings["paths"]:
                shutil.copytree(checkout / name, workspace / name, dirs_exist_ok=True)
        elif kind == "attach_workspace":
            shutil.copytree(workspace, checkout, dirs_exist_ok=True)
    return []


@pytest.mark.slow
def test_circleci_merges_the_results_of_a_shard_with_errors_and_fails_its_job(tmp_path: Path) -> None:
    config = workflow_of("sharding.md", ".circleci/")
    agent = "def answer(eval_id):\n    return 1 / (eval_id != 'case-0') and 'good'\n"
    repo = repository(tmp_path / "repo", agent)
    total = config["jobs"]["evals"]["parallelism"]
    failed = []
    for index in range(total):
        checkout = tmp_path / f"shard-{index}"
        shutil.copytree(repo, checkout)
        variables = {"CIRCLE_NODE_INDEX": str(index), "CIRCLE_NODE_TOTAL": str(total)}
        failed += run_circleci(config["jobs"]["evals"]["steps"], checkout, tmp_path / "workspace", variables)
    assert len(failed) == 1
    assert config["workflows"]["evals"]["jobs"] == ["evals", {"merge": {"requires": [{"evals": "terminal"}]}}]

    assert run_circleci(config["jobs"]["merge"]["steps"], repo, tmp_path / "workspace", {}) == []
    merged = rows(repo / "results.jsonl")
    assert len(merged) == 40
    assert [row["eval_id"] for row in merged if "error" in row] == ["case-0"]


class PullRequest:
    """Runs a workflow for each push to a branch, always in the same folder, as machines of GitHub do."""

    def __init__(self, folder: Path, workflow: dict[str, Any], evals: str = "evals/some.yaml"):
        self._folder = folder
        self.calls = folder / "calls.txt"
        self.repo = repository(folder / "repo", self.agent(1), evals)
        self.runner = Runner(folder, workflow)
        (self._job,) = workflow["jobs"]
        self.pushes = 0

    def agent(self, seed: int, *fails: str) -> str:
        """An agent that answers as the seed has it, and raises an error for some cases."""
        code = NOISY.replace("SEED", str(seed))
        if fails:
            code = code.replace("set()", repr(set(fails)))
        return code

    def push(self, agent: str, **values: str) -> list[str]:
        """Push another agent, and return the steps of the workflow that failed."""
        push(self.repo, agent)
        checkout = self._folder / "checkout"
        if self.pushes:
            checkout.rename(self._folder / f"checkout-{self.pushes}")
        self.pushes += 1
        self.calls.write_text("")
        git(self._folder, "clone", "-q", "-b", "branch", str(self.repo), str(checkout))
        return self.runner.run(self._job, checkout, **values)

    def count_calls(self, seed: int) -> int:
        """Return how often the last push called the agent with this seed."""
        calls = self.calls.read_text().splitlines()
        return sum(call.startswith(f"{seed} ") for call in calls)


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CALLS", str(tmp_path / "calls.txt"))


@pytest.mark.slow
@pytest.mark.usefixtures("calls")
def test_the_workflow_of_the_docs_gates_on_evidence_and_updates_its_comment(tmp_path: Path) -> None:
    pull_request = PullRequest(tmp_path, workflow_of("comparing.md"))
    runner = pull_request.runner

    # the first push has an error; the baseline is cached all the same
    assert len(pull_request.push(pull_request.agent(2, "case-3"))) == 1, runner.printed
    assert pull_request.count_calls(seed=1) == 40

    # the same agent, whose mean is lower this time
    assert pull_request.push(pull_request.agent(seed=4)) == [], runner.printed
    assert pull_request.count_calls(seed=1) == 0, "the baseline is cached"
    (comment,) = runner.comments
    assert comment.startswith("### agentv: cannot tell\n")
    assert re.search(r"^\| mean of 40 \| .* \*\*−0\.", comment, re.MULTILINE), "the gate 'mean' would fail"
    assert "exit 0: undecided: the confidence interval of the difference, [-" in runner.printed

    # another case, one case fewer, and an error: the report is published all the same
    write_cases(pull_request.repo, 41, "evals/some.yaml")
    failed = pull_request.push(pull_request.agent(2, "case-3"))
    assert failed == ["agentv eval evals --workers 8 --out candidate.jsonl"], runner.printed
    assert pull_request.count_calls(seed=1) == 0, "the baseline is cached"
    (comment,) = runner.comments
    assert "errored (ended in an error or not judged in A or B)**: `case-3`" in comment
    assert "1 case is only in candidate.jsonl" in comment
    assert (runner.artifacts / "report" / "report.html").stat().st_size > 10_000

    # a removed case does not fail the gate
    write_cases(pull_request.repo, 39, "evals/some.yaml")
    assert pull_request.push(pull_request.agent(seed=1).replace("RUN = 1", "RUN = 1  # the same")) == [], runner.printed
    (comment,) = runner.comments
    assert comment.startswith("### agentv: not worse (for the cases in both runs)\n")

    # evidence of a regression does
    (failed_gate,) = pull_request.push(pull_request.agent(seed=1).replace("% 4", "* 0"))
    assert failed_gate.startswith("agentv compare base.jsonl candidate.jsonl --gate noninferior ")
    (comment,) = runner.comments
    assert comment.startswith("### agentv: worse")


@pytest.mark.slow
@pytest.mark.usefixtures("calls")
def test_the_workflow_of_getting_started_passes_the_same_agent(tmp_path: Path) -> None:
    pull_request = PullRequest(tmp_path, workflow_of("getting-started.md"), "shop.yaml")
    for seed in (2, 3, 4):
        assert pull_request.push(pull_request.agent(seed)) == [], pull_request.runner.printed
    (failed_gate,) = pull_request.push(pull_request.agent(seed=1).replace("% 4", "* 0"))
    assert failed_gate.startswith("agentv compare before.jsonl after.jsonl")


def test_the_workflows_of_the_repository_call_targets_of_the_makefile() -> None:
    called = set()
    for path in (ROOT / ".github" / "workflows").glob("*.yml"):
        for job in yaml.safe_load(path.read_text())["jobs"].values():
            commands = [step.get("run", "") for step in job["steps"]]
            called.update(re.findall(r"^make (\S+)", "\n".join(commands), re.MULTILINE))
    assert called == {"test", "test-slow", "docs"}
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    for target in called:
        dry_run = ["make", "--dry-run", target, f"PYTHON={sys.executable}"]
        ran = subprocess.run(dry_run, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
        assert ran.returncode == 0, ran.stderr


def test_the_docs_list_the_inputs_of_the_action() -> None:
    inputs = yaml.safe_load((ROOT / "action.yml").read_text())["inputs"]
    page = (ROOT / "docs" / "ci.md").read_text()
    named = set()
    for cell in re.findall(r"^\| (`.*?) \| ", page, re.MULTILINE):
        named.update(re.findall(r"`([^`]+)`", cell))
    assert named == set(inputs)
    for name, settings in inputs.items():
        default = settings["default"]
        if default and "${{" not in default:
            assert f"| `{name}` | `{default}` |" in page


def test_the_pre_commit_hook_validates_the_folder_of_evals(write: Write) -> None:
    (hook,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
    for path in ("evals/a.yaml", "evals/a.jsonl", ".agentv/targets.yaml", "targets.yml", "shop/evals/b.yaml"):
        assert re.search(hook["files"], path), path
    for path in ("compose.yaml", "docs/retargets.yaml", "medievals/a.yaml"):
        assert not re.search(hook["files"], path), path
    words: list[str] = [*hook["entry"].split()[1:], *hook["args"]]
    write("targets.yaml", MOCK)
    write("evals/a.jsonl", [a_case(evaluators=[HELLO])])
    assert agentv(*words).returncode == 0
    write("evals/b.yaml", "evalcases: 7\n")
    ran = agentv(*words)
    assert ran.returncode == 1
    assert "evals/b.yaml:1:" in ran.stdout


@pytest.mark.slow
@pytest.mark.usefixtures("calls")
def test_the_action_compares_with_the_base_branch_and_updates_its_comment(tmp_path: Path) -> None:
    pull_request = PullRequest(tmp_path, action_as_workflow(ROOT / "action.yml"))
    runner = pull_request.runner

    # the same agent, whose mean is lower this time
    assert pull_request.push(pull_request.agent(seed=4)) == [], runner.printed
    assert pull_request.count_calls(seed=1) == 40
    (comment,) = runner.comments
    assert comment.startswith("### agentv: cannot tell\n")
    assert comment == runner.summary + "\n<!-- agentv-report -->\n"
    report = runner.artifacts / "agentv-report"
    assert {path.name for path in report.iterdir()} == {"base.jsonl", "candidate.jsonl", "report.html", "report.md"}
    assert len(rows(report / "base.jsonl")) == 40

    # an error fails the job, and is reported all the same
    assert pull_request.push(pull_request.agent(2, "case-3")) == ["Run the evals"], runner.printed
    assert pull_request.count_calls(seed=1) == 0, "the baseline is cached"
    (comment,) = runner.comments
    assert "errored (ended in an error or not judged in A or B)**: `case-3`" in comment

    # a removed case does not
    write_cases(pull_request.repo, 39, "evals/some.yaml")
    assert pull_request.push(pull_request.agent(seed=1).replace("RUN = 1", "RUN = 1  # the same")) == [], runner.printed
    (comment,) = runner.comments
    assert comment.startswith("### agentv: not worse (for the cases in both runs)\n")

    # evidence of a regression fails the gate
    failed = pull_request.push(pull_request.agent(seed=1).replace("% 4", "* 0"))
    assert failed == ["Compare with the base commit"], runner.printed
    (comment,) = runner.comments
    assert comment.startswith("### agentv: worse")
    assert git(pull_request.repo, "status", "--porcelain") == ""


@pytest.mark.slow
@pytest.mark.usefixtures("calls")
def test_the_action_runs_without_a_baseline(tmp_path: Path) -> None:
    pull_request = PullRequest(tmp_path, action_as_workflow(ROOT / "action.yml", evals="more/*.yaml evals/some.yaml"))
    runner = pull_request.runner
    folder = pull_request.repo / "more"
    folder.mkdir()
    write_cases(folder, 2, "new.yaml")
    git(pull_request.repo, "add", ".")
    assert pull_request.push(pull_request.agent(seed=2)) == [], runner.printed
    assert "::warning::agentv eval ended with exit code 2 on the base commit" in runner.printed
    (comment,) = runner.comments
    assert comment.startswith("### agentv: no baseline\n\nThe base commit has no results to compare with.\n")

    # a push has neither a base nor a pull request
    values = {"github.event.pull_request.base.sha": "", "github.event.pull_request.number": ""}
    assert pull_request.push(pull_request.agent(seed=3), **values) == [], runner.printed
    assert {path.name for path in (runner.artifacts / "agentv-report").iterdir()} == {"candidate.jsonl", "report.html"}
    assert len(runner.comments) == 1


@pytest.mark.slow
@pytest.mark.usefixtures("calls")
def test_a_job_may_use_the_action_twice(tmp_path: Path) -> None:
    workflow = action_as_workflow(ROOT / "action.yml")
    job = workflow["jobs"]["action"]
    other_evals = yaml.safe_dump(job["steps"]).replace("${{ inputs.evals }}", "more")
    other_name = other_evals.replace("${{ inputs.name }}", "second")
    job["steps"] = [*job["steps"], *yaml.safe_load(other_name)]
    pull_request = PullRequest(tmp_path, workflow)
    runner = pull_request.runner
    folder = pull_request.repo / "more"
    folder.mkdir()
    write_cases(folder, 2, "new.yaml")
    git(pull_request.repo, "add", ".")

    for seed in (2, 3):
        assert pull_request.push(pull_request.agent(seed)) == [], runner.printed

    first, second = runner.comments
    assert first.startswith("### agentv: cannot tell\n")
    assert second.startswith("### agentv: no baseline\n")
    assert len(rows(runner.artifacts / "agentv-report" / "candidate.jsonl")) == 40
    assert len(rows(runner.artifacts / "second" / "candidate.jsonl")) == 2


@pytest.mark.parametrize(
    ("package", "extras", "installed"),
    [
        ("", "", "/actions/agentv"),
        ("", "openai,anthropic", "/actions/agentv[openai,anthropic]"),
        ("agentv==0.2.0", "", "agentv==0.2.0"),
        ("./wheels/agentv.whl", "openai", "./wheels/agentv.whl[openai]"),
    ],
)
def test_the_action_installs_its_own_version_by_default(package: str, extras: str, installed: str) -> None:
    steps = yaml.safe_load((ROOT / "action.yml").read_text())["runs"]["steps"]
    (step,) = (step for step in steps if step.get("name") == "Install agentv")
    show_arguments = 'pip() { printf "%s\\n" "$@"; }; '
    environment = {"GITHUB_ACTION_PATH": "/actions/agentv", "PACKAGE": package, "EXTRAS": extras}
    command = ["/bin/bash", "-eo", "pipefail", "-c", show_arguments + step["run"]]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert ran.stdout.splitlines() == ["install", "--quiet", installed]


@pytest.mark.slow
@pytest.mark.usefixtures("calls")
def test_the_action_warns_if_it_may_not_comment(tmp_path: Path) -> None:
    pull_request = PullRequest(tmp_path, action_as_workflow(ROOT / "action.yml"))
    gh = tmp_path / "programs" / "gh"
    gh.write_text("#!/bin/sh\necho 'Resource not accessible by integration' >&2\nexit 1\n")
    assert pull_request.push(pull_request.agent(seed=4)) == [], pull_request.runner.printed
    assert "::warning::the comparison could not be written to the pull request" in pull_request.runner.printed
    assert pull_request.runner.summary.startswith("### agentv: cannot tell\n")


@pytest.mark.slow
def test_the_release_builds_what_the_tag_names(tmp_path: Path) -> None:
    pytest.importorskip("twine", reason="twine is not installed")
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "release.yml").read_text())
    source = tmp_path / "source"
    source.mkdir()
    for name in ("src", "scripts"):
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__", "_version.py"))
    for name in ("pyproject.toml", "README.md", "LICENSE", ".gitignore"):
        shutil.copy(ROOT / name, source)
    git(source, "init", "-q", "-b", "main")
    git(source, "add", ".")
    git(source, "commit", "-qm", "release")
    git(source, "tag", "v0.9.0")
    git(tmp_path, "clone", "-q", str(source), "checkout")
    runner = Runner(tmp_path, workflow)
    assert runner.run("build", tmp_path / "checkout", **{"github.ref_name": "v0.9.0"}) == [], runner.printed
    names = {path.name for path in (runner.artifacts / "dist").iterdir()}
    assert names == {"agentv-0.9.0-py3-none-any.whl", "agentv-0.9.0.tar.gz"}
    shutil.rmtree(tmp_path / "checkout" / "dist")
    failed = runner.run("build", tmp_path / "checkout", **{"github.ref_name": "v0.9.1"})
    assert failed == ["Check that the version is that of the tag"]
