"""A project whose target is called through a vendor's batch API, and its results."""

import json
from pathlib import Path
from typing import Any

from tests.kits.batch_servers import BatchServer
from tests.kits.project import Write, a_case
from tests.kits.runs import evaluate, results

ECHO = {"type": "contains", "value": "echo"}
JOURNAL = Path(".agentv/batches")


class BatchProject:
    """A target in batches on a loopback vendor, and cases that each ask for their id."""

    def __init__(self, write: Write, server: BatchServer, vendor: str = "openai", **settings: Any):
        self.write, self.server, self.vendor = write, server, vendor
        self.set_target(**settings)

    def set_target(self, *others: dict[str, Any], **settings: Any) -> None:
        """Set the target up, with these settings, and other targets beside it."""
        own = {"batch_api": True, "batch_poll_seconds": 0.05} | settings
        targets = [self.server.target(self.vendor, **own), *others]
        self.write("targets.yaml", json.dumps({"targets": targets}))

    def write_cases(self, *ids: str, name: str = "cases.jsonl", **fields: Any) -> Path:
        """Write an eval file of these cases; the answer to each is `echo: ` and its id."""
        given = {"evaluators": [ECHO]} | fields
        return self.write(
            name, [a_case(id_, input_messages=[{"role": "user", "content": id_}], **given) for id_ in ids]
        )

    def run(self, *args: str | Path, expect: int = 0) -> dict[str, dict[str, Any]]:
        """The results by id of a run of `cases.jsonl`."""
        self.ran = evaluate("cases.jsonl", "--out", "out.jsonl", *args, expect=expect)
        return {result["eval_id"]: result for result in results("out.jsonl")}

    @property
    def submitted(self) -> int:
        """How many requests the vendor has been given in batches, each as often as it was given."""
        return sum(self.server.state()["submitted"].values())

    @property
    def live(self) -> int:
        """How many requests were asked one by one."""
        return sum(self.server.state()["live"].values())


def is_batch(result: dict[str, Any]) -> bool:
    return bool(result.get("execution_metrics", {}).get("batch", False))


def journaled() -> list[Path]:
    """The folders of the batches in the journal."""
    return sorted(JOURNAL.glob("vendor-*"))
