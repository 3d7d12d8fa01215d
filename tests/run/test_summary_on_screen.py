"""The summary of `agentv eval`: failures, durations and groups."""

import json
import re
from pathlib import Path
from typing import Any

from tests.kits.project import Write, a_case, agentv, flat

AGENT = """

def answer(question):
    if question == "empty":
        return " "
    if question == "crash":
        raise ValueError("no")
    if question == "noted":
        return {"text": "good", "note": "the agent did not exit after its answer"}
    if question == "cut":
        return {"text": "It is the", "stop_reason": "length", "cost_usd": 0.5, "duration_ms": 90_000,
                "token_usage": {"input": 12_000, "output": 34}}
    return {"text": question, "duration_ms": 2000, "token_usage": {"input": 10, "output": 5}, "cost_usd": 0.25}
"""
TARGETS = 'targets:\n- {name: default, provider: python, function: "agent.py:answer"}\n'


def project(write: Write, cases: list[dict[str, Any]]) -> Path:
    write("agent.py", AGENT)
    write("targets.yaml", TARGETS)
    return write("a.jsonl", cases)


def asked(id_: str, question: str, **more: Any) -> dict[str, Any]:
    check = {"type": "contains", "value": "good"}
    return a_case(id_, input=question, input_messages=None, **({"evaluators": [check]} | more))


def shown(path: Path, *args: str, expect: int = 0) -> str:
    ran = agentv("eval", path, "--quiet", *args)
    assert ran.returncode == expect, ran.stderr
    return ran.stdout


def section(text: str, title: str) -> list[str]:
    """The lines below a title, up to the next empty one."""
    lines = text.splitlines()
    start = next(at for at, line in enumerate(lines) if line.startswith(title))
    return lines[start : lines.index("", start)]


def test_the_worst_failures_are_shown_with_the_command_to_see_all(write: Write) -> None:
    path = project(write, [asked(f"case-{n}", f"bad {n}") for n in range(7)] + [asked("fine", "good")])
    text = shown(path, "--out", "my results.jsonl")
    assert text.index("FAILURES") < text.index("TOP")
    assert section(text, "FAILURES")[:4] == [
        "FAILURES (the worst of 7 cases)",
        "  0.000  case-0",
        "         - contains: does not contain 'good'",
        "         answer: bad 0",
    ]
    assert [line for line in section(text, "FAILURES") if line.startswith("  0.")] == [
        f"  0.000  case-{n}" for n in range(5)
    ]
    assert section(text, "FAILURES")[-1] == "  show all: agentv show 'my results.jsonl' --failed"


def test_breaks_a_long_command_so_that_it_can_be_pasted(write: Write) -> None:
    path = project(write, [asked("a", "bad")])
    file = "results/of/a/very/deep/folder/with/long/names.jsonl"
    text = shown(path, "--out", file)
    assert section(text, "FAILURES")[-2:] == ["  show all: agentv show --failed \\", f"    {file}"]
    assert all(len(line) <= 60 for line in section(text, "FAILURES"))


def test_errors_and_passes_are_not_failures(write: Write) -> None:
    path = project(write, [asked("broken", "crash"), asked("fine", "good")])
    assert "FAILURES" not in shown(path, expect=1)


def test_a_failure_is_safe_to_print_and_has_no_secret(write: Write) -> None:
    write(".env", "MY_TOKEN=hush-hush-hush\n")
    path = project(write, [asked("a", "red \x1b[31m\nFAILURES (0) " + "x" * 85 + " hush-hush-hush")])
    text = shown(path)
    assert "\x1b" not in text
    assert "hush" not in text
    assert "\n         answer: red \\x1b[31m FAILURES (0) xxxxxxxxxxxxxxxx…\n" in text


def test_the_worst_trial_represents_its_case(write: Write) -> None:
    path = project(write, [asked("a", "bad"), asked("b", "bad too")])
    text = shown(path, "--trials", "2")
    assert section(text, "FAILURES")[0] == "FAILURES (the worst of 4 runs)"
    assert [line for line in section(text, "FAILURES") if "trial" in line] == [
        "  0.000  a, trial 1",
        "  0.000  b, trial 1",
    ]


