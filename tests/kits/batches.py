"""Targets that answer in batches."""

import sys
from pathlib import Path
from typing import Any

from tests.kits.project import Write, a_case
from tests.kits.runs import ANY, ECHO, target

PYTHON = sys.executable


COUNTED = f"echo run >> count; {PYTHON} all.py {{BATCH_FILE}} {{OUTPUT_FILE}}"


def project(write: Write, cases: int = 5, command: str = COUNTED, **settings: Any) -> None:
    write("all.py", ECHO)
    write("targets.yaml", target(command, provider_batching=True, **settings))
    write(
        "cases.jsonl",
        [
            a_case(f"c{n}", input_messages=[{"role": "user", "content": f"Q{n}"}], evaluators=[ANY])
            for n in range(cases)
        ],
    )


def runs() -> int:
    return len(Path("count").read_text().split())
