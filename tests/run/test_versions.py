"""Target versions: `--resume` and `--cache` never mix answers of two agents, and never pay twice."""

import asyncio
import json
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import agentv
from agentv.errors import ConfigError
from tests.kits.processes import PATIENCE_SECONDS
from tests.kits.project import Write, a_case
from tests.kits.runs import ANY, evaluate, results, start, target, wait_for_results

PYTHON = {"name": "default", "provider": "python", "function": "agent.py:answer"}
AGENT = """
import helper

def answer(question):
    from pack import late
    with open("calls", "a") as calls:
        calls.write("x")
    return helper.city() + late.MARK
"""
HELPER = "def city():\n    return 'London'\n"


@pytest.fixture
def project(write: Write) -> Write:
    write("targets.yaml", json.dumps({"targets": [PYTHON]}))
    write("agent.py", AGENT)
    write("helper.py", HELPER)
    write("pack/late.py", "MARK = '!'\n")
    write("a.jsonl", [a_case("a", evaluators=[ANY]), a_case("b", evaluators=[ANY])])
    return write


def resume(*args: str, expect: int = 0) -> str:
    return evaluate("a.jsonl", "--out", "o.jsonl", "--resume", *args, expect=expect).stderr


def answers(path: str = "o.jsonl") -> list[str]:
    return [result["candidate_answer"] for result in results(path)]


def calls() -> int:
    """How often the agent was called since the last time."""
    path = Path("calls")
    count = 0
    if path.exists():
        count = len(path.read_text())
        path.unlink()
    return count


# Python targets


@pytest.mark.parametrize(
    ("file", "content", "answer"),
    [
        ("agent.py", AGENT.replace("+ late", "+ '?' + late"), "London?!"),
        ("helper.py", HELPER.replace("London", "Oxford"), "Oxford!"),
        ("pack/late.py", "MARK = '.'\n", "London."),
    ],
)
def test_a_change_in_any_module_of_an_agent_is_another_version(
    project: Write, file: str, content: str, answer: str
) -> None:
    evaluate("a.jsonl", "--out", "o.jsonl", "--cache")
    assert (answers(), calls()) == (["London!"] * 2, 2)
    project(file, "# a comment\n" + Path(file).read_text() + "\n\n# another\n")
    assert "2 already done\n" in resume()
    evaluate("a.jsonl", "--out", "other.jsonl", "--cache")
    assert calls() == 0
    project(file, content)
    said = resume()
    assert "0 already done, 2 to re-run because the target has changed" in said
    assert f"2 results are stale: target 'default' has changed since this run: file {file}\n" in said
    assert (answers(), calls()) == ([answer] * 2, 2)
    evaluate("a.jsonl", "--out", "other.jsonl", "--cache")
    assert answers("other.jsonl") == [answer] * 2
    assert answers("o.jsonl.bak") == ["London!"] * 2


def test_stale_results_are_explained_without_a_run_record(project: Write) -> None:
    evaluate("a.jsonl", "--out", "o.jsonl")
    for record in Path(".agentv/runs").iterdir():
        record.unlink()
    project("helper.py", HELPER.replace("London", "Paris"))
    assert "2 results are stale: target 'default' has changed since this run: its files or variables\n" in resume()


def test_stale_results_of_another_target(project: Write) -> None:
    other = {"name": "other", "provider": "mock", "response": "Rome"}
    project("targets.yaml", json.dumps({"targets": [PYTHON, other]}))
    evaluate("a.jsonl", "--out", "o.jsonl")
    assert "2 results are stale: answered by target 'default', but this run uses 'other'\n" in resume(
        "--target", "other"
    )


# depends_on


@pytest.fixture
def dependent(project: Write) -> Write:
    settings = PYTHON | {"depends_on": ["prompts/**/*.md", "env:AGENT_MODEL", "rules.py"]}
    project(".agentv/targets.yaml", json.dumps({"targets": [settings]}))
    Path("targets.yaml").unlink()
    project(".agentv/prompts/deep/system.md", "You are a guide.")
    project(".agentv/rules.py", "LIMIT = 1\n")
    return project


