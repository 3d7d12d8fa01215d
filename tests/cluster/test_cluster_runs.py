"""Options of a run on a cluster: the same results as without one, and limits for all workers together."""

import json
import os
import re
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.kits.clusters import Cluster, a_project, calls, children, cluster_case
from tests.kits.judges import CASES as JUDGED
from tests.kits.judges import judge_section
from tests.kits.judges import project as judged_project
from tests.kits.model_servers import model_server
from tests.kits.processes import living, wait_until
from tests.kits.project import Write, a_case, agentv
from tests.kits.runs import ANY, evaluate, results, start, target, wait_for_results

pytestmark = pytest.mark.slow

VOLATILE = ("timestamp", "run_id", "execution_metrics", "trace_summary")


def stable(path: str) -> list[dict[str, Any]]:
    """The results by id and trial, without fields that vary."""
    kept = [{key: value for key, value in each.items() if key not in VOLATILE} for each in results(path)]
    return sorted(kept, key=lambda each: (each["eval_id"], each.get("trial", 1)))


def two_workers(folder: Path) -> str:
    """The address of a cluster for several runs: for each, `local:2` would start workers of its own."""
    cluster = Cluster(folder / "cluster")
    cluster.add()
    cluster.add()
    return cluster.url


def test_a_cluster_gives_the_same_results_as_a_run_without_one(write: Write) -> None:
    write("notes.txt", "the content of a file")
    write("judge.py", "import json, sys\nprint(json.dumps({'score': 0.5, 'hits': ['judged']}))\n")
    write(
        "targets.yaml",
        json.dumps(
            {
                "targets": [
                    {"name": "default", "provider": "cli", "command_template": "echo said {PROMPT}"},
                    {"name": "silly", "provider": "mock", "response": "hello"},
                ]
            }
        ),
    )
    blocks = [{"type": "text", "value": "look"}, {"type": "file", "value": "notes.txt"}]
    judges = [ANY, {"type": "code_judge", "script": [sys.executable, "judge.py"]}]
    one = [a_case(f"a{n}", input_messages=[{"role": "user", "content": blocks}], evaluators=judges) for n in range(4)]
    two = [a_case(f"b{n}", evaluators=[ANY], execution={"target": "silly", "evaluators": [ANY]}) for n in range(5)]
    paths = [write("one.jsonl", one), write("two.jsonl", two)]
    flags = ["--trials", "2", "--include-trace", "--workers", "2"]
    evaluate(*paths, *flags, "--out", "here.jsonl")
    evaluate(*paths, *flags, "--out", "there.jsonl", "--cluster", "local:2")
    assert len(stable("there.jsonl")) == 18
    assert stable("there.jsonl") == stable("here.jsonl")


CAREFUL = """
def answer(question):
    said = f"it is {question.rsplit(' ', 1)[-1]}, my password is hunter2-hunter2"
    return {"output_messages": [{"role": "assistant", "content": "I look it up"}, {"role": "assistant", "content": said}]}
"""
NOTING = """with open("asked.log", "a") as file:
        file.write(json.dumps(question) + "\\n")
    return say(fair(question))"""


def asked() -> Counter[str]:
    """Return and clear the requests to the judge, without their random marks."""
    found = Counter(re.sub("[0-9a-f]{16}", "", line) for line in Path("asked.log").read_text().splitlines())
    Path("asked.log").unlink()
    shutil.rmtree(".agentv/cache")
    return found


def test_judges_are_checked_by_the_driver_with_the_same_answers_as_without_a_cluster(write: Write) -> None:
    judged_project(write, NOTING)
    write("agent.py", CAREFUL.replace("hunter2-hunter2", "known"))
    prompt = "A good answer, if one is known:\n{{ reference_answer }}\nThe steps:\n{{ output_messages }}\nGrade:\n{{ candidate_answer }}"
    cases = [json.loads(line) for line in Path("cases.jsonl").read_text().splitlines()]
    write("cases.jsonl", [{**case, "evaluators": [{"type": "llm_judge", "prompt": prompt}]} for case in cases])
    flags = ["cases.jsonl", "--check-judge", "--trials", "4", "--workers", "4"]
    here = evaluate(*flags, "--out", "here.jsonl").stdout
    sent = asked()
    there = evaluate(*flags, "--out", "there.jsonl", "--cluster", "local:2").stdout
    assert asked() == sent
    assert sum(sent.values()) == 4 * JUDGED + 12 + 40  # the answers, the planted ones, and those that are judged again
    assert judge_section(there) == judge_section(here)
    assert "0 of 40 verdicts flipped" in judge_section(there)
    assert len(results("there.jsonl")) == 4 * JUDGED  # nothing that is planted is among them


