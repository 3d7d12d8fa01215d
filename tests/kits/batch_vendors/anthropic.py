"""Anthropic."""

import re
from datetime import UTC, datetime
from typing import Any

from tests.kits.batch_vendors.call import NAME, PAGE, Call, Route, echo, live
from tests.kits.batch_vendors.store import ANSWERED, CANCELLED, EXPIRED, FAILED, MISSING, Batch, Reply, Store
from tests.kits.model_servers import anthropic_message


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


ROUTES: list[tuple[str, str, Route]] = [
    ("POST", r"/v1/messages/batches", anthropic_create),
    ("GET", r"/v1/messages/batches", anthropic_list),
    ("GET", rf"/v1/messages/batches/{NAME}", anthropic_state),
    ("POST", rf"/v1/messages/batches/{NAME}/cancel", anthropic_cancel),
    ("GET", rf"/v1/messages/batches/{NAME}/results", anthropic_results),
    ("POST", r"/v1/messages", live(anthropic_message)),
]
