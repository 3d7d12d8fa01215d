"""How each vendor speaks of batches: what it is asked, by method and path, and what it says."""

import json
import re
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, NamedTuple

from tests.kits.batch_store import ANSWERED, CANCELLED, EXPIRED, FAILED, MISSING, Batch, Reply, Store
from tests.kits.model_servers import anthropic_message, completion, gemini_content, response_object


class Call(NamedTuple):
    """A request over HTTP."""

    path: str
    query: dict[str, str]
    headers: dict[str, str]
    content: bytes
    url: str
    """Of the server."""

    def json(self) -> Any:
        return json.loads(self.content)


PAGE = 3
"""How many batches a page of their list has at most: so few that there are several pages."""
Route = Callable[[Store, Call, str], Reply]
"""What is done for a request; the text is the name in its path."""


def echo(body: Any) -> str:
    """The answer to a request in the format of any vendor: the last text that the user has written."""
    turns = body.get("messages") or body.get("input") or body.get("contents") or []
    if isinstance(turns, str):
        return f"echo: {turns}"
    said = [turn for turn in turns if turn.get("role", "user") == "user"]
    content = said[-1].get("content") or said[-1].get("parts") if said else ""
    parts = [content] if isinstance(content, str) else [part.get("text", "") for part in content or ()]
    return f"echo: {''.join(parts)}"


def live(speak: Callable[[str], dict[str, Any]]) -> Route:
    def answer(store: Store, call: Call, _: str) -> Reply:
        said = echo(call.json())
        store.live[said.removeprefix("echo: ")] += 1
        return Reply(speak(said))

    return answer


# OpenAI and Azure


def openai_upload(store: Store, call: Call, _: str) -> Reply:
    if store.use("failing_uploads"):
        return Reply(_openai_error("the server had an error", "server_error"), 500)
    fields = _multipart(call)
    if fields.get("purpose") != b"batch":
        return Reply(_openai_error("'purpose' must be 'batch'"), 400)
    content = fields["file"]
    if store.faults.max_bytes and len(content) > store.faults.max_bytes:
        return Reply(_openai_error(f"File is too large. Max size is {store.faults.max_bytes} bytes."), 413)
    name = store.keep(content)
    return Reply({"id": name, "object": "file", "bytes": len(content), "created_at": 1, "filename": "x.jsonl",
                  "purpose": "batch", "status": "processed"})  # fmt: skip


def openai_create(store: Store, call: Call, _: str) -> Reply:
    asked = call.json()
    if store.use("queue_full_429"):
        return Reply(_openai_error("Enqueued token limit reached", "rate_limit_exceeded"), 429)
    dated = "api-version" in call.query
    if asked["endpoint"] not in (("/chat/completions",) if dated else ("/v1/chat/completions", "/v1/responses")):
        return Reply(_openai_error(f"Invalid value: {asked['endpoint']!r}"), 400)
    if asked["input_file_id"] not in store.files:
        return Reply(_openai_error("No such File object"), 404)
    lines = [json.loads(line) for line in store.files[asked["input_file_id"]].split(b"\n") if line]
    refused = _openai_refusal(store, asked["endpoint"], lines)
    vendor = "azure" if call.path.startswith("/openai") else "openai"
    requests = [(line["custom_id"], line["body"]) for line in lines]
    model = lines[0]["body"]["model"] if lines else ""
    batch = store.create(vendor, (asked.get("metadata") or {}).get("agentv", ""), model, requests, refused)
    return store.created(_openai_batch(store, batch, "validating"))


def _openai_refusal(store: Store, endpoint: str, lines: list[Any]) -> str:
    ids, models = {line["custom_id"] for line in lines}, {line["body"]["model"] for line in lines}
    reasons = {
        "token_limit_exceeded": store.use("queue_full"),
        "empty_file": not lines,
        "too_many_tasks": bool(store.faults.max_requests) and len(lines) > store.faults.max_requests,
        "model_not_found": store.faults.rejected_model in models,
        "mismatched_model": len(models) > 1,
        "duplicate_custom_id": len(ids) < len(lines),
        "url_mismatch": any(line["url"] != endpoint or line["method"] != "POST" for line in lines),
    }
    return next((code for code, is_so in reasons.items() if is_so), "")


