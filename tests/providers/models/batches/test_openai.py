"""What is special about the batches of OpenAI and Azure."""

from pathlib import Path

import pytest

from tests.kits.batch_runs import custom_ids, run_batch
from tests.kits.batch_servers import batch_server


@pytest.mark.parametrize("vendor", ["openai", "openai-responses", "azure", "azure-responses", "anthropic", "gemini"])
def test_one(vendor: str, tmp_path: Path) -> None:
    with batch_server(polls=2) as server:
        found = run_batch(server.target(vendor), tmp_path / "x.jsonl")
        assert found.texts == {custom_id: f"echo: question {n}" for n, custom_id in enumerate(custom_ids(4))}