def test_depends_on_adds_files_and_variables(dependent: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    evaluate("a.jsonl", "--out", "o.jsonl", "--cache")
    dependent(".agentv/rules.py", "LIMIT = 1  # for now\n")
    dependent(".agentv/prompts/other.txt", "not matched")
    assert "2 already done\n" in resume()
    assert calls() == 2
    dependent(".agentv/prompts/deep/system.md", "You are a poet.")
    assert "target 'default' has changed since this run: file prompts/deep/system.md\n" in resume("--cache")
    monkeypatch.setenv("AGENT_MODEL", "large")
    assert "target 'default' has changed since this run: variable AGENT_MODEL\n" in resume("--cache")
    assert calls() == 4
    monkeypatch.delenv("AGENT_MODEL")
    assert "has changed since this run: variable AGENT_MODEL\n" in resume("--cache")
    assert calls() == 0  # from the cache
    dependent(".agentv/prompts/more.md", "")
    assert "has changed since this run: file prompts/more.md\n" in resume()


def test_depends_on_works_for_every_provider(write: Write) -> None:
    write("targets.yaml", "targets: [{name: default, provider: mock, response: hi, depends_on: [model.txt]}]")
    write("model.txt", "1")
    write("a.jsonl", [a_case(evaluators=[ANY])])
    evaluate("a.jsonl", "--out", "o.jsonl")
    write("model.txt", "2")
    assert "1 result is stale: target 'default' has changed since this run: file model.txt\n" in resume()


def test_a_glob_that_matches_nothing_is_a_warning(dependent: Write) -> None:
    settings = PYTHON | {"depends_on": ["promts/*.md"]}
    dependent(".agentv/targets.yaml", json.dumps({"targets": [settings]}))
    said = evaluate("a.jsonl", "--out", "o.jsonl").stderr
    assert "targets.yaml: target 'default': depends_on: no file matches 'promts/*.md'" in said
    assert f"it is relative to {Path.cwd() / '.agentv'}" in said


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (["env:"], "depends_on[0]: 'env:' does not name an environment variable"),
        (["env:MY MODEL"], "'env:MY MODEL' does not name an environment variable"),
        ([""], "depends_on[0]"),
        ("prompts", "depends_on"),
        ([3], "depends_on[0]"),
    ],
)
def test_invalid_depends_on(project: Write, value: Any, message: str) -> None:
    project("targets.yaml", json.dumps({"targets": [PYTHON | {"depends_on": value}]}))
    said = evaluate("a.jsonl", "--out", "o.jsonl", expect=2).stderr
    assert message in said


# Commands


LOGGING = """
import sys
with open(sys.argv[1], "a") as log:
    log.write("x")
print("hello")
"""


def test_a_data_file_that_a_command_names_is_not_part_of_its_version(write: Write) -> None:
    write("targets.yaml", target(f"{sys.executable} agent.py calls --db state.db"))
    write("agent.py", LOGGING)
    write("calls", "")
    write("state.db", "1")
    write("a.jsonl", [a_case(str(n), evaluators=[ANY]) for n in range(3)])
    evaluate("a.jsonl", "--out", "o.jsonl", "--cache", "--limit", "2")
    write("state.db", "2")
    assert "2 already done\n" in resume("--cache")
    evaluate("a.jsonl", "--out", "other.jsonl", "--cache")
    assert calls() == 3
    write("agent.py", LOGGING.replace("hello", "good day"))
    assert "3 results are stale: target 'default' has changed since this run: file agent.py\n" in resume()


@pytest.mark.slow
def test_a_kill_repeats_no_call_beyond_those_in_flight(write: Write) -> None:
    write("targets.yaml", target(f"{sys.executable} agent.py {{EVAL_ID}} agent.log", workers=4))
    write(
        "agent.py",
        "import sys, time\n"
        "open(sys.argv[2], 'a').write(sys.argv[1] + '\\n')\n"
        "time.sleep(0.05)\n"
        "open(sys.argv[2], 'a').write('.')\n"
        "print('hello')\n",
    )
    write("a.jsonl", [a_case(f"case-{n}", evaluators=[ANY]) for n in range(60)])
    log = Path("agent.log")
    kills = 3
    for number in range(1, kills + 1):
        run = start("a.jsonl", "--out", "o.jsonl", "--resume", "--quiet")
        wait_for_results(Path("o.jsonl"), number * 12)
        run.send_signal(signal.SIGKILL)
        run.communicate(timeout=PATIENCE_SECONDS)
    said = resume("--quiet")
    assert "stale" not in said
    asked = [line.lstrip(".") for line in log.read_text().split("\n") if line.strip(".")]
    assert len(results("o.jsonl")) == 60
    assert {f"case-{n}" for n in range(60)} == set(asked)
    assert len(asked) <= 60 + kills * 4


