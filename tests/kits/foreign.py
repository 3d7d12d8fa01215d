"""Files of other tools, in their formats."""

import json
from typing import Any

SESSION = "2124b8d9-7625-45d2-8d5e-0b9e788d0cc2"


def at(second: float) -> str:
    return f"2026-11-17T05:34:{second:06.3f}Z"


class Claude:
    """Writes records of a session of Claude Code."""

    def __init__(self, session: str = SESSION):
        self._common = {"sessionId": session, "version": "2.1.197", "isSidechain": False, "userType": "external"}
        self.records: list[dict[str, Any]] = []

    def _add(self, second: float, **fields: Any) -> None:
        uuid = f"uuid-{len(self.records)}-{self._common['sessionId']}"
        self.records.append({**self._common, "uuid": uuid, "timestamp": at(second), **fields})

    def user(self, second: float, content: Any, **fields: Any) -> None:
        self._add(second, type="user", message={"role": "user", "content": content}, **fields)

    def says(self, second: float, id_: str, block: dict[str, Any], output: int = 40, **fields: Any) -> None:
        usage = {
            "input_tokens": 12,
            "cache_creation_input_tokens": 100,
            "cache_read_input_tokens": 50,
            "output_tokens": output,
        }
        message = {"id": id_, "type": "message", "role": "assistant", "content": [block], "usage": usage}
        self._add(second, type="assistant", message=message, **fields)

    def gave(self, second: float, id_: str, content: Any, is_error: bool = False) -> None:
        block = {"type": "tool_result", "tool_use_id": id_, "content": content, "is_error": is_error}
        self.user(second, [block])

    def other(self, **fields: Any) -> None:
        self.records.append({"sessionId": self._common["sessionId"], **fields})


def text(value: str) -> dict[str, Any]:
    return {"type": "text", "text": value}


def use(id_: str, command: str) -> dict[str, Any]:
    return {"type": "tool_use", "id": id_, "name": "Bash", "input": {"command": command}}


def a_session() -> Claude:
    claude = Claude()
    claude.other(type="queue-operation", operation="enqueue", content="look")
    claude.user(0, "please look")
    claude.says(1, "msg_1", {"type": "thinking", "thinking": "let me think", "signature": "x"}, output=1)
    claude.says(1, "msg_1", text("I lo"), output=5)
    claude.says(2, "msg_1", text("I look."), output=20)
    claude.says(2, "msg_1", use("t1", "echo hello"))
    claude.says(2, "msg_1", use("t1", "echo hello"))
    claude.gave(3, "t1", "hello")
    claude.says(3, "msg_2", use("t2", "cat nothing"))
    claude.gave(4, "t2", [text("no such file")], is_error=True)
    claude.says(5, "msg_3", text("Done."))
    return claude


ROLLOUT = [
    {"type": "session_meta", "timestamp": at(0), "payload": {"id": "thread-1", "cwd": "/x"}},
    {"type": "event_msg", "timestamp": at(1), "payload": {"type": "task_started"}},
    {"type": "response_item", "timestamp": at(1), "payload": {"type": "message", "role": "developer", "content": []}},
    {"type": "response_item", "timestamp": at(1), "payload": {"type": "message", "role": "user", "content": []}},
    {"type": "turn_context", "timestamp": at(1), "payload": {"model": "gpt-5"}},
    {"type": "response_item", "timestamp": at(2), "payload": {"type": "reasoning", "id": "r", "summary": []}},
    {"type": "event_msg", "timestamp": at(2), "payload": {"type": "agent_message", "message": "I look."}},
    {
        "type": "response_item",
        "timestamp": at(2),
        "payload": {"type": "message", "id": "m1", "role": "assistant", "content": [{"type": "output_text", "text": "I look."}]},
    },
    {
        "type": "response_item",
        "timestamp": at(2),
        "payload": {"type": "function_call", "name": "exec_command", "arguments": '{"cmd": "echo hi"}', "call_id": "c1"},
    },
    {
        "type": "response_item",
        "timestamp": at(3),
        "payload": {"type": "function_call_output", "call_id": "c1", "output": '{"output":"hi","metadata":{"exit_code":1}}'},
    },
    {
        "type": "event_msg",
        "timestamp": at(3),
        "payload": {"type": "token_count", "info": {"total_token_usage": {"input_tokens": 100, "cached_input_tokens": 20, "output_tokens": 30}}},
    },
    {
        "type": "response_item",
        "timestamp": at(4),
        "payload": {"type": "message", "id": "m2", "role": "assistant", "content": [{"type": "output_text", "text": "Done."}]},
    },
    {
        "type": "event_msg",
        "timestamp": at(4),
        "payload": {"type": "token_count", "info": {"total_token_usage": {"input_tokens": 200, "cached_input_tokens": 40, "output_tokens": 60}}},
    },
    {"type": "event_msg", "timestamp": at(5), "payload": {"type": "task_complete", "last_agent_message": "Done."}},
]  # fmt: skip


EVAL = {
    "eval_id": "e",
    "run_id": "r",
    "created": "2026-11-17T05:33:52+00:00",
    "task": "capitals",
    "model": "mockllm/model",
}


def a_score(value: Any) -> dict[str, Any]:
    return {"value": value, "answer": "x", "explanation": "because", "history": []}


def a_sample(id_: Any, epoch: Any = 1, **fields: Any) -> dict[str, Any]:
    choice = {"message": {"role": "assistant", "content": "Paris"}, "stop_reason": "stop"}
    return {
        "id": id_,
        "epoch": epoch,
        "input": "Capital of France?",
        "target": "Paris",
        "messages": [{"role": "user", "content": "Capital of France?"}, {"role": "assistant", "content": "Paris"}],
        "output": {"model": "mockllm/model", "choices": [choice], "completion": "Paris"},
        "scores": {"match": a_score("C"), "includes": a_score("I")},
        "metadata": {},
        "events": [{"event": "model", "text": 'a "quoted" } ] bracket \\" {'}],
        "model_usage": {"mockllm/model": {"input_tokens": 10, "output_tokens": 3, "input_tokens_cache_read": 4}},
        "completed_at": "2026-11-17T05:33:53.241566+00:00",
        "total_time": 0.319,
        "attachments": {},
        **fields,
    }


def a_log(*samples: dict[str, Any], **fields: Any) -> str:
    log = {"version": 2, "status": "success", "eval": EVAL, "plan": {}, "samples": list(samples), "stats": {}}
    return json.dumps(log | fields, indent=2)


def a_document(doc_id: int, **fields: Any) -> dict[str, Any]:
    return {
        "doc_id": doc_id,
        "doc": {"question": "6*7?"},
        "target": "42",
        "arguments": {"gen_args_0": {"arg_0": "Q: 6*7?\nA:", "arg_1": {"until": ["\n"]}}},
        "resps": [["It is 42."]],
        "filtered_resps": ["42"],
        "filter": "strict-match",
        "metrics": ["exact_match"],
        "doc_hash": "x",
        "prompt_hash": "y",
        "target_hash": "z",
        "exact_match": 1.0,
        **fields,
    }
