"""`eval --cache`: no answer is paid for twice."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from agentv.calls.cache_key import cache_key, target_key
from agentv.calls.format_1 import target_key_1
from agentv.cases.read import read_eval_file
from agentv.cases.request import Files, build_request
from agentv.records import ProviderRequest
from agentv.targets.read import read_targets
from tests.kits.model_servers import VENDORS, Says, model_server
from tests.kits.processes import PATIENCE_SECONDS, start_process
from tests.kits.project import PRINT_PEAK_KB, Write, a_case, agentv


def project(write: Write, target: dict[str, Any], cases: int = 3, **also: Any) -> None:
    write("targets.yaml", json.dumps({"targets": [target, *also.values()]}))
    write("cases.jsonl", [a_case(f"c{number}") for number in range(cases)])
    write("cases.yaml", "evaluators: [{type: contains, value: fine}]\n")


def run(*args: str, code: int = 0) -> tuple[list[dict[str, Any]], str]:
    ran = agentv("eval", "cases.jsonl", "--out", "out.jsonl", "--cache", *args)
    assert ran.returncode == code, ran.stderr
    results = [json.loads(line) for line in Path("out.jsonl").read_text().splitlines()]
    return sorted(results, key=lambda result: (result["eval_id"], result.get("trial", 1))), ran.stderr


def entries() -> list[Path]:
    return sorted(Path(".agentv/cache").glob("*/*.json"))


@pytest.mark.parametrize("vendor", [*VENDORS, "http"])
def test_a_second_run_makes_no_call_and_gives_the_same(write: Write, vendor: str) -> None:
    with model_server(lambda _: Says("fine", calls=(("search", {"q": 1}),)) if vendor != "http" else "fine") as server:
        project(write, server.target(vendor))
        first, said = run()
        assert "came from the cache" not in said
        again, said = run("--workers", "3")
        assert len(server.asked) == 3
    assert "3 answers served from the cache" in said
    for before, after in zip(first, again, strict=True):
        for result in (before, after):
            del result["timestamp"], result["run_id"]
        assert after["execution_metrics"].pop("cached") is True  # it cost nothing
        assert before == after


def test_without_the_flag_the_cache_is_neither_read_nor_written(write: Write) -> None:
    with model_server(lambda _: "fine") as server:
        project(write, server.target("http"))
        run()
        assert agentv("eval", "cases.jsonl", "--out", "o.jsonl").returncode == 0
        assert len(server.asked) == 6
    assert len(entries()) == 3


def test_cache_keys_depend_only_on_what_is_sent(write: Write) -> None:
    with model_server(lambda _: "fine") as server:
        target = server.target("openai")
        project(write, target, cases=1)
        run()
        more = {"api_key": "another-key", "workers": 2, "max_retries": 9, "requests_per_minute": 9999}
        project(write, target | more, cases=1)
        run()
        assert len(server.asked) == 1
        others: list[dict[str, Any]] = [{"temperature": 1}, {"model": "m2"}, {"system_prompt": "Hm."}]
        for number, other in enumerate(others, 2):
            project(write, target | other, cases=1)
            run()
            assert len(server.asked) == number
        write("cases.jsonl", [a_case("c0", input_messages=[{"role": "user", "content": "Another query"}])])
        run()
        assert len(server.asked) == 5


def test_the_content_of_files_is_part_of_the_cache_key(write: Write) -> None:
    with model_server(lambda _: "fine") as server:
        project(write, server.target("http"))
        block = [{"type": "text", "value": "Look"}, {"type": "file", "value": "notes.txt"}]
        write("cases.jsonl", [a_case("c0", input_messages=[{"role": "user", "content": block}])])
        for content, asked in (("one", 1), ("one", 1), ("two", 2)):
            write("notes.txt", content)
            run()
            assert len(server.asked) == asked


def test_a_changed_function_or_command_is_called_again(write: Write) -> None:
    targets = (
        {"name": "default", "provider": "python", "function": "agent.py:answer"},
        {"name": "default", "provider": "cli", "command_template": f"{sys.executable} agent.py"},
    )
    source = "open('calls', 'a').write('x')\ndef answer(q):\n    open('calls', 'a').write('x')\n    return 'fine'\nprint('fine')\n"
    for target in targets:
        calls = []
        project(write, target, cases=1)
        for code in (source, source + "# a comment\n", source + "changed = 1\n"):
            write("agent.py", code)
            write("calls", "")
            run()
            calls.append(len(Path("calls").read_text()))
        assert calls[1] < calls[0] == calls[2], target["provider"]


def test_errors_are_not_cached(write: Write) -> None:
    with model_server(lambda _: 400) as server:
        project(write, server.target("http"), cases=1)
        run(code=1)
        run(code=1)
        assert len(server.asked) == 2
    assert entries() == []


def test_a_damaged_entry_is_a_miss(write: Write) -> None:
    contents = (b"", b"{", b"[]", b'{"text": 5}', b"\xff\xfe", b'{"text": "fi')
    count = len(contents)
    with model_server(lambda _: "fine") as server:
        project(write, server.target("http"), cases=count)
        write(
            "cases.jsonl",
            [a_case(f"c{n}", input_messages=[{"role": "user", "content": f"Query {n}"}]) for n in range(count)],
        )
        run()
        for entry, content in zip(entries(), contents, strict=True):
            entry.write_bytes(content)
        results, _ = run()
        assert [result["score"] for result in results] == [1.0] * count
        assert len(server.asked) == 2 * count
        run()
        assert len(server.asked) == 2 * count


def test_trials_are_cached_separately(write: Write) -> None:
    with model_server(lambda _: "fine") as server:
        project(write, server.target("http"), cases=2)
        run("--trials", "3")
        run("--trials", "3")
        assert len(server.asked) == 6


def test_judgements_are_cached_but_not_judge_failures(write: Write) -> None:
    """A judge that said nothing of use is asked again, in this run; in the next, both answers are known."""
    said = iter(["no idea", '{"score": 0.9}'])
    with model_server(lambda _: next(said)) as server:
        mock = {"name": "default", "provider": "mock", "response": "fine", "judge_target": "judge"}
        project(write, mock, cases=1, judge=server.target("openai") | {"name": "judge"})
        write("cases.yaml", "evaluators: [{type: llm_judge}]\n")
        for _ in range(2):
            (result,), _ = run()
            assert result["score"] == 0.9
        assert len(server.asked) == 2


def test_batches_contain_only_uncached_cases(write: Write) -> None:
    write(
        "all.py",
        "import json, sys\n"
        "asked = [json.loads(line)['id'] for line in open(sys.argv[1])]\n"
        "open('calls', 'a').write(' '.join(asked) + '\\n')\n"
        "open(sys.argv[2], 'w').writelines(json.dumps({'id': i, 'text': 'fine'}) + '\\n' for i in asked)\n",
    )
    command = f"{sys.executable} all.py {{BATCH_FILE}} {{OUTPUT_FILE}}"
    target = {"name": "default", "provider": "cli", "command_template": command, "provider_batching": True}
    project(write, target, cases=2)
    run()
    write("cases.jsonl", [a_case(f"c{number}") for number in range(4)])
    results, said = run()
    assert [result["score"] for result in results] == [1.0] * 4
    assert Path("calls").read_text() == "c0 c1\nc2 c3\n"
    assert "2 answers served from the cache" in said
    run()
    assert Path("calls").read_text() == "c0 c1\nc2 c3\n"


def test_two_concurrent_runs_share_the_cache(write: Write) -> None:
    with model_server(lambda _: "fine") as server:
        project(write, server.target("http"), cases=60)
        line = [sys.executable, "-m", "agentv", "eval", "cases.jsonl", "--cache", "--workers", "10", "--out"]
        runs = [start_process([*line, f"{name}.jsonl"], stdout=subprocess.DEVNULL) for name in "ab"]
        assert [process.wait(PATIENCE_SECONDS) for process in runs] == [0, 0]
        before = len(server.asked)
        results, _ = run("--workers", "10")
        assert len(server.asked) == before
    assert [result["score"] for result in results] == [1.0] * 60
    assert len(entries()) == 60
    assert sum(len(files) for _, _, files in os.walk(".agentv/cache")) == 60


def test_a_cache_that_cannot_be_written_is_a_warning(write: Write) -> None:
    with model_server(lambda _: "fine") as server:
        project(write, server.target("http"), cases=2)
        write(".agentv/cache", "in the way")
        results, said = run()
    assert [result["score"] for result in results] == [1.0, 1.0]
    assert said.count("responses cannot be cached") == 1


def test_cache_clear(write: Write) -> None:
    with model_server(lambda _: "fine") as server:
        project(write, server.target("http"))
        run()
        ran = agentv("cache", "clear")
        assert (ran.returncode, ran.stdout) == (0, "deleted 3 responses (0.0 MB)\n")
        assert not Path(".agentv/cache").exists()
        run()
        assert len(server.asked) == 6
    assert agentv("cache", "clear", cwd=Path("/")).stdout == "deleted 0 responses (0.0 MB)\n"
    assert agentv("cache").returncode == 2


def test_a_dry_run_leaves_the_cache_alone(write: Write) -> None:
    project(write, {"name": "default", "provider": "mock", "response": "fine"})
    run("--dry-run")
    assert entries() == []


def changed_answers(*files: tuple[str, str]) -> list[int]:
    """How often a project's agent is called, run after run, as these files are written."""
    counts = []
    for name, content in files:
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_text(content)
        Path("calls").write_text("")
        run()
        counts.append(len(Path("calls").read_text()))
    return counts


