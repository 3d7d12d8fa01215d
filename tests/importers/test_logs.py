"""Logs of Inspect and of lm-evaluation-harness become results that other commands can read."""

import json
from pathlib import Path
from typing import Any

import pytest

from agentv.results.answer_digest import text_digest
from tests.kits.foreign import a_document, a_log, a_sample, a_score
from tests.kits.imported import imported, refused, run_import
from tests.kits.project import Write, agentv


def test_a_sample_becomes_a_result_with_the_mean_of_its_scorers(write: Write) -> None:
    write("log.json", a_log(a_sample("france", metadata={"topic": "geo"}), a_sample(2, epoch=2)))
    said = run_import("log.json")
    assert said[:2] == ["detected format: inspect", "2 samples read, 2 results written, 0 skipped"]
    one, two = imported("log.json")
    evaluators = one.pop("evaluator_results")
    assert [(each["name"], each["score"], each["verdict"], each["reasoning"]) for each in evaluators] == [
        ("match", 1.0, "pass", "because"),
        ("includes", 0.0, "fail", "because"),
    ]
    del one["trace"], one["trace_summary"]
    assert one == {
        "timestamp": "2026-11-17T05:33:53.241566+00:00",
        "eval_id": "france",
        "dataset": "capitals",
        "target": "mockllm/model",
        "attempt": 1,
        "trial": 1,
        "score": 0.5,
        "verdict": "fail",
        "hits": [],
        "misses": [],
        "question": "Capital of France?",
        "reference_answer": "Paris",
        "candidate_answer": "Paris",
        "answer_digest": text_digest("Paris"),
        "stop_reason": "stop",
        "execution_metrics": {"token_usage": {"input": 14, "output": 3, "cached": 4}, "duration_ms": 319.0},
        "metadata": {"topic": "geo"},
    }
    assert (two["eval_id"], two["trial"]) == ("2", 2)


def test_tool_calls_conversations_attachments_and_several_targets(write: Write) -> None:
    call = {"id": "c1", "function": "add", "arguments": {"a": 2}}
    messages = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "attachment://long"}]},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "content": "5", "tool_call_id": "c1", "function": "add", "error": {"type": "timeout"}},
        {
            "role": "assistant",
            "content": [{"type": "reasoning", "reasoning": "x"}, {"type": "text", "text": "It is 5"}],
        },
    ]
    sample = a_sample("a", messages=messages, input=messages[:2], target=["5", "five"], attachments={"long": "2+3?"})
    sample["output"]["choices"][0]["stop_reason"] = "max_tokens"
    write("log.json", a_log(sample))
    (result,) = imported("log.json")
    assert result["question"] == "@[System]:\nBe brief.\n\n@[User]:\n2+3?"
    assert (result["reference_answer"], result["stop_reason"]) == ("5\nfive", "length")
    assert result["trace"] == [
        {"type": "tool_call", "id": "c1", "name": "add", "input": {"a": 2}},
        {"type": "tool_result", "id": "c1", "name": "add", "output": "5", "metadata": {"is_error": True, "error": {"type": "timeout"}}},
        {"type": "message", "text": "It is 5"},
    ]  # fmt: skip
    assert result["trace_summary"]["toolCallsByName"] == {"add": 1}


def test_values_of_scorers(write: Write) -> None:
    values: list[Any] = ["C", "I", "P", "N", 1, 0.25, True, "yes", "0.5", {"a": 1, "b": 0}, [1, 1]]
    write("log.json", a_log(*(a_sample(number, scores={"s": a_score(value)}) for number, value in enumerate(values))))
    assert [result["score"] for result in imported("log.json")] == [1, 0, 0.5, 0, 1, 0.25, 1, 1, 0.5, 0.5, 1]


def test_scores_outside_of_0_to_1_are_skipped_and_reported(write: Write) -> None:
    scores = {"grade": a_score(7), "odd": a_score("seven"), "match": a_score("C")}
    write("log.json", a_log(a_sample("a", scores=scores), a_sample("b", scores={"grade": a_score(7)})))
    said = run_import("log.json")
    assert "the scorer 'grade' gives 7, which is not between 0 and 1; skipped" in said
    assert "the scorer 'odd' gives seven, which is not between 0 and 1; skipped" in said
    one, two = imported("log.json")
    assert (one["score"], len(one["evaluator_results"])) == (1.0, 1)
    assert (two["score"], two["failure"], two["misses"]) == (0.0, "judge", ["no score between 0 and 1"])


def test_nan_means_not_scored_in_inspect_logs(write: Write) -> None:
    log = a_log(a_sample("a", scores={"match": a_score(float("nan"))}), a_sample("b"))
    assert "NaN" in log
    write("log.json", log)
    one, two = imported("log.json")
    assert (one["failure"], two["score"]) == ("judge", 0.5)


def test_a_sample_that_failed_keeps_its_error(write: Write) -> None:
    error = {"message": "it broke", "traceback": "Traceback: ...", "traceback_ansi": ""}
    sample = a_sample(
        "a", error=error, scores={}, output={"choices": [], "completion": ""}, limit={"type": "token", "limit": 5}
    )
    write("log.json", a_log(sample))
    (result,) = imported("log.json")
    assert (result["error"], result["error_details"], result["failure"]) == ("it broke", "Traceback: ...", "target")
    assert result["note"] == "the sample was stopped at its limit: token"


@pytest.mark.parametrize(
    "content", ["Rome", [{"type": "reasoning", "reasoning": "x"}, {"type": "text", "text": "Rome"}]]
)
def test_an_answer_in_the_first_choice_only(write: Write, content: Any) -> None:
    output = {"choices": [{"message": {"role": "assistant", "content": content}, "stop_reason": "stop"}]}
    write("log.json", a_log(a_sample("a", output=output)))
    (result,) = imported("log.json")
    assert result["candidate_answer"] == "Rome"