def test_a_resumed_run_summarizes_earlier_results_too(write: Write) -> None:
    path = project(write, [asked("a", "bad", metadata={"topic": "x"}), asked("b", "cut"), asked("c", "empty")])
    once = shown(path, "--out", "o.jsonl", "--by", "topic")
    again = shown(path, "--out", "o.jsonl", "--by", "topic", "--resume")
    assert "3 planned = 3 already done" in again
    assert once.partition("\n  mean")[2] == again.partition("\n  mean")[2]


def test_notes_and_truncated_answers_are_counted_separately(write: Write) -> None:
    path = project(write, [asked("a", "noted"), asked("b", "cut"), asked("c", "good")])
    text = shown(path, "--out", "o.jsonl")
    assert "  1 answer was cut off at the token limit\n  1 result has a note: see 'agentv show'\n" in text
    again = shown(path, "--out", "o.jsonl", "--resume")
    assert "  1 result has a note: see 'agentv show'\n" in again


def test_the_duration_of_answers(write: Write) -> None:
    path = project(write, [asked("a", "good"), asked("b", "cut"), asked("c", "good too"), asked("d", "empty")])
    text = shown(path, "--out", "o.jsonl")
    assert "tokens 12,020 input, 44 output (reported for 3 of 4 answers)" in flat(text)
    assert "  cost $1.0000 (reported for 3 of 4 answers)\n" in text
    assert re.search(r"  duration p50 2\.0 s, p95 76\.8 s\n", text)
    assert "  1 answer is empty\n  1 answer was cut off at the token limit\n" in text
    cut = json.loads(Path("o.jsonl").read_text().splitlines()[1])
    assert (cut["stop_reason"], cut["note"]) == ("length", "the answer was cut off at the token limit")


def test_sections_without_content_are_omitted(write: Write) -> None:
    text = shown(project(write, [asked("a", "good")]))
    assert "  1 planned = 1 scored\n" in text
    assert not any(word in text for word in ("empty", "cut off", "EVALUATORS", "BY", "FAILURES", "target error"))


def test_each_evaluator_has_its_figures(write: Write) -> None:
    checks = [{"type": "contains", "value": "good"}, {"type": "contains", "value": "b", "name": "has a b"}]
    broken = {"type": "code_judge", "name": "broken", "script": "false"}
    path = project(write, [asked("a", "bad", evaluators=checks), asked("b", "good", evaluators=[*checks, broken])])
    assert section(shown(path, expect=1), "EVALUATORS") == [
        "EVALUATORS",
        "  name      n  mean   pass  failed",
        "  contains  2  0.500  1/2   0",
        "  has a b   2  0.500  1/2   0",
        "  broken    0         0/0   1",
    ]


def test_figures_by_group(write: Write) -> None:
    cases = [asked(f"g{n}", "good" if n else "bad", metadata={"topic": "geo", "level": 1}) for n in range(4)]
    cases += [asked("m", "bad", metadata={"topic": "a topic with a name that takes a line of its own"})]
    path = project(write, [*cases, asked("none", "good")])
    assert section(shown(path, "--by", "topic"), "BY") == [
        "BY topic",
        "  name        n  mean   95% interval    pass  95% interval",
        "  geo         4  0.750  0.000 to 1.000  3/4   0.301 to 0.954",
        "  a topic with a name that takes a line of its own",
        "              1  0.000  one case        0/1   0.000 to 0.793",
        "  (no topic)  1  1.000  one case        1/1   0.207 to 1.000",
    ]
    assert section(shown(path, "--by", "dataset"), "BY")[2].split()[:3] == ["a", "6", "0.667"]
    assert section(shown(path, "--by", "target", "--trials", "2"), "BY")[2].split()[:3] == ["default", "6", "0.667"]
    assert section(shown(path, "--by", "level"), "BY")[2].split()[:3] == ["1", "4", "0.750"]