def openai_state(store: Store, _: Call, name: str) -> Reply:
    batch = store.poll(name)
    if batch is None:
        return Reply(_openai_error(f"No batch found with id '{name}'."), 404)
    return batch if isinstance(batch, Reply) else Reply(_openai_batch(store, batch))


def openai_list(store: Store, call: Call, _: str) -> Reply:
    batches = store.listed()
    if (after := call.query.get("after")) is not None:
        batches = batches[[batch.id for batch in batches].index(after) + 1 :]
    limit = min(int(call.query.get("limit", 20)), PAGE)
    page = [_openai_batch(store, batch) for batch in batches[:limit]]
    ends = {"first_id": page[0]["id"], "last_id": page[-1]["id"]} if page else {}
    return Reply({"object": "list", "data": page, "has_more": len(batches) > limit, **ends})


def openai_cancel(store: Store, _: Call, name: str) -> Reply:
    batch = store.cancel(name)
    if batch is None:
        return Reply(_openai_error(f"No batch found with id '{name}'."), 404)
    if batch.has_ended:
        return Reply(_openai_error("Cannot cancel a batch with status 'completed'."), 409)
    return Reply(_openai_batch(store, batch))


def openai_content(store: Store, _: Call, name: str) -> Reply:
    kind, _dash, batch_name = name.partition("-of-")
    batch = store.find(batch_name)
    if batch is None or store.faults.results_gone:
        return Reply(_openai_error(f"No such File object: {name}"), 404)
    wanted = (ANSWERED,) if kind == "output" else (FAILED, EXPIRED, CANCELLED)
    return store.results([_openai_line(*found) for found in batch.fates() if found[2] in wanted])


def _openai_line(custom_id: str, body: Any, fate: str) -> Any:
    line: dict[str, Any] = {"id": f"batch_req_{custom_id}", "custom_id": custom_id, "response": None, "error": None}
    if fate == EXPIRED:
        words = "This request could not be executed before the completion window expired."
        return line | {"error": {"code": "batch_expired", "message": words}}
    if fate == CANCELLED:
        return line | {"error": {"code": "batch_cancelled", "message": "This request was cancelled."}}
    if fate == FAILED:
        reply: Any = _openai_error("this request is no good")
    else:
        reply = response_object(echo(body)) if "input" in body else completion(echo(body))
    status = 400 if fate == FAILED else 200
    return line | {"response": {"status_code": status, "request_id": "r", "body": reply}}


def _openai_batch(store: Store, batch: Batch, status: str = "") -> Any:
    if not status:
        ended = "cancelled" if batch.cancelled_at_poll is not None else "expired" if batch.is_expired else "completed"
        running = "cancelling" if batch.cancelled_at_poll is not None else "in_progress"
        status = "failed" if batch.refused else ended if batch.has_ended else running
    has_ended = batch.has_ended and not batch.refused
    answered, total = batch.count(ANSWERED) if has_ended else 0, len(batch.requests)
    failed = total - answered - batch.count(MISSING) if has_ended else 0
    errors = {"object": "list", "data": [{"code": batch.refused, "message": f"refused: {batch.refused}", "line": None}]}
    return {
        "id": batch.id,
        "object": "batch",
        "endpoint": "/v1/chat/completions",
        "errors": errors if batch.refused else None,
        "input_file_id": "file-0",
        "completion_window": "24h",
        "status": status,
        "output_file_id": f"output-of-{batch.id}" if answered else None,
        "error_file_id": f"error-of-{batch.id}" if failed else None,
        "created_at": int(batch.created),
        "request_counts": {"total": total, "completed": answered, "failed": failed},
        "metadata": {"agentv": batch.key} if batch.key else None,
    }


def _openai_error(message: str, type_: str = "invalid_request_error") -> Any:
    return {"error": {"message": message, "type": type_, "param": None, "code": None}}


