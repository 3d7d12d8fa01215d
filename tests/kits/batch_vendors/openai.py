"""OpenAI and Azure, whose paths start with `/openai`."""

import json
import re
from typing import Any

from tests.kits.batch_vendors.call import NAME, PAGE, Call, Route, echo, live
from tests.kits.batch_vendors.store import ANSWERED, CANCELLED, EXPIRED, FAILED, MISSING, Batch, Reply, Store
from tests.kits.model_servers import completion, response_object


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
                  "purpose": "batch", "status": "pending" if store.faults.pending_files else "processed"})  # fmt: skip


def openai_file(store: Store, _: Call, name: str) -> Reply:
    if name not in store.files:
        return Reply(_openai_error("No such File object"), 404)
    status = "pending" if store.use("pending_files") else store.faults.file_status
    return Reply({"id": name, "object": "file", "bytes": 1, "created_at": 1, "filename": "x.jsonl",
                  "purpose": "batch", "status": status, "status_details": "bad line"})  # fmt: skip


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
        "invalid_file_status_pending": store.faults.pending_files > 0,
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


OPENAI = r"(?:/v1|/openai/v1|/openai)"
ROUTES: list[tuple[str, str, Route]] = [
    ("POST", rf"{OPENAI}/files", openai_upload),
    ("GET", rf"{OPENAI}/files/{NAME}", openai_file),
    ("GET", rf"{OPENAI}/files/{NAME}/content", openai_content),
    ("POST", rf"{OPENAI}/batches", openai_create),
    ("GET", rf"{OPENAI}/batches", openai_list),
    ("GET", rf"{OPENAI}/batches/{NAME}", openai_state),
    ("POST", rf"{OPENAI}/batches/{NAME}/cancel", openai_cancel),
    ("POST", r".*/chat/completions", live(completion)),
    ("POST", r".*/responses", live(response_object)),
]