CODE = "def answer(question):\n    open('calls', 'a').write('x')\n    return 'fine'\n"


@pytest.mark.parametrize(("function", "file"), [("mod:answer", "mod.py"), ("pk.mod:answer", "pk/mod.py")])
def test_a_changed_module_is_called_again(write: Write, function: str, file: str) -> None:
    write("pk/__init__.py", "")
    project(write, {"name": "default", "provider": "python", "function": function}, cases=1)
    assert changed_answers((file, CODE), (file, CODE + "# a comment\n"), (file, CODE + "changed = 1\n")) == [1, 0, 1]


def test_answers_cached_by_an_earlier_version_are_used_until_the_target_changes(write: Write) -> None:
    project(write, {"name": "default", "provider": "cli", "command_template": "sh agent.sh"}, cases=2)
    write("agent.sh", "printf x >> calls; echo fine\n")
    run()
    settings = read_targets(Path("targets.yaml"), {}).targets["default"]
    new = target_key(settings, Path.cwd())
    old = target_key_1(settings, Path.cwd())
    for number in range(2):
        # as agentv 0.1 stored it
        asked = request_of(Path("cases.jsonl"), number)
        entry = Path(".agentv/cache", cache_key(new, asked)[:2], f"{cache_key(new, asked)}.json")
        key = cache_key(old, asked)
        Path(".agentv/cache", key[:2]).mkdir(exist_ok=True)
        entry.rename(Path(".agentv/cache", key[:2], f"{key}.json"))
    _, said = run()
    assert "2 answers served from the cache, 2 of them stored in an older format\n" in said
    _, said = run()
    assert "2 answers served from the cache\n" in said
    assert Path("calls").read_text() == "xx"
    write("agent.sh", "printf y >> calls; echo fine\n")
    run()
    assert Path("calls").read_text() == "xxyy"
    assert len(entries()) == 4


