"""Replace or remove the shard and the plan in the bytes of a result of a sharded run.

All other bytes are preserved: a result is decoded and encoded again only if another program wrote it.
"""

from typing import Any, NamedTuple

import msgspec

from agentv.files.encode import to_json
from agentv.records import ShardPlan
from agentv.results.formats import JSONL, ResultFormat

STAMP_FIELDS = ("shard", "plan")


class ShardStamp(NamedTuple):
    """A shard, such as `2/4`, and the plan that it is a part of."""

    shard: str
    plan: ShardPlan

    @property
    def fields(self) -> bytes:
        """The fields of a result as JSON, with a trailing comma."""
        fields = {
            "shard": self.shard,
            "plan": self.plan,
        }
        as_object = msgspec.json.encode(fields)
        without_braces = as_object[1:-1]
        return without_braces + b","


class StampChange:
    """Replaces one stamp with another in results, or removes it."""

    def __init__(
        self,
        old: ShardStamp,
        new: ShardStamp | None,
        form: ResultFormat,
    ):
        self._form = form
        self._old = old.fields
        self._new = b""
        self._values: dict[str, Any] = {}
        if new is not None:
            self._new = new.fields
            values = new._asdict()
            self._values = msgspec.to_builtins(values)
        self._at = 0
        """The offset of the stamp in the previous result: nearly always the same for all results of a run."""

    def __call__(self, raw: bytes) -> bytes:
        """Return the record of a result with the new stamp."""
        if self._form is JSONL:
            at = self._at
            if not raw.startswith(self._old, at):
                at = raw.find(self._old)
            # inside another object, the same bytes may be content of the user
            if at >= 0 and raw.count(b"{", 0, at) == 1:
                self._at = at
                end = at + len(self._old)
                return raw[:at] + self._new + raw[end:]
        return self._change_fields(raw)

    def _change_fields(self, raw: bytes) -> bytes:
        """Decode a record, change its stamp and encode it again."""
        decode = self._form.decoder(dict)
        fields: dict[str, Any] = decode(raw)
        for name in STAMP_FIELDS:
            if name not in fields:
                continue
            if self._values:
                fields[name] = self._values[name]
            else:
                del fields[name]
        encoded = to_json(fields)
        return self._form.encode(encoded)
