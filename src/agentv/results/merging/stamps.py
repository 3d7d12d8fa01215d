"""The shard and the plan that a result of a sharded run names: changed, or taken out, in its bytes.

All other bytes stay as they are: nothing is decoded and encoded again, unless another program wrote the result.
"""

from typing import Any, NamedTuple

import msgspec

from agentv.records import ShardPlan
from agentv.results.formats import JSONL, ResultFormat


class ShardStamp(NamedTuple):
    """A shard, as `2/4`, and what it is a part of."""

    shard: str
    plan: ShardPlan

    @property
    def fields(self) -> bytes:
        """The fields of a result, as JSON, with a comma behind them."""
        return msgspec.json.encode({"shard": self.shard, "plan": self.plan})[1:-1] + b","


class StampChange:
    """Changes one stamp to another, or takes it out of results."""

    def __init__(self, old: ShardStamp, new: ShardStamp | None, form: ResultFormat):
        self._old, self._new, self._form = old.fields, new.fields if new else b"", form
        self._values = msgspec.to_builtins(new._asdict()) if new else {}
        self._at = 0
        """Where the stamp was last: in results of one run it is nearly always at the same place."""

    def __call__(self, raw: bytes) -> bytes:
        """Return the record of a result with the other stamp."""
        if self._form is JSONL:
            at = self._at if raw.startswith(self._old, self._at) else raw.find(self._old)
            if at >= 0 and raw.count(b"{", 0, at) == 1:  # else it may be inside of something that a user wrote
                self._at = at
                return raw[:at] + self._new + raw[at + len(self._old) :]
        fields: dict[str, Any] = self._form.decoder(dict)(raw)
        changed = {
            name: self._values.get(name, value)
            for name, value in fields.items()
            if self._values or name not in ("shard", "plan")
        }
        return self._form.encode(msgspec.json.encode(changed, enc_hook=str))