def request_of(path: Path, number: int) -> ProviderRequest:
    """The request of a case for a target that reads files itself."""
    cases = list(read_eval_file(path, lambda problem: None))
    return build_request(cases[number], (), Files.REFERENCE)


def test_a_changed_script_in_the_folder_of_a_command_is_run_again(write: Write) -> None:
    target = {"name": "default", "provider": "cli", "command_template": "sh agent.sh {PROMPT}", "cwd": "agents"}
    project(write, target, cases=1)
    script = "printf x >> ../calls; echo fine\n"
    file = "agents/agent.sh"
    assert changed_answers((file, script), (file, script), (file, script + "# changed\n")) == [1, 0, 1]


@pytest.mark.parametrize("setting", ["workspace_template", "cwd"])
def test_the_workspace_of_a_coding_agent_is_part_of_the_cache_key(write: Write, setting: str) -> None:
    events = json.dumps({"type": "result", "subtype": "success", "result": "fine"})
    agent = write("claude", f"#!/bin/sh\ncat >/dev/null; printf x >> '{os.getcwd()}/calls'; echo '{events}'\n")
    agent.chmod(0o755)
    write("work/a.txt", "one")
    project(write, {"name": "default", "provider": "claude-code", "executable": "./claude", setting: "work"}, cases=1)
    counts = changed_answers(("work/a.txt", "one"), ("work/a.txt", "one"), ("work/a.txt", "two"))
    assert counts == [1, 0, 1]


