"""A package can add a provider and an evaluator through entry points."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from agentv import extend
from tests.kits.docs import ROOT, blocks
from tests.kits.project import Write, a_case, agentv
from tests.kits.runs import results

EXAMPLE = ROOT / "examples" / "extending"
WRONG = """
import msgspec
from agentv.extend import EvaluatorSettings, Score, SettingError, TargetSettings

class Settings(TargetSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    def open(self, folder):
        return self

    async def invoke(self, request):
        return request.question

class Breaks(TargetSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    def open(self, folder):
        raise ValueError("no such thing")

class Empty(TargetSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    def open(self, folder):
        return folder

class Number(msgspec.Struct, frozen=True):
    async def evaluate(self, exchange):
        return 1.0

class Unready(msgspec.Struct, frozen=True):
    def open(self, context):
        raise ValueError("no such thing")

class Bare(msgspec.Struct, frozen=True):
    pass

class Plain:
    pass

class Half:
    async def evaluate(self, exchange):
        return Score(score=0.5)

class Opens(EvaluatorSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    passes_on = "more"
    more: dict = {}

    def open(self, context):
        if "wrong" in self.more:
            raise SettingError("wrong: not that", "more", "wrong")
        return Half()

class Nothing(EvaluatorSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    pass

class Model(EvaluatorSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    asks_model = True

    async def evaluate(self, exchange):
        return Score(score=1.0)
"""
ENTRY_POINTS = """
[agentv.providers]
returns-text = wrong:Settings
breaks = wrong:Breaks
empty = wrong:Empty
plain = wrong:Plain
gone = wrong:Gone
[agentv.evaluators]
number = wrong:Number
unready = wrong:Unready
bare = wrong:Bare
plain = wrong:Plain
gone = nowhere:Gone
opens = wrong:Opens
nothing = wrong:Nothing
model = wrong:Model
"""

VAULT = """
from agentv.extend import ProviderError, ProviderResponse, Secret, TargetSettings, Text

class Settings(TargetSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    auth_token: Secret
    region: Text = "here"

    def open(self, folder):
        return self

    async def invoke(self, request):
        open("calls", "a").write("x")
        if request.eval_id == "refused":
            raise ProviderError(f"status 400: bad token {self.auth_token!r} for {self.region}", status=400)
        return ProviderResponse(text="fine")
"""


@pytest.fixture
def installed(extension: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(extension)


@pytest.fixture
def wrong(write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An installed package that does everything wrong."""
    write("site/wrong.py", WRONG)
    write("site/wrong-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: wrong\nVersion: 1.0\n")
    write("site/wrong-1.0.dist-info/entry_points.txt", ENTRY_POINTS)
    monkeypatch.syspath_prepend(tmp_path / "site")


@pytest.fixture
def vault(write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package is installed whose target has a secret."""
    write("site/vault.py", VAULT)
    write("site/vault-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: vault\nVersion: 1.0\n")
    write("site/vault-1.0.dist-info/entry_points.txt", "[agentv.providers]\nvault = vault:Settings\n")
    monkeypatch.syspath_prepend(tmp_path / "site")


def vault_run(write: Write, settings: str, **environment: str) -> tuple[dict[str, Any], str, str]:
    """Run a case that is refused and one that is not: both results, all that was shown, and the calls."""
    write("targets.yaml", f"targets:\n  - {{name: default, provider: vault, {settings}}}\n")
    write("a.jsonl", [a_case(name, evaluators=[{"type": "is_json"}]) for name in ("refused", "answered")])
    write("calls", "")
    ran = agentv("eval", "a.jsonl", "--cache", "--verbose", "--out", "o.jsonl", env={**os.environ, **environment})
    assert ran.returncode == 1, ran.stderr
    found = {result["eval_id"]: result for result in results("o.jsonl")}
    return found, ran.stdout + ran.stderr + Path("o.jsonl").read_text(), Path("calls").read_text()


def a_project(write: Write, evaluator: str = "{type: word_count, most: 1}") -> None:
    write("answers.json", '{"france": "Paris", "norway": "It is Oslo"}')
    write("targets.yaml", "targets:\n  - {name: default, provider: canned, answers: answers.json}\n")
    cases = "".join(f"- {{id: {id_}, outcome: b, input: c}}\n" for id_ in ("france", "norway", "spain"))
    write("capitals.yaml", f"evaluators: [{evaluator}]\nevalcases:\n{cases}")


@pytest.mark.usefixtures("installed")
def test_a_provider_and_an_evaluator_from_an_installed_package(write: Write) -> None:
    a_project(write)
    assert agentv("eval", "capitals.yaml", "--out", "o.jsonl").returncode == 1
    france, norway, spain = results("o.jsonl")
    assert (france["candidate_answer"], france["score"], france["hits"]) == ("Paris", 1.0, ["has 1 words"])
    assert (norway["score"], norway["misses"]) == (0.0, ["has 3 words, not 0 to 1"])
    assert spain["error"] == "no answer was recorded"
    assert agentv("validate", "targets.yaml", "capitals.yaml").returncode == 0


def test_without_the_package_its_kinds_are_unknown(write: Write) -> None:
    a_project(write)
    assert "unknown evaluator type 'word_count'" in agentv("eval", "capitals.yaml").stderr
    assert "unknown provider 'canned'" in agentv("validate", "targets.yaml").stdout


@pytest.mark.usefixtures("installed")
def test_invalid_settings_of_a_package_are_errors_before_the_run(write: Write) -> None:
    a_project(write, "{type: word_count, most: many}")
    write("targets.yaml", "targets:\n  - {name: default, provider: canned, anwers: answers.json}\n")
    assert "evaluators[0].most: expected an integer, got a string" in agentv("validate", "capitals.yaml").stdout
    assert "did you mean 'answers'?" in agentv("validate", "targets.yaml").stdout
    a_project(write, "{type: word_count, least: 2, most: 1}")
    assert "'least' is 2, which is greater than 'most' (1)" in agentv("validate", "capitals.yaml").stdout
    a_project(write)
    write("answers.json", "[]")
    ran = agentv("eval", "capitals.yaml", "--out", "o.jsonl")
    assert (ran.returncode, Path("o.jsonl").exists()) == (2, False)
    assert "target 'default': answers: answers.json cannot be used: Expected `object`, got `array`" in ran.stderr


@pytest.mark.usefixtures("installed")
def test_hints_and_the_schema_include_the_kinds_of_a_package(write: Write) -> None:
    a_project(write, "{type: word_cont, most: 1}")
    write("targets.yaml", "targets:\n  - {name: default, provider: caned, answers: answers.json}\n")
    assert "did you mean 'word_count'?" in agentv("validate", "capitals.yaml").stdout
    assert "did you mean 'canned'?" in agentv("validate", "targets.yaml").stdout
    schema = jsonschema.Draft202012Validator(json.loads(agentv("schema", "targets").stdout))
    target = {"name": "default", "provider": "canned", "answers": "answers.json"}
    assert schema.is_valid({"targets": [target]})
    assert not schema.is_valid({"targets": [target | {"answers": 1}]})


@pytest.mark.usefixtures("wrong")
@pytest.mark.parametrize(
    ("provider", "message"),
    [
        ("gone", "'gone' of the package 'wrong' cannot be loaded: AttributeError: "),
        ("plain", "the entry point is wrong:Plain; it must be a subclass of agentv.providers.settings."),
        ("breaks", "target 'default': wrong.Breaks cannot be opened: ValueError: no such thing"),
        ("empty", "target 'default': wrong.Empty returned PosixPath, which has no method 'invoke' or 'invoke_batch'"),
    ],
)
def test_an_unusable_provider_is_reported_with_its_package(write: Write, provider: str, message: str) -> None:
    write("targets.yaml", f"targets:\n  - {{name: default, provider: {provider}}}\n")
    ran = agentv("eval", write("a.jsonl", [a_case(evaluators=[{"type": "is_json"}])]))
    assert (ran.returncode, message in ran.stderr) == (2, True), ran.stderr


@pytest.mark.usefixtures("wrong")
@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("gone", "'gone' of the package 'wrong' cannot be loaded: ModuleNotFoundError: "),
        ("plain", "the entry point is wrong:Plain; it must be a subclass of msgspec.Struct"),
        ("unready", "evaluators[0]: wrong.Unready cannot be opened: ValueError: no such thing"),
        ("bare", "evaluators[0]: wrong.Bare returned Bare, which has no method 'evaluate'"),
        ("nothing", "evaluators[0]: wrong.Nothing returned Nothing, which has no method 'evaluate'"),
    ],
)
def test_an_unusable_evaluator_is_reported_with_its_package(write: Write, kind: str, message: str) -> None:
    ran = agentv("validate", write("a.jsonl", [a_case(evaluators=[{"type": kind}])]))
    assert (ran.returncode, message in ran.stdout) == (1, True), ran.stdout


@pytest.mark.usefixtures("vault")
@pytest.mark.parametrize("settings", ["auth_token: swordfish-one", "authToken: '${{ PLAIN }}'"])
def test_secrets_declared_by_a_package_are_masked(write: Write, settings: str) -> None:
    found, shown, _ = vault_run(write, settings, PLAIN="swordfish-one")
    assert found["refused"]["error"] == "status 400: bad token '***' for here"
    assert "swordfish-one" not in shown


@pytest.mark.usefixtures("vault")
def test_digests_and_cache_keys_exclude_secrets_of_a_package(write: Write) -> None:
    first, _, calls = vault_run(write, "auth_token: swordfish-one")
    assert calls == "xx"
    other_token, _, calls = vault_run(write, "auth_token: swordfish-two")
    assert calls == "x"  # the answer was in the cache; what was refused never is
    other_region, _, calls = vault_run(write, "auth_token: swordfish-two, region: there")
    assert calls == "xx"
    digests = [found["answered"]["digests"]["target"] for found in (first, other_token, other_region)]
    assert digests[0] == digests[1] != digests[2]


def test_the_names_in_agentv_extend_are_stable() -> None:
    assert extend.__all__ == [
        "IN_CACHE_KEY",
        "NOT_IN_CACHE_KEY",
        "SECRET",
        "AgentvError",
        "Amount",
        "Answer",
        "Answers",
        "BatchProvider",
        "Becomes",
        "Check",
        "ConfigError",
        "Count",
        "EvalCase",
        "EvalResult",
        "Evaluator",
        "EvaluatorContext",
        "EvaluatorSettings",
        "Exchange",
        "Extension",
        "Flag",
        "ImportFailure",
        "ImportOptions",
        "Importer",
        "Job",
        "JudgeTarget",
        "LanguageModelSettings",
        "Media",
        "Message",
        "NamedEvaluator",
        "Number",
        "Opening",
        "Provider",
        "ProviderError",
        "ProviderRequest",
        "ProviderResponse",
        "Requests",
        "RetrySettings",
        "Row",
        "Run",
        "Sample",
        "Scope",
        "Score",
        "Seconds",
        "Secret",
        "SettingError",
        "Tally",
        "TargetSettings",
        "Text",
        "TokenUsage",
        "ToolCall",
        "TraceEvent",
        "WorkspaceUse",
        "attach_outcome",
    ]
    assert [name for name in extend.__all__ if not hasattr(extend, name)] == []


def test_the_example_imports_nothing_else_from_agentv() -> None:
    for path in EXAMPLE.rglob("*.py"):
        modules = re.findall(r"^(?:from|import) (agentv[.\w]*)", path.read_text(), re.MULTILINE)
        assert {module for module in modules if not module.startswith("agentv_example")} <= {"agentv.extend"}, path


@pytest.mark.usefixtures("wrong")
def test_return_values_of_a_package_are_checked(write: Write) -> None:
    write("targets.yaml", "targets:\n  - {name: default, provider: mock}\n  - {name: text, provider: returns-text}\n")
    cases = [a_case("a", execution={"target": "text"}), a_case("b")]
    agentv(
        "eval", write("a.jsonl", [case | {"evaluators": [{"type": "number"}]} for case in cases]), "--out", "o.jsonl"
    )
    a, b = results("o.jsonl")
    assert a["error"] == "the provider returned str instead of a ProviderResponse"
    assert b["misses"] == ["the evaluator failed: the evaluator returned float instead of a Score"]


@pytest.mark.usefixtures("wrong")
def test_settings_of_a_package_declare_passes_on_and_asks_model(write: Write) -> None:
    write("targets.yaml", "targets:\n  - {name: default, provider: mock}\n")
    file = write(
        "a.yaml", "evaluators: [{type: opens, of: mine}, {type: model}]\nevalcases: [{id: a, outcome: b, input: c}]"
    )
    agentv("eval", file, "--out", "o.jsonl")
    assert [part["score"] for part in results("o.jsonl")[0]["evaluator_results"]] == [0.5, 1.0]
    agentv("eval", file, "--dry-run", "--out", "dry.jsonl")
    misses = [part["misses"] for part in results("dry.jsonl")[0]["evaluator_results"]]
    assert misses == [[], ["dry run: no judge was called"]]
    file.write_text("evaluators:\n- type: opens\n  wrong: 1\nevalcases: [{id: a, outcome: b, input: c}]")
    assert f"{file}:2:3: error: evaluators[0]: wrong: not that" in agentv("validate", file).stdout


@pytest.mark.slow
def test_the_package_passes_its_own_tests(extension: Path) -> None:
    env = {**os.environ, "PYTHONPATH": str(extension)}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(EXAMPLE / "tests")]
    ran = subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=120)
    assert (ran.returncode, ran.stdout.splitlines()[-1].split(" in ")[0]) == (0, "5 passed"), ran.stdout


def test_the_page_shows_the_code_of_the_example() -> None:
    shown = [re.match(r"# (\S+)\n", block.text) for block in blocks(ROOT / "docs" / "extending.md")]
    named = {found[1]: found.string[found.end() :] for found in shown if found}
    assert named == {name: (EXAMPLE / name).read_text() for name in named}
    assert named.keys() >= {"pyproject.toml", "src/agentv_example/canned.py", "src/agentv_example/word_count.py"}
