"""Gemini, below `/google` because it shares some paths with other vendors."""

import json
from datetime import UTC, datetime
from typing import Any

from tests.kits.batch_vendors.call import NAME, PAGE, Call, Route, echo, live
from tests.kits.batch_vendors.store import ANSWERED, CANCELLED, MISSING, Batch, Reply, Store
from tests.kits.model_servers import gemini_content


def gemini_upload(store: Store, call: Call, _: str) -> Reply:
    """The resumable upload: one request announces it, the others send the data, the last one finishes it."""
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


ROUTES: list[tuple[str, str, Route]] = [
    ("POST", r"/google/upload/v1(?:beta)?/files", gemini_upload),
    ("POST", rf"/google/v1(?:beta)?/models/{NAME}:batchGenerateContent", gemini_create),
    ("GET", r"/google/v1(?:beta)?/batches", gemini_list),
    ("GET", rf"/google/v1(?:beta)?/batches/{NAME}", gemini_state),
    ("POST", rf"/google/v1(?:beta)?/batches/{NAME}:cancel", gemini_cancel),
    ("GET", rf"/google/v1(?:beta)?/files/{NAME}:download", gemini_download),
    ("POST", r".*:generateContent", live(gemini_content)),
]
