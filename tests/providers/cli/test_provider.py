"""A command that is run for each request."""

import asyncio
import tempfile
from pathlib import Path

import pytest

from agentv.providers.cli.provider import CliSettings
from agentv.records import ProviderRequest


def test_its_files_are_removed_by_the_last_to_leave_and_it_can_be_entered_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    command = "cp {PROMPT_FILE} {OUTPUT_FILE}"
    provider = CliSettings(name="a", provider="cli", command_template=command).open(tmp_path)

    async def ask(question: str) -> str:
        response = await provider.invoke(ProviderRequest(eval_id="a", question=question))  # type: ignore[union-attr]
        return str(response.text)

    async def twice() -> list[str]:
        async with provider:  # type: ignore[union-attr]
            async with provider:  # type: ignore[union-attr]
                first = await ask("one")
            return [first, await ask("two")]

    for _ in range(2):
        assert asyncio.run(twice()) == ["one", "two"]
        assert list(tmp_path.iterdir()) == []