def test_headers_are_part_of_the_cache_key(write: Write) -> None:
    with model_server(lambda _: "fine") as server:
        for model, asked in (("a-model", 1), ("a-model", 1), ("b-model", 2)):
            project(write, server.target("http", headers={"X-Model": model}), cases=1)
            run()
            assert len(server.asked) == asked


def test_an_answer_that_contains_a_secret_is_not_cached(write: Write) -> None:
    """Without it, it would be another answer, with another score."""
    with model_server(lambda _: "fine, your key is secret-key-123") as server:
        project(write, server.target("openai"), cases=1)
        write("cases.yaml", "evaluators: [{type: contains, value: secret-key-123}]\n")
        for asked in (1, 2):
            (result,), _ = run()
            assert (result["score"], len(server.asked)) == (1.0, asked)
    assert entries() == []


def test_clear_follows_a_symlink(write: Write) -> None:
    write("elsewhere/ab/abc.json", "{}")
    write(".agentv/x", "")
    Path(".agentv/cache").symlink_to("../elsewhere")
    assert agentv("cache", "clear").stdout.startswith("deleted 1 response (")
    assert list(Path("elsewhere").iterdir()) == []
    assert Path(".agentv/cache").is_symlink()


@pytest.mark.slow
def test_large_files_that_a_command_names_are_not_read_without_the_cache(write: Write) -> None:
    with Path(write("model.gguf", "")).open("wb") as file:
        file.truncate(400 << 20)
    project(write, {"name": "default", "provider": "cli", "command_template": "echo fine ./model.gguf"}, cases=1)
    code = (
        "import sys\nfrom agentv.__main__ import main\n"
        "sys.argv = ['agentv', 'eval', 'cases.jsonl', '--out', 'o.jsonl', *sys.argv[1:]]\n"
        f"try:\n    main()\nexcept SystemExit:\n    {PRINT_PEAK_KB}\n"
    )
    for args in ([], ["--cache"]):
        ran = subprocess.run([sys.executable, "-c", code, *args], capture_output=True, text=True, check=True)
        assert int(ran.stdout.split()[-1]) < 100 << 10


def test_folders_that_a_command_names_are_not_read(write: Write) -> None:
    """A user may mount another disk."""
    write("data/huge.bin", "one")
    script = f"printf x >> '{os.getcwd()}/calls'; echo fine {os.getcwd()}/data"
    project(write, {"name": "default", "provider": "cli", "command_template": script}, cases=1)
    assert changed_answers(("data/huge.bin", "one"), ("data/huge.bin", "two")) == [1, 0]