def test_show_compare_report_and_export_read_what_was_imported(write: Write) -> None:
    for name, value in (("a", "I"), ("b", "C")):
        samples = [
            a_sample(f"s{number}", epoch, scores={"match": a_score(value)}) for number in range(3) for epoch in (1, 2)
        ]
        write(f"{name}.json", a_log(*samples))
        run_import(f"{name}.json", "--out", f"{name}.jsonl")
    assert "s0, trial 1: 0.000 fail (capitals, target mockllm/model)" in agentv("show", "a.jsonl").stdout
    compared = agentv("compare", "a.jsonl", "b.jsonl")
    assert json.loads(compared.stdout)["summary"]["wins"] == 3
    assert agentv("report", "a.jsonl", "b.jsonl", "--out", "r.html").returncode == 0
    exported = agentv("export", "b.jsonl", "--to", "csv").stdout.splitlines()
    assert exported[1] == (
        "s0,capitals,mockllm/model,1,1.0,pass,,,Capital of France?,Paris,Paris,,319.0,14,3,1.0,5dd272b4f316b776"
    )


@pytest.mark.parametrize(
    ("content", "code", "message"),
    [
        (a_log(), 1, "log.json: nothing could be imported"),
        (a_log(a_sample("a"), a_sample("a")), 2, "log.json: duplicate id 'a', trial 1: sample 1 and sample 2"),
        (a_log(a_sample("a"))[:-200], 2, "log.json: not an Inspect log in JSON: the document is truncated"),
        ('{"eval_id": 1, "x": {}}', 2, "log.json: missing 'eval': not an Inspect log (fields: 'eval_id', 'x')"),
        ("[1]", 2, "log.json: not an Inspect log in JSON: not a JSON object"),
        (a_log(a_sample("a", epoch="one")), 2, "log.json: sample 1 cannot be read: Expected `int`, got `str` - at `$.epoch`"),
    ],
    ids=range(6),
)  # fmt: skip
def test_logs_that_cannot_be_imported(write: Write, content: str, code: int, message: str) -> None:
    write("log.json", content)
    assert f"error: {message}" in refused("log.json", "--from", "inspect", expect=code)


# ---- lm-evaluation-harness ----


def test_samples_of_lm_eval_become_results(write: Write) -> None:
    flexible = a_document(0, filter="flexible-extract", filtered_resps=["41"], exact_match=0.0)
    path = write(
        "out/my__model/samples_gsm8k_2026-11-17T05-33-52.123456.jsonl",
        [a_document(0), flexible, a_document(1, filter="none")],
    )
    said = run_import(path, "--out", "o.jsonl")
    assert said[:2] == ["detected format: lm-eval", "3 samples read, 3 results written, 0 skipped"]
    one, two, three = imported(path, "--out", "o.jsonl")
    assert [result["eval_id"] for result in (one, two, three)] == ["0-strict-match", "0-flexible-extract", "1"]
    assert (one["dataset"], one["target"], one["question"]) == ("gsm8k", "my__model", "Q: 6*7?\nA:")
    assert (one["candidate_answer"], one["reference_answer"], one["score"], one["verdict"]) == ("42", "42", 1.0, "pass")
    assert (two["candidate_answer"], two["score"]) == ("41", 0.0)
    assert agentv("show", "o.jsonl").returncode == 0


def test_a_multiple_choice_is_answered_by_the_most_likely_text(write: Write) -> None:
    arguments = {
        f"gen_args_{number}": {"arg_0": "Capital?", "arg_1": f" {name}"}
        for number, name in enumerate(("Oslo", "Paris"))
    }
    sample = a_document(0, target="1", arguments=arguments, filter="none", metrics=["acc", "acc_norm", "perplexity"])
    sample |= {
        "resps": [[["-3.5", "False"]], [["-0.5", "True"]]],
        "filtered_resps": [["-3.5", "False"], ["-0.5", "True"]],
    }
    write("s.jsonl", [sample | {"acc": 1.0, "acc_norm": 0.0, "perplexity": 11.5}])
    said = run_import("s.jsonl")
    assert "the metric 'perplexity' is not between 0 and 1 and is skipped" in said
    (result,) = imported("s.jsonl")
    assert (result["candidate_answer"], result["reference_answer"], result["score"]) == ("Paris", "Paris", 0.5)
    assert (result["dataset"], result["target"]) == ("s", "lm-eval")


def test_older_samples_have_lists_of_arguments_and_name_no_metrics(write: Write) -> None:
    sample = a_document(0, arguments=[["Q?", {"until": []}]])
    for name in ("metrics", "filter"):
        del sample[name]
    write("s.jsonl", [sample])
    (result,) = imported("s.jsonl")
    assert (result["eval_id"], result["question"], result["score"]) == ("0", "Q?", 1.0)


def test_invalid_samples(write: Write) -> None:
    write("s.jsonl", [a_document(0), {"doc": 1}])
    assert refused("s.jsonl").startswith("error: s.jsonl:2: missing 'doc_id': not a sample of lm-eval")
    write("s.jsonl", [a_document(0), a_document(0)])
    assert "duplicate id '0-strict-match': line 1 and line 2" in refused("s.jsonl")
    write("s.jsonl", [{"a": 1}])
    assert "missing 'doc_id': not a sample of lm-eval" in refused("s.jsonl", "--from", "lm-eval")
    assert not Path("s-results.jsonl").exists()