# Expectations and evaluators


def test_answers_stay_when_only_expectations_or_evaluators_change(project: Write) -> None:
    evaluate("a.jsonl", "--out", "o.jsonl")
    case = a_case("a", evaluators=[ANY], expected_outcome="Something else.")
    other = a_case("b", evaluators=[{"type": "contains", "value": "Paris"}])
    project("a.jsonl", [case, other])
    said = resume()
    kept = "2 kept although the evaluators have changed ('agentv grade' re-scores them)"
    assert f"2 already done, {kept}\n" in said
    assert calls() == 2
    assert not Path("o.jsonl.bak").exists()


def test_a_backup_is_made_before_an_answer_is_replaced(project: Write) -> None:
    evaluate("a.jsonl", "--out", "o.jsonl")
    question = {"input_messages": [{"role": "user", "content": "Another question?"}]}
    project("a.jsonl", [a_case("a", evaluators=[ANY]), a_case("b", evaluators=[ANY], **question)])
    project("pack/late.py", "MARK = 5\n")  # the agent fails now
    said = resume("--keep-stale", expect=1)
    assert "1 to re-run because the case has changed" in said
    assert "previous answers saved in o.jsonl.bak\n" in said
    assert answers("o.jsonl.bak") == ["London!"] * 2
    assert [result.get("error") is None for result in results("o.jsonl")] == [True, False]
    assert "1 to re-run after an error" in resume("--keep-stale", expect=1)
    assert not Path("o.jsonl.bak.2").exists()


def test_results_of_removed_cases_are_kept_and_counted(project: Write) -> None:
    evaluate("a.jsonl", "--out", "o.jsonl")
    project("a.jsonl", [a_case("a", evaluators=[ANY])])
    ran = evaluate("a.jsonl", "--out", "o.jsonl", "--resume")
    gone = "1 result in o.jsonl kept but not summarized: the cases are not in these eval files"
    assert f"{gone}\n" in ran.stderr
    assert "1 planned = 1 already done\n" in ran.stdout
    assert len(results("o.jsonl")) == 2


def test_unselected_cases_do_not_count_as_removed(project: Write) -> None:
    evaluate("a.jsonl", "--out", "o.jsonl")
    assert "not in these eval files" not in resume("--limit", "1")
    assert "not in these eval files" not in resume("--eval-id", "b")


@pytest.mark.parametrize(
    "evaluator",
    [
        {"type": "python", "function": "judge.py:score"},
        {"type": "code_judge", "script": [sys.executable, "judge.py", "judge.log"]},
    ],
)
def test_the_code_of_evaluators_is_part_of_their_digest(project: Write, evaluator: dict[str, Any]) -> None:
    source = (
        "import rules, json\ndef score(candidate_answer):\n    return rules.SCORE\nprint(json.dumps({'score': 1}))\n"
    )
    project("judge.py", source)
    project("judge.log", "")
    project("rules.py", "SCORE = 1.0\n")
    project("a.jsonl", [a_case(name, evaluators=[evaluator]) for name in "ab"])
    evaluate("a.jsonl", "--out", "o.jsonl")
    project("judge.log", "judged")
    project("rules.py", "SCORE = 1.0  # certainly\n")
    assert "2 already done\n" in resume()
    project("rules.py", "SCORE = 0.5\n")
    assert "2 kept although the evaluators have changed" in resume()
    evaluate("a.jsonl", "--out", "new.jsonl")
    (before,) = {result["digests"]["evaluators"] for result in results("o.jsonl")}
    (after,) = {result["digests"]["evaluators"] for result in results("new.jsonl")}
    assert before != after