def test_an_answer_to_judge_again_is_sent_without_secrets(write: Write) -> None:
    judged_project(write, NOTING)
    write("agent.py", CAREFUL)
    write(".env", "MY_PASSWORD=hunter2-hunter2\n")
    evaluate("cases.jsonl", "--check-judge", "--out", "out.jsonl", "--cluster", "local:2")
    again = Counter("hunter2" in text for text in asked().elements())
    assert again == {True: JUDGED, False: 60 + JUDGED}  # a worker judges what was said, the driver what it was sent


def test_a_dry_run_and_dumps(write: Write) -> None:
    path = a_project(write, 6)
    flags = ["--dry-run", "--dump-prompts", "prompts", "--dump-traces", "--limit", "5", "--out", "out.yaml"]
    ran = evaluate(path, *flags, "--cluster", "local:2")
    assert "DRY RUN" in ran.stdout
    assert "5 planned = 5 scored" in ran.stdout
    assert sorted(each.name for each in Path("prompts").iterdir()) == [f"c{n}.json" for n in range(5)]
    assert len(list(Path(".agentv/traces").iterdir())) == 5
    assert calls() == []
    assert Path("out.yaml").read_text().count("eval_id:") == 5


def test_the_cache_is_shared_and_resuming_runs_the_rest(write: Write, tmp_path: Path) -> None:
    path = a_project(write, 12, "time.sleep(0.01)")
    flags = ["--cache", "--cluster", two_workers(tmp_path), "--workers", "2"]
    evaluate(path, *flags, "--limit", "8", "--out", "out.jsonl")
    ran = evaluate(path, *flags, "--out", "out.jsonl", "--resume")
    assert "8 already done" in ran.stderr
    assert sorted(calls()) == sorted(f"q{n}" for n in range(12))
    ran = evaluate(path, *flags, "--out", "again.jsonl")
    assert "12 answers served from the cache" in ran.stderr
    assert len(calls()) == len(results("again.jsonl")) == 12


def test_after_too_many_errors_no_case_is_started(write: Write) -> None:
    path = a_project(write, 200, "time.sleep(0.1); raise ValueError('no')")
    ran = evaluate(path, "--cluster", "local:2", "--workers", "2", "--max-errors", "3", "--out", "out.jsonl", expect=1)
    assert 3 <= len(results("out.jsonl")) <= 11
    assert len(calls()) == len(results("out.jsonl"))
    assert "stopped after" in ran.stderr
    assert "finished cases are saved; continue with --resume" in ran.stderr


def test_an_answer_of_any_kind_arrives(write: Write) -> None:
    path = a_project(write, 3, "return [None, object(), {'text': '\\ud800', 'x': float('nan')}][int(question[1:])]")
    evaluate(path, "--out", "here.jsonl", expect=1)
    evaluate(path, "--cluster", "local:2", "--out", "there.jsonl", expect=1)
    here, there = stable("here.jsonl"), stable("there.jsonl")
    assert [each.get("error") is None for each in here] == [each.get("error") is None for each in there]
    assert len(there) == 3


def test_an_idle_worker_takes_cases_from_others(write: Write) -> None:
    path = a_project(
        write, 24, "time.sleep(0.5 if int(question[1:]) < 12 else 0.01); open('pid-%d' % os.getpid(), 'a').write('.')"
    )
    evaluate(path, "--cluster", "local:2", "--workers", "1", "--out", "out.jsonl")
    slow = Counter({path.name: len(path.read_text()) for path in Path().glob("pid-*")})
    assert len(slow) == 2
    assert len(results("out.jsonl")) == 24


@pytest.mark.parametrize("flags", [[], ["--workers", "10"]])
def test_the_workers_limit_of_a_target_applies_to_the_whole_cluster(write: Write, flags: list[str]) -> None:
    with model_server(lambda _: "hello", seconds=0.05) as server:
        write("targets.yaml", json.dumps({"targets": [server.target("http", workers=3)]}))
        path = write("cases.jsonl", [cluster_case(n, evaluators=[ANY]) for n in range(60)])
        evaluate(path, "--cluster", "local:2", *flags, "--out", "out.jsonl")
        assert len(server.asked) == 60
        assert 2 <= server.most <= 3