def test_keys_are_crossed(write: Write) -> None:
    checks = [{"type": "contains", "value": "good"}, {"type": "contains", "value": "o", "name": "has an o"}]
    metadata = {"segment": "web"}
    cases = [asked(f"w{n}", "good", metadata=metadata, vars={"tone": "rude"}, evaluators=checks) for n in range(2)]
    path = project(write, [*cases, asked("x", "bo", vars={"tone": "polite"}, evaluators=checks)])
    table = section(shown(path, "--by", "segment", "--by", "evaluator"), "BY")
    assert table[0] == "BY segment, evaluator"
    assert [line.split("  ")[1] for line in table[2:] if line.startswith(("  web", "  ("))] == [
        "web / contains",
        "web / has an o",
        "(no segment) / contains",
        "(no segment) / has an o",
    ]
    assert section(shown(path, "--by", "vars.tone"), "BY")[2].split()[:3] == ["rude", "2", "1.000"]


def test_a_key_that_no_result_has(write: Write) -> None:
    path = project(write, [asked("a", "good", metadata={"topic": "geo"})])
    assert section(shown(path, "--by", "topik"), "BY") == [
        "BY topik",
        "  no result has 'topik' (did you mean 'topic'?)",
    ]
    crossed = section(shown(path, "--by", "topic", "--by", "topik"), "BY")
    assert crossed[1] == "  no result has 'topik' (did you mean 'topic'?)"
    assert crossed[3].startswith("  geo / (no topik)")


def test_a_long_list_of_groups_is_shortened(write: Write) -> None:
    path = project(write, [asked(f"c{n}", "good", conversation_id=str(n)) for n in range(60)])
    lines = section(shown(path, "--by", "conversation_id"), "BY")
    assert len(lines) == 53
    assert lines[-1] == "  and 10 more groups of the same size or smaller"


def test_equal_scores_have_no_interval(write: Write) -> None:
    text = shown(project(write, [asked("a", "good"), asked("b", "good")]))
    assert "  mean 1.000 (no interval: all scores are equal)\n" in text


def test_everything_fits_sixty_columns(write: Write) -> None:
    """Long lines break between words, never inside a number."""
    cases = [asked(f"case-{n}", q, metadata={"t": n % 2}) for n, q in enumerate(["bad", "cut", "empty", "crash"] * 5)]
    path = project(write, [*cases, {"id": "invalid"}])
    text = shown(path, "--by", "t", "--trials", "3", "--out", "o.jsonl", expect=1)
    summary = text[text.index("SUMMARY") :]
    assert [line for line in summary.splitlines() if len(line) > 60] == []
    assert "= 45 scored + 15 target errors + 3 invalid mean" in flat(summary)


def test_reasoning_tokens_are_shown_separately(write: Write) -> None:
    write(
        "agent.py",
        """
def answer(question):
    usage = {"input": 10, "output": 50, "reasoning": 40}
    return {"text": "hello", "token_usage": usage, "ttft_ms": 12.5, "stop_reason": "max_tokens"}
""",
    )
    write("targets.yaml", "targets: [{name: default, provider: python, function: agent.py:answer}]")
    path = write("a.jsonl", [a_case(evaluators=[{"type": "contains", "value": "hello"}])])
    text = shown(path, "--out", "o.jsonl")
    assert "  tokens 10 input, 50 output, 40 of them reasoning\n" in text
    assert "  1 answer was cut off at the token limit\n" in text
    result = json.loads(Path("o.jsonl").read_text())
    assert result["execution_metrics"]["ttft_ms"] == 12.5
    assert (result["stop_reason"], result["note"]) == ("length", "the answer was cut off at the token limit")


def test_omits_rankings_when_no_case_was_scored(write: Write) -> None:
    path = project(write, [asked("a", "crash"), asked("b", "crash")])
    text = shown(path, expect=1)
    assert "ERRORS (2)" in text
    assert "2 planned = 2 target errors" in text
    assert not any(title in text for title in ("DISTRIBUTION", "TOP", "BOTTOM", "FAILURES"))
