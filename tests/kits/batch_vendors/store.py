"""The files and batches of a loopback vendor, and their processing: the same for all vendors."""

import itertools
import json
import threading
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from types import MappingProxyType
from typing import Any, NamedTuple

ANSWERED, FAILED, EXPIRED, CANCELLED, MISSING = "answered", "failed", "expired", "cancelled", "missing"


@dataclass
class Faults:
    """The faults of the server. Counters are used up; other faults apply to batches created from now on."""

    polls: int = 0
    """How often a batch is asked for before it has ended."""
    order: str = "same"
    """Of the lines in result files: `same` as in the requests, or `reversed`."""
    fail_every: int = 0
    expire_every: int = 0
    miss_every: int = 0
    """Each nth request of a batch fails, expires, or is in no result file."""
    no_output: bool = False
    """All requests fail without an output file, although the batch is `completed`."""
    rejected_model: str = ""
    results_gone: bool = False
    """The results have been thrown away; this holds for all batches."""
    batches_gone: bool = False
    """No batch is known any more."""
    max_requests: int = 0
    max_bytes: int = 0
    queue_full: int = 0
    """So many batches are taken and then fail, as too many tokens wait; vendors that cannot do that refuse them."""
    queue_full_429: int = 0
    """So many batches are refused."""
    failing_polls: int = 0
    cut_polls: int = 0
    """So many polls are answered with the status 500, or with the end of the connection."""
    failing_uploads: int = 0
    pending_files: int = 0
    """So often a file is asked for before it is processed; a batch that is created before that fails."""
    file_status: str = "processed"
    """That of files which are not pending any more."""
    lost_creates: int = 0
    """So many batches are created, and the connection ends before that is said."""
    cut_results: int = 0
    """So many times the connection ends in the middle of the results."""
    has_broken_lines: bool = False
    """Between the lines of results are some that are empty or no JSON."""
    seconds: float = 0.0
    """How long each reply takes."""


@dataclass
class Batch:
    id: str
    vendor: str
    key: str
    model: str
    requests: list[tuple[str, Any]]
    faults: Faults
    number: int
    created: float = field(default_factory=time.time)
    polls: int = 0
    refused: str = ""
    """The code of the reason why the vendor does not work on it."""
    cancelled_at_poll: int | None = None

    @property
    def has_ended(self) -> bool:
        if self.cancelled_at_poll is not None:
            return self.polls > self.cancelled_at_poll + 1  # it is `cancelling` for a while
        return self.polls > self.faults.polls

    @property
    def is_expired(self) -> bool:
        return bool(self.faults.expire_every) and self.cancelled_at_poll is None

    def fates(self) -> list[tuple[str, Any, str]]:
        """Each request and its outcome."""
        found = [(custom_id, body, self._fate(number)) for number, (custom_id, body) in enumerate(self.requests, 1)]
        return found[::-1] if self.faults.order == "reversed" else found

    def _fate(self, number: int) -> str:
        faults = self.faults
        if self.cancelled_at_poll is not None and number > len(self.requests) // 2:
            return CANCELLED
        for each, fate in ((faults.miss_every, MISSING), (faults.expire_every, EXPIRED), (faults.fail_every, FAILED)):
            if each and number % each == 0:
                return fate
        return FAILED if faults.no_output or self.refused else ANSWERED

    def count(self, fate: str) -> int:
        return sum(found == fate for *_, found in self.fates())


class Reply(NamedTuple):
    """`is_cut` closes the connection: before the response if it has no body, otherwise in the middle of it."""

    body: Any = b""
    status: int = 200
    headers: Mapping[str, str] = MappingProxyType({})
    is_cut: bool = False


class Store:
    """All that the server knows. Counters say how often each request was submitted, and asked live."""

    def __init__(self, faults: Faults):
        self.faults = faults
        self.files: dict[str, bytes] = {}
        self.batches: dict[str, Batch] = {}
        self.submitted: Counter[str] = Counter()
        self.live: Counter[str] = Counter()
        self.asked: Counter[str] = Counter()
        """How often each operation was asked for."""
        self.lock = threading.RLock()
        self._numbers = itertools.count(1)

    def use(self, name: str) -> bool:
        """Whether a fault that counts is to happen now."""
        left = getattr(self.faults, name)
        if left > 0:
            setattr(self.faults, name, left - 1)
        return bool(left > 0)

    def keep(self, content: bytes, prefix: str = "file-") -> str:
        name = f"{prefix}{next(self._numbers)}"
        self.files[name] = content
        return name

    def create(self, vendor: str, key: str, model: str, requests: list[tuple[str, Any]], refused: str = "") -> Batch:
        number = next(self._numbers)
        prefix = {"anthropic": "msgbatch_", "gemini": "batches/"}.get(vendor, "batch_")
        batch = Batch(f"{prefix}{number}", vendor, key, model, requests, replace(self.faults), number, refused=refused)
        self.batches[batch.id] = batch
        if not refused:
            self.submitted.update(custom_id for custom_id, _ in requests)
        return batch

    def poll(self, name: str) -> Batch | Reply | None:
        """The batch with this name after one more poll, the response instead of it, or None if it is unknown."""
        self.asked["poll"] += 1
        if self.use("failing_polls"):
            return Reply({"error": {"message": "the server had an error", "type": "server_error"}}, 500)
        if self.use("cut_polls"):
            return Reply(is_cut=True)
        batch = self.find(name)
        if batch is not None:
            batch.polls += 1
        return batch

    def find(self, name: str) -> Batch | None:
        return None if self.faults.batches_gone else self.batches.get(name)

    def cancel(self, name: str) -> Batch | None:
        batch = self.find(name)
        if batch is not None and not batch.has_ended and batch.cancelled_at_poll is None:
            batch.cancelled_at_poll = batch.polls
        return batch

    def results(self, lines: list[Any]) -> Reply:
        """A file of results."""
        self.asked["results"] += 1
        end = b"\n\n{broken\n" if self.faults.has_broken_lines else b"\n"
        content = b"".join(json.dumps(line, ensure_ascii=False).encode() + end for line in lines)
        return Reply(content, is_cut=self.use("cut_results"))

    def listed(self) -> list[Batch]:
        """All batches, the newest first."""
        return [] if self.faults.batches_gone else sorted(self.batches.values(), key=lambda b: -b.number)

    def created(self, reply: Any, status: int = 200) -> Reply:
        """The response to the creation of a batch, if it arrives."""
        return Reply(is_cut=True) if self.use("lost_creates") else Reply(reply, status)

    def to_json(self) -> dict[str, Any]:
        kept = {"id", "vendor", "key", "model", "polls", "refused", "created"}
        batches = [
            {name: value for name, value in asdict(replace(batch, requests=[])).items() if name in kept}
            | {
                "custom_ids": [custom_id for custom_id, _ in batch.requests],
                "is_cancelled": batch.cancelled_at_poll is not None,
            }
            for batch in self.batches.values()
        ]
        return {
            "submitted": dict(self.submitted),
            "live": dict(self.live),
            "asked": dict(self.asked),
            "batches": batches,
            "files": {name: len(content) for name, content in self.files.items()},
        }