def test_workers_beyond_the_targets_limit_are_kept_in_reserve(write: Write) -> None:
    path = a_project(write, 20, "time.sleep(0.05); open('pid-%d' % os.getpid(), 'a').write('.')", workers=1)
    evaluate(path, "--cluster", "local:2", "--workers", "4", "--out", "out.jsonl")
    assert len(list(Path().glob("pid-*"))) == 1
    assert len(results("out.jsonl")) == 20


@pytest.mark.parametrize(
    ("provider", "limit"), [("http", {"requests_per_minute": 600}), ("openai", {"tokens_per_minute": 600 * 18})]
)
def test_rate_limits_apply_to_the_whole_cluster(write: Write, provider: str, limit: dict[str, int]) -> None:
    moments: list[float] = []

    def answer(_: object) -> str:
        moments.append(time.monotonic())
        return "hello"

    with model_server(answer) as server:
        write("targets.yaml", json.dumps({"targets": [server.target(provider, **limit)]}))
        path = write("cases.jsonl", [cluster_case(n, evaluators=[ANY]) for n in range(80)])
        evaluate(path, "--cluster", "local:2", "--workers", "10", "--out", "out.jsonl")
    assert len(moments) == 80
    assert rate(moments) <= 10 * 1.05


def rate(moments: list[float]) -> float:
    """How many came in a second, in most stretches of so many: a few of them come late and close on a busy machine."""
    later = sorted(moments)[4:]  # each worker sends its first ones at once
    count = len(later) // 2
    return count / statistics.median(end - start for start, end in zip(later, later[count:], strict=False))


def test_limits_still_apply_after_a_worker_is_lost(write: Write) -> None:
    moments: list[float] = []

    def answer(_: object) -> str:
        moments.append(time.monotonic())
        return "hello"

    with model_server(answer) as server:
        write("targets.yaml", json.dumps({"targets": [server.target("http", requests_per_minute=600)]}))
        path = write("cases.jsonl", [cluster_case(n, evaluators=[ANY]) for n in range(100)])
        run = start(str(path), "--cluster", "local:2", "--workers", "4", "--out", "out.jsonl")
        wait_for_results(Path("out.jsonl"), 20)
        os.kill(children(run)[0], signal.SIGKILL)
        wait_until(lambda: run.poll() is not None)
        assert run.returncode == 0
    assert rate(moments) <= 10 * 1.05


def test_a_command_in_a_worker_ends_with_the_run(write: Write, nap: str) -> None:
    write("targets.yaml", target(f"{nap}; true"))
    path = write("cases.jsonl", [a_case("a", evaluators=[ANY])])
    evaluate(path, "--cluster", "local:1", "--agent-timeout", "1", "--out", "out.jsonl", expect=1)
    (result,) = results("out.jsonl")
    assert "1" in result["error"]
    assert result["failure"] == "timeout"
    wait_until(lambda: not living(nap))


FROM_PYTHON = """
import asyncio, agentv


async def main():
    prefix = "hello "
    async def answer(question):
        return prefix + question
    report = await agentv.evaluate("cases.jsonl", target=answer, cluster={cluster!r}, workers=2)
    print(len(report.results), report.summary.mean)

if __name__ == "__main__":
    asyncio.run(main())
"""


def test_a_function_can_be_evaluated_from_python(write: Write) -> None:
    a_project(write, 6)
    script = write("script.py", FROM_PYTHON.format(cluster="local:2"))
    ran = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False, timeout=200)
    assert ran.stdout.split() == ["6", "1.0"], ran.stderr


def test_a_function_is_not_sent_unencrypted(write: Write, tmp_path: Path) -> None:
    cluster = Cluster(tmp_path / "cluster")
    cluster.add()
    a_project(write, 6)
    script = write("script.py", FROM_PYTHON.format(cluster=cluster.url.replace("127.0.0.1", "127.1")))
    ran = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False, timeout=200)
    (line,) = [line for line in ran.stderr.splitlines() if line.startswith("agentv.errors.ConfigError: ")]
    assert "a Python function may contain secrets and is not sent unencrypted" in line


