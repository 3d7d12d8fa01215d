"""Results for pages to show: realistic ones, and one of each difficult kind."""

import base64
import json
import random
import re
import zlib
from pathlib import Path
from typing import Any

HEBREW = "שלום עולם: זוהי תשובה ארוכה בעברית, עם מספר 42 ומילה English באמצע."
CODE = "Here is the loop:\n\n```python\nfor i in range(10):\n    if i % 2:\n        print(i)\n```\n\nIt prints the odd numbers."
TABLE = "The figures:\n\n| city   | people |\n| ------ | -----: |\n| Oslo   | 709037 |\n| Paris  | 2102650 |\n\nThat is all."
WORDS = [
    "the",
    "model",
    "answers",
    "a",
    "question",
    "about",
    "cities",
    "and",
    "rivers",
    "with",
    "care",
    "and",
    "names",
    "its",
    "sources",
    "in",
    "one",
    "short",
    "sentence",
]
QUESTIONS = ["What is the capital of {}?", "Which river flows through {}?", "How many people live in {}?"]
PLACES = ["France", "Norway", "Japan", "Kenya", "Peru", "Canada", "Egypt", "India", "Chile", "Fiji"]


def a_result(eval_id: str, score: float = 1.0, **fields: Any) -> dict[str, Any]:
    """A result as `agentv eval` writes it."""
    verdict = "pass" if score >= 0.8 else "borderline" if score >= 0.6 else "fail"
    part = {"name": "correct", "type": "llm_judge", "score": score, "weight": 1.0, "verdict": verdict}
    part |= {
        "hits": ["names the city"] if score > 0.5 else [],
        "misses": ["does not give a source"] if score < 1 else [],
    }
    result = {
        "timestamp": "2026-11-16T03:00:00.000Z",
        "eval_id": eval_id,
        "dataset": "capitals",
        "target": "default",
        "attempt": 1,
        "score": score,
        "verdict": verdict,
        "hits": part["hits"],
        "misses": part["misses"],
        "reasoning": "The answer is judged by what it names.",
        "candidate_answer": f"The answer to {eval_id}.",
        "evaluator_results": [part | {"reasoning": "The answer is judged by what it names."}],
        "execution_metrics": {"duration_ms": 812.5, "cost_usd": 0.0021, "token_usage": {"input": 320, "output": 45}},
        "digests": {"case": "c" * 12, "target": "a" * 12, "evaluators": "e" * 12, "agentv": "0.1.0"},
        "run_id": "20261116-030000-ab12",
        "question": f"What is {eval_id}?",
        "expected_outcome": "Names the city and a source.",
        "file": "evals/capitals.yaml",
        "line": 12,
    }
    return result | fields


def an_error(eval_id: str, error: str = "the command exited with 3: no such model", **fields: Any) -> dict[str, Any]:
    blank: dict[str, Any] = {
        "candidate_answer": "",
        "evaluator_results": [],
        "hits": [],
        "misses": [],
        "reasoning": None,
        "execution_metrics": {},
    }
    return a_result(eval_id, 0.0, **{"error": error, "failure": "target", **blank, **fields})


def a_run(count: int, seed: int = 0, better: float = 0.0, trials: int = 1) -> list[dict[str, Any]]:
    """Results that are like those of a real run."""
    return [
        _typical(number, trial, random.Random(f"{seed} {number} {trial}"), better, trials)
        for number in range(count)
        for trial in range(1, trials + 1)
    ]


def _typical(number: int, trial: int, dice: random.Random, better: float, trials: int) -> dict[str, Any]:
    place = PLACES[number % len(PLACES)]
    hard = random.Random(number).random()
    score = min(1.0, max(0.0, round(1.15 - hard * 0.7 + dice.gauss(better, 0.15), 2)))
    name = f"{place.lower()}-{number:03}"
    parts = []
    for kind, weight, shift in (("correct", 2.0, 0.0), ("cites-a-source", 1.0, -0.25), ("polite", 0.5, 0.3)):
        own = min(1.0, max(0.0, round(score + shift + dice.gauss(0, 0.1), 2)))
        verdict = "pass" if own >= 0.8 else "borderline" if own >= 0.6 else "fail"
        parts.append(
            {"name": kind, "type": "llm_judge", "score": own, "weight": weight, "verdict": verdict}
            | {"hits": [f"is {kind}"] if own > 0.5 else [], "misses": [] if own > 0.8 else [f"is not {kind} enough"]}
            | {"reasoning": f"It is {kind} to {own:.0%}: " + " ".join(dice.choices(WORDS, k=18)) + "."}
        )
    more: dict[str, Any] = {"trial": trial} if trials > 1 else {}
    if dice.random() < 0.03:
        errors = ["HTTP 529: overloaded", "the agent gave no answer within 600 s"]
        kind = dice.choice(errors)
        return an_error(name, kind, question=QUESTIONS[number % 3].format(place), **more)
    metrics = {
        "duration_ms": round(dice.lognormvariate(7, 0.6), 1),
        "cost_usd": round(dice.lognormvariate(-6, 0.5), 5),
        "token_usage": {"input": 300 + number % 50, "output": dice.randint(20, 400)},
    }
    answer = f"{place}: " + " ".join(dice.choices(WORDS, k=dice.randint(15, 80))) + "."
    return a_result(
        name,
        score,
        timestamp=f"2026-11-16T03:{number // 60 % 60:02}:{number % 60:02}.000Z",
        question=QUESTIONS[number % 3].format(place),
        candidate_answer=answer,
        evaluator_results=parts,
        execution_metrics=metrics,
        **more,
    )