# Other formats


def rewrite(path: str, **digests: Any) -> None:
    """Change the digests of the results in a file; None removes one."""
    lines = []
    for result in results(path):
        for name, value in digests.items():
            if value is None:
                result["digests"].pop(name, None)
            else:
                result["digests"][name] = value
        lines.append(json.dumps(result) + "\n")
    Path(path).write_text("".join(lines))


def test_results_have_a_format_of_digests(project: Write) -> None:
    evaluate("a.jsonl", "--out", "o.jsonl")
    assert [result["digests"]["format"] for result in results("o.jsonl")] == [2, 2]


def test_another_build_is_not_another_version(project: Write) -> None:
    evaluate("a.jsonl", "--out", "o.jsonl")
    rewrite("o.jsonl", agentv="9.9.9")
    assert "2 already done\n" in resume()


@pytest.mark.parametrize("number", [None, 3])
def test_results_whose_digests_have_another_format_are_kept(project: Write, number: int | None) -> None:
    evaluate("a.jsonl", "--out", "o.jsonl")
    rewrite("o.jsonl", format=number, target="computed-otherwise", evaluators="computed-otherwise")
    said = resume()
    assert "2 already done, 2 kept with target versions in an older format\n" in said
    assert calls() == 2
    project("helper.py", HELPER.replace("London", "Paris"))
    assert "2 to re-run because the target has changed" in resume()


def test_a_changed_setting_is_seen_in_another_format(project: Write) -> None:
    evaluate("a.jsonl", "--out", "o.jsonl")
    rewrite("o.jsonl", format=3, target="computed-otherwise")
    project("targets.yaml", json.dumps({"targets": [PYTHON | {"function": "agent:answer"}]}))
    assert "2 to re-run because the target has changed" in resume()


OF_FORMAT_1 = {"format": None, "request": None, "settings": None, "files": None}


def test_results_of_format_1_are_kept_unless_a_setting_or_file_has_changed(write: Write) -> None:
    write("targets.yaml", target("sh agent.sh"))
    write("agent.sh", "echo hello\n")
    write("a.jsonl", [a_case(evaluators=[ANY])])
    evaluate("a.jsonl", "--out", "o.jsonl")
    # what agentv 0.1 wrote for this target
    rewrite("o.jsonl", **OF_FORMAT_1, target="a9b4e7899160")
    assert "1 already done, 1 kept with target versions in an older format\n" in resume()
    write("agent.sh", "echo good day\n")
    assert "1 to re-run because the target has changed" in resume()


def test_results_of_format_1_are_kept_if_their_version_covered_a_log(write: Write) -> None:
    write("targets.yaml", target("sh agent.sh agent.log"))
    write("agent.sh", "echo hello; echo x >> agent.log\n")
    write("agent.log", "")
    write("a.jsonl", [a_case(evaluators=[ANY])])
    evaluate("a.jsonl", "--out", "o.jsonl")
    rewrite("o.jsonl", **OF_FORMAT_1, target="anything")
    assert "1 kept with target versions in an older format\n" in resume()


# Functions


@pytest.fixture
def own_modules() -> Iterator[None]:
    """The modules that a test imports in this process are forgotten after it."""
    before = set(sys.modules)
    path = sys.path[:]
    yield
    sys.path[:] = path
    for name in set(sys.modules) - before:
        if name.partition("_")[0] in ("agent", "helper", "pack", "my") or name.startswith(("agentv_user", "pack.")):
            del sys.modules[name]


def run(answer: Callable[..., Any] | str, **options: Any) -> list[str]:
    report = asyncio.run(agentv.evaluate("a.jsonl", target=answer, **options))
    return [result.candidate_answer for result in report.results]


def make(city: Any) -> Callable[[str], str]:
    def answer(question: str) -> str:
        return str(city)

    return answer


@pytest.mark.usefixtures("own_modules")
def test_a_cache_never_mixes_two_functions(project: Write) -> None:
    assert run(make("London"), cache=True) == ["London"] * 2
    assert run(make("Paris"), cache=True) == ["Paris"] * 2
    assert run(make("London"), cache=True) == ["London"] * 2
    assert run("default", cache=True) == ["London!"] * 2
    assert len(list(Path(".agentv/cache").glob("*/*.json"))) == 6