def test_progress_lines_show_the_cases_of_each_worker(write: Write) -> None:
    path = a_project(write, 80, "time.sleep(0.5)")
    ran = evaluate(path, "--cluster", "local:2", "--workers", "3", "--out", "out.jsonl")
    assert "3 workers each, on the cluster local:2" in ran.stderr
    found = re.findall(r"; 2 workers \(worker-1: (\d), worker-2: (\d) in flight\)", ran.stderr)
    assert len(found) >= 2
    assert max(count for counts in found for count in counts) <= "3"


def test_shards_of_a_run_can_be_run_on_a_cluster(write: Write, tmp_path: Path) -> None:
    path = a_project(write, 9, "pass")
    flags = ["--cluster", two_workers(tmp_path)]
    for number in (1, 2, 3):
        evaluate(path, "--shard", f"{number}/3", *flags, "--out", f"{number}.jsonl")
    found = [result for number in (1, 2, 3) for result in results(f"{number}.jsonl")]
    assert sorted(result["eval_id"] for result in found) == [f"c{n}" for n in range(9)]
    ran = agentv("merge", "1.jsonl", "2.jsonl", "3.jsonl", "--out", "all.jsonl")
    assert ran.returncode == 0, ran.stderr
    empty = write("one.jsonl", [cluster_case(0, evaluators=[ANY])])
    for number in (1, 2):
        evaluate(empty, "--shard", f"{number}/2", *flags, "--out", f"{number}.jsonl")
    assert sorted(len(results(f"{number}.jsonl")) for number in (1, 2)) == [0, 1]


def listening(pid: int) -> list[str]:
    """The addresses on which a process takes connections, as the kernel writes them."""
    inodes = set()
    for file in Path(f"/proc/{pid}/fd").iterdir():
        try:
            inodes.add(os.readlink(file))
        except FileNotFoundError:  # it was closed meanwhile
            continue
    found = []
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and f"socket:[{fields[9]}]" in inodes:
                found.append(fields[1].partition(":")[0])
    return found


LOOKED_AT = """time.sleep(0.2)
    while int(question[1:]) > 5 and not os.path.exists("looked-at"):
        time.sleep(0.02)"""
"""All but the first cases wait for a look at the process."""


def test_a_local_cluster_is_silent_and_private(write: Write) -> None:
    """Not even if another cluster uses the default port of Dask's dashboard."""
    path = a_project(write, 40, LOOKED_AT)
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with suppress(OSError):  # somebody has it already
            taken.bind(("0.0.0.0", 8787))
            taken.listen()
        run = start(str(path), "--cluster", "local:2", "--workers", "1", "--out", "out.jsonl")
        wait_for_results(Path("out.jsonl"), 2)
        assert set(listening(run.pid)) == {"0100007F"}  # 127.0.0.1
        write("looked-at", "")
        _, said = run.communicate(timeout=120)
    assert run.returncode == 0
    assert len(results("out.jsonl")) == 40
    own = r"running 40 cases .*|\d+/40 done, .*"
    assert [line for line in said.splitlines() if not re.fullmatch(own, line)] == []


def test_the_selection_is_the_same_on_every_worker(write: Write) -> None:
    write("targets.yaml", "targets: [{name: default, provider: mock, response: hello}]\n")
    cases = [
        a_case(str(number), tags=["odd"] * (number % 2), skip=number == 5, evaluators=[ANY]) for number in range(20)
    ]
    write("evals.jsonl", [*cases, a_case("bad", tags=["bad"], evaluators=[{"type": "contains", "value": "bye"}])])
    options = ("--filter", "tag:odd", "--sample", "6", "--seed", "3", "--require", "tag:odd")
    evaluate("evals.jsonl", *options, "--out", "here.jsonl")
    evaluate("evals.jsonl", *options, "--out", "there.jsonl", "--cluster", "local:2")
    assert [each["eval_id"] for each in stable("there.jsonl")] == [each["eval_id"] for each in stable("here.jsonl")]
    evaluate("evals.jsonl", "--out", "all.jsonl")
    evaluate("evals.jsonl", "--failed-in", "all.jsonl", "--out", "failed.jsonl", "--cluster", "local:1")
    assert [each["eval_id"] for each in results("failed.jsonl")] == ["bad"]