def _multipart(call: Call) -> dict[str, bytes]:
    """The fields of a form."""
    boundary = b"--" + call.headers["content-type"].partition("boundary=")[2].strip('"').encode()
    found = {}
    for part in call.content.split(boundary)[1:-1]:
        head, _, value = part.partition(b"\r\n\r\n")
        name = re.search(rb'name="([^"]*)"', head)
        assert name is not None
        found[name[1].decode()] = value.removesuffix(b"\r\n")
    return found


# Anthropic


def anthropic_create(store: Store, call: Call, _: str) -> Reply:
    faults = store.faults
    if store.use("queue_full_429") or store.use("queue_full"):
        return Reply(_anthropic_error("rate_limit_error", "too many batch requests are in the processing queue"), 429)
    if faults.max_bytes and len(call.content) > faults.max_bytes:
        return Reply(_anthropic_error("request_too_large", "Request exceeds the maximum size"), 413)
    requests = [(each["custom_id"], each["params"]) for each in call.json()["requests"]]
    ids = [custom_id for custom_id, _ in requests]
    if faults.max_requests and len(ids) > faults.max_requests:
        return Reply(_anthropic_error("invalid_request_error", f"requests: at most {faults.max_requests} items"), 400)
    if len(set(ids)) < len(ids) or not all(re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", custom_id) for custom_id in ids):
        return Reply(_anthropic_error("invalid_request_error", "requests: custom_id"), 400)
    batch = store.create("anthropic", "", requests[0][1]["model"], requests)
    return store.created(_anthropic_batch(store, call, batch))


def anthropic_state(store: Store, call: Call, name: str) -> Reply:
    batch = store.poll(name)
    if batch is None:
        return Reply(_anthropic_error("not_found_error", f"no batch {name}"), 404)
    return batch if isinstance(batch, Reply) else Reply(_anthropic_batch(store, call, batch))


def anthropic_list(store: Store, call: Call, _: str) -> Reply:
    batches = store.listed()
    if (after := call.query.get("after_id")) is not None:
        batches = batches[[batch.id for batch in batches].index(after) + 1 :]
    page = [_anthropic_batch(store, call, batch) for batch in batches[:PAGE]]
    ends = {"first_id": page[0]["id"], "last_id": page[-1]["id"]} if page else {}
    return Reply({"data": page, "has_more": len(batches) > PAGE, **ends})


def anthropic_cancel(store: Store, call: Call, name: str) -> Reply:
    batch = store.cancel(name)
    if batch is None:
        return Reply(_anthropic_error("not_found_error", f"no batch {name}"), 404)
    if batch.has_ended:
        return Reply(_anthropic_error("invalid_request_error", f"Batch {name} cannot be canceled: it has ended"), 400)
    return Reply(_anthropic_batch(store, call, batch))


def anthropic_results(store: Store, _: Call, name: str) -> Reply:
    batch = store.find(name)
    if batch is None or store.faults.results_gone or not batch.has_ended:
        return Reply(_anthropic_error("not_found_error", "no results"), 404)
    return store.results([_anthropic_line(batch, *found) for found in batch.fates() if found[2] != MISSING])


def _anthropic_line(batch: Batch, custom_id: str, body: Any, fate: str) -> Any:
    results = {
        ANSWERED: {"type": "succeeded", "message": anthropic_message(echo(body))},
        FAILED: {"type": "errored", "error": _anthropic_error("invalid_request_error", "this request is no good")},
        EXPIRED: {"type": "expired"},
        CANCELLED: {"type": "canceled"},
    }
    if body["model"] == batch.faults.rejected_model:
        return {
            "custom_id": custom_id,
            "result": {"type": "errored", "error": _anthropic_error("not_found_error", f"model: {body['model']}")},
        }
    return {"custom_id": custom_id, "result": results[fate]}


def _anthropic_batch(store: Store, call: Call, batch: Batch) -> Any:
    ended, is_gone = batch.has_ended, store.faults.results_gone
    counts = {
        "succeeded": batch.count(ANSWERED),
        "errored": batch.count(FAILED) + batch.count(MISSING),
        "canceled": batch.count(CANCELLED),
        "expired": batch.count(EXPIRED),
    }
    running = {"processing": len(batch.requests), **dict.fromkeys(counts, 0)}
    created = datetime.fromtimestamp(batch.created, UTC).isoformat()
    return {
        "id": batch.id,
        "type": "message_batch",
        "processing_status": "ended"
        if ended
        else "canceling"
        if batch.cancelled_at_poll is not None
        else "in_progress",
        "request_counts": {"processing": 0, **counts} if ended else running,
        "created_at": created,
        "expires_at": created,
        "ended_at": created if ended else None,
        "archived_at": created if is_gone else None,
        "cancel_initiated_at": None,
        "results_url": f"{call.url}/v1/messages/batches/{batch.id}/results" if ended and not is_gone else None,
    }


def _anthropic_error(type_: str, message: str) -> Any:
    return {"type": "error", "error": {"type": type_, "message": message}, "request_id": "req_1"}


# Gemini


def gemini_upload(store: Store, call: Call, _: str) -> Reply:
    """The resumable upload: one request says what comes, the others bring it, the last of them ends it."""
    if store.use("failing_uploads"):
        return Reply(_gemini_error(500, "INTERNAL", "the server had an error"), 500)
    command = call.headers["x-goog-upload-command"]
    if command == "start":
        if store.faults.max_bytes and int(call.headers["x-goog-upload-header-content-length"]) > store.faults.max_bytes:
            return Reply(_gemini_error(400, "INVALID_ARGUMENT", "the file is too large"), 400)
        name = store.keep(b"", "files/upload")
        return Reply({}, headers={"X-Goog-Upload-URL": f"{call.url}{call.path}?name={name}"})
    name = call.query["name"]
    store.files[name] += call.content
    if "finalize" not in command:
        return Reply({}, headers={"X-Goog-Upload-Status": "active"})
    file = {"name": name, "mimeType": "application/jsonl", "sizeBytes": str(len(store.files[name])), "state": "ACTIVE"}
    return Reply({"file": file}, headers={"X-Goog-Upload-Status": "final"})


def gemini_create(store: Store, call: Call, model: str) -> Reply:
    asked = call.json()
    if set(asked) != {"batch"}:
        return Reply(_gemini_error(400, "INVALID_ARGUMENT", f"unknown fields: {sorted(asked)}"), 400)
    if store.use("queue_full_429"):
        return Reply(_gemini_error(429, "RESOURCE_EXHAUSTED", "too many enqueued tokens"), 429)
    if model == store.faults.rejected_model:
        return Reply(_gemini_error(404, "NOT_FOUND", f"models/{model} is not found"), 404)
    content = store.files[asked["batch"]["inputConfig"]["fileName"]]
    lines = [json.loads(line) for line in content.split(b"\n") if line]
    too_many = bool(store.faults.max_requests) and len(lines) > store.faults.max_requests
    refused = "RESOURCE_EXHAUSTED" if store.use("queue_full") else "INVALID_ARGUMENT" if too_many else ""
    requests = [(line["key"], line["request"]) for line in lines]
    batch = store.create("gemini", asked["batch"]["displayName"], model, requests, refused)
    return store.created(_gemini_batch(batch))


def gemini_state(store: Store, _: Call, name: str) -> Reply:
    batch = store.poll(f"batches/{name}")
    if batch is None:
        return Reply(_gemini_error(404, "NOT_FOUND", f"no batch {name}"), 404)
    return batch if isinstance(batch, Reply) else Reply(_gemini_batch(batch))


def gemini_list(store: Store, call: Call, _: str) -> Reply:
    batches, start = store.listed(), int(call.query.get("pageToken", 0))
    more = {"nextPageToken": str(start + PAGE)} if len(batches) > start + PAGE else {}
    return Reply({"operations": [_gemini_batch(batch) for batch in batches[start : start + PAGE]], **more})


def gemini_cancel(store: Store, _: Call, name: str) -> Reply:
    batch = store.cancel(f"batches/{name}")
    if batch is None:
        return Reply(_gemini_error(404, "NOT_FOUND", f"no batch {name}"), 404)
    if batch.has_ended:
        return Reply(_gemini_error(400, "FAILED_PRECONDITION", "the batch has ended"), 400)
    return Reply({})


def gemini_download(store: Store, _: Call, name: str) -> Reply:
    batch = store.find(f"batches/{name.removeprefix('batch-')}")
    if batch is None or store.faults.results_gone:
        return Reply(_gemini_error(404, "NOT_FOUND", f"no file {name}"), 404)
    return store.results([_gemini_line(*found) for found in batch.fates() if found[2] != MISSING])


def _gemini_line(custom_id: str, body: Any, fate: str) -> Any:
    if fate == ANSWERED:
        return {"key": custom_id, "response": gemini_content(echo(body))}
    error = (
        {"code": 1, "message": "cancelled"} if fate == CANCELLED else {"code": 3, "message": "this request is no good"}
    )
    return {"key": custom_id, "error": error}


def _gemini_batch(batch: Batch) -> Any:
    is_cancelled = batch.cancelled_at_poll is not None
    ended = "CANCELLED" if is_cancelled else "EXPIRED" if batch.is_expired else "SUCCEEDED"
    state = "FAILED" if batch.refused else ended if batch.has_ended else "RUNNING" if batch.polls else "PENDING"
    has_results = batch.has_ended and state not in ("FAILED", "EXPIRED")
    answered, total = batch.count(ANSWERED) if has_results else 0, len(batch.requests)
    stats = {"requestCount": total, "successfulRequestCount": answered}
    if has_results:
        stats["failedRequestCount"] = total - answered
    output = {"responsesFile": f"files/batch-{batch.id.removeprefix('batches/')}"}
    metadata = {
        "@type": "type.googleapis.com/google.ai.generativelanguage.v1main.GenerateContentBatch",
        "name": batch.id,
        "model": f"models/{batch.model}",
        "displayName": batch.key,
        "state": f"BATCH_STATE_{state}",
        "createTime": datetime.fromtimestamp(batch.created, UTC).isoformat(),
        "batchStats": {name: str(count) for name, count in stats.items()},
        **({"output": output} if has_results else {}),
    }
    code = {"RESOURCE_EXHAUSTED": 8, "INVALID_ARGUMENT": 3}.get(batch.refused)
    error = {"error": {"code": code, "message": f"refused: {batch.refused}"}} if batch.refused else {}
    return {"name": batch.id, "metadata": metadata, "done": bool(batch.refused) or batch.has_ended, **error}


def _gemini_error(code: int, status: str, message: str) -> Any:
    return {"error": {"code": code, "message": message, "status": status}}


NAME = r"([^/?:]+)"
OPENAI = r"(?:/v1|/openai/v1|/openai)"
ROUTES: list[tuple[str, str, Route]] = [
    ("POST", rf"{OPENAI}/files", openai_upload),
    ("GET", rf"{OPENAI}/files/{NAME}/content", openai_content),
    ("POST", rf"{OPENAI}/batches", openai_create),
    ("GET", rf"{OPENAI}/batches", openai_list),
    ("GET", rf"{OPENAI}/batches/{NAME}", openai_state),
    ("POST", rf"{OPENAI}/batches/{NAME}/cancel", openai_cancel),
    ("POST", r".*/chat/completions", live(completion)),
    ("POST", r".*/responses", live(response_object)),
    ("POST", r"/v1/messages/batches", anthropic_create),
    ("GET", r"/v1/messages/batches", anthropic_list),
    ("GET", rf"/v1/messages/batches/{NAME}", anthropic_state),
    ("POST", rf"/v1/messages/batches/{NAME}/cancel", anthropic_cancel),
    ("GET", rf"/v1/messages/batches/{NAME}/results", anthropic_results),
    ("POST", r"/v1/messages", live(anthropic_message)),
    ("POST", r"/google/upload/v1(?:beta)?/files", gemini_upload),
    ("POST", rf"/google/v1(?:beta)?/models/{NAME}:batchGenerateContent", gemini_create),
    ("GET", r"/google/v1(?:beta)?/batches", gemini_list),
    ("GET", rf"/google/v1(?:beta)?/batches/{NAME}", gemini_state),
    ("POST", rf"/google/v1(?:beta)?/batches/{NAME}:cancel", gemini_cancel),
    ("GET", rf"/google/v1(?:beta)?/files/{NAME}:download", gemini_download),
    ("POST", r".*:generateContent", live(gemini_content)),
]