def test_the_cache_keeps_the_answers_of_a_function(project: Write) -> None:
    asked = []

    def answer(question: str) -> str:
        asked.append(question)
        return "Rome"

    assert run(answer, cache=True) == run(answer, cache=True) == ["Rome"] * 2
    assert len(asked) == 2


def test_resume_never_mixes_two_functions(project: Write) -> None:
    run(make("London"), out="o.jsonl")
    first = Path("o.jsonl").read_text()
    assert run(make("London"), out="o.jsonl", resume=True) == ["London"] * 2
    assert Path("o.jsonl").read_text() == first
    assert run(make("Paris"), out="o.jsonl", resume=True) == ["Paris"] * 2
    assert answers() == ["Paris"] * 2


@pytest.mark.parametrize("option", ["cache", "resume"])
def test_a_function_of_unknown_version_needs_one(project: Write, option: str) -> None:
    function = make(iter("London"))
    run(function, out="o.jsonl")  # as long as nothing could be mixed
    with pytest.raises(ConfigError) as raised:
        run(function, out="o.jsonl", **{option: True})
    assert raised.value.message == (
        f"{option}=True: the version of the function cannot be determined: "
        "make.<locals>.answer() uses 'city', an object of the class str_ascii_iterator"
    )
    assert "version=" in raised.value.hint
    assert run(function, out="o.jsonl", version="1", **{option: True}) != []


def test_an_explicit_version_decides(project: Write) -> None:
    assert run(make("London"), cache=True, version="1") == ["London"] * 2
    assert run(make("Paris"), cache=True, version="1") == ["London"] * 2
    assert run(make("Paris"), cache=True, version="2") == ["Paris"] * 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"version": 2}, "version is 2"),
        ({"version": ""}, "version is ''"),
        ({"version": "2", "target": "default"}, "version is set, but target is not a function"),
    ],
)
def test_invalid_versions(project: Write, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as raised:
        asyncio.run(agentv.evaluate("a.jsonl", **({"target": make("x")} | options)))
    assert raised.value.message == message


@pytest.mark.usefixtures("own_modules")
def test_an_edited_agent_is_loaded_again_in_the_same_process(project: Write) -> None:
    assert run("default", cache=True) == ["London!"] * 2
    project("helper.py", HELPER.replace("London", "Oxford"))  # of the same size, within a second
    assert run("default", cache=True) == ["Oxford!"] * 2
    project("agent.py", AGENT.replace("+ late", "+ '?' + late"))
    assert run("default", cache=True) == ["Oxford?!"] * 2
    project("pack/late.py", "MARK = '.'\n")
    assert run("default", cache=True) == ["Oxford?."] * 2
    project("pack/late.py", "MARK = '!'\n")
    project("helper.py", HELPER)
    project("agent.py", AGENT)
    assert calls() == 8
    assert run("default", cache=True) == ["London!"] * 2
    assert calls() == 0


@pytest.mark.usefixtures("own_modules")
def test_a_function_of_an_edited_module_is_the_new_one(project: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(Path.cwd())
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    project("my_agent.py", "from my_helper import city\ndef answer(q):\n    return city()\n")
    project("my_helper.py", HELPER)
    import my_agent  # type: ignore[import-not-found]

    project("my_helper.py", HELPER.replace("London", "Luxembourg"))
    assert run(my_agent.answer) == ["Luxembourg"] * 2  # edited before the first evaluation
    project("my_helper.py", HELPER)
    function = my_agent.answer
    assert run(function, cache=True) == ["London"] * 2
    project("my_helper.py", HELPER.replace("London", "Oxford"))
    assert run(function, cache=True) == ["Oxford"] * 2
    project("my_agent.py", "def answer(q):\n    return 'Rome'\n")
    assert run(my_agent.answer, cache=True) == ["Rome"] * 2
    project("my_agent.py", "def answer(q:\n")
    with pytest.raises(ConfigError, match="my_agent cannot be loaded: SyntaxError"):
        run(function, cache=True)