def a_trace(steps: int) -> list[dict[str, Any]]:
    dice = random.Random(steps)
    events: list[dict[str, Any]] = []
    clock = 0.0
    for number in range(steps):
        kind = ["model_step", "tool_call", "tool_result"][number % 3]
        clock += dice.lognormvariate(0, 0.8)
        event: dict[str, Any] = {"type": kind, "timestamp": f"2026-11-16T03:{int(clock) // 60:02}:{clock % 60:06.3f}Z"}
        if kind == "model_step":
            event["text"] = "I should look at " + " ".join(dice.choices(WORDS, k=12))
        else:
            event["name"] = dice.choice(["Read", "Bash", "search_web", "Edit"])
        if kind == "tool_call":
            event["input"] = {"path": f"src/file_{number}.py", "lines": [1, 200]}
        if kind == "tool_result":
            event["output"] = "\n".join(" ".join(dice.choices(WORDS, k=10)) for _ in range(30))
            event["metadata"] = {"is_error": number % 30 == 2}
        events.append(event)
    return events


def hard_ones() -> list[dict[str, Any]]:
    """One of each kind that is hard to show."""
    long = "\n\n".join(f"Paragraph {n}. " + " ".join(WORDS) + "." for n in range(1, 400))
    turns = "@[System]:\nYou are patient.\n\n@[User]:\nWhat is the capital of France?\n\n@[Assistant]:\nParis.\n\n@[User]:\nThanks!"
    return [
        a_result("very-long-answer", 0.4, candidate_answer=long, question=long[:3000]),
        a_result("right-to-left", 0.9, candidate_answer=HEBREW + "\n\nAnd a line in English.", question=HEBREW),
        a_result(
            "code", 1.0, candidate_answer=CODE, question=turns, reference_answer="Uses range and prints 1, 3, 5, 7, 9."
        ),
        a_result("table", 0.7, candidate_answer=TABLE),
        a_result("json", 0.2, candidate_answer=json.dumps({"city": "Oslo", "people": 709037, "tags": ["a", "b"]})),
        a_result(
            "two-hundred-steps",
            0.6,
            trace=a_trace(200),
            trace_summary={
                "eventCount": 200,
                "toolNames": ["Read"],
                "toolCallsByName": {"Read": 70, "Bash": 63},
                "errorCount": 3,
            },
        ),
        a_result("cut-off", 0.5, stop_reason="length", note="the answer was cut off at the token limit"),
        an_error(
            "no-answer",
            "Traceback: " + "x" * 30,
            error_details='Traceback (most recent call last):\n  File "agent.py", line 3\nValueError: no',
        ),
        a_result("an-id-that-is-very-long-" + "and-goes-on-" * 12, 0.85),
    ]


def save_results(path: Path, results: list[dict[str, Any]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(each, ensure_ascii=False) + "\n" for each in results), encoding="utf-8")
    return path


def meta_of(path: str) -> Any:
    """Return the data that a page shows first."""
    found = re.search(r'<script type="application/json" id="meta">(.*?)</script>', Path(path).read_text(), re.DOTALL)
    assert found is not None
    return json.loads(found[1])


def page_content(path: str) -> bytes:
    """Return a page with the content of its compressed blocks."""
    page = Path(path).read_text()
    blocks = re.findall(r'<script type="application/octet-stream" id="[^"]*">([^<]+)</script>', page)
    assert blocks
    return page.encode() + b"".join(zlib.decompress(base64.b64decode(block)) for block in blocks)
