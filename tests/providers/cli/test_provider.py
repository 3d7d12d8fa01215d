"""A command that is run for each request."""

import asyncio
import tempfile
from pathlib import Path

import pytest

from agentv.project.validate import check_file
from agentv.providers.cli.provider import CliSettings
from agentv.records import ProviderRequest
from tests.kits.project import Write
from tests.kits.runs import one_case, target


def test_files_are_removed_on_the_last_exit_and_it_can_be_reentered(
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


@pytest.mark.parametrize("output", ['{"text": "Paris", "confidence": 0.9}', "\ufeff plain \n", ""])
@pytest.mark.parametrize("redirection", ["", " > {OUTPUT_FILE}"])
def test_output_format_text_uses_the_output_verbatim(write: Write, output: str, redirection: str) -> None:
    write("answer.txt", output)
    result = one_case(write, f"cat answer.txt{redirection}", output_format="text", expect=0)
    assert result["candidate_answer"] == output


def test_invalid_output_formats(write: Write) -> None:
    path = write("targets.yaml", target("cat {PROMPT_FILE}", output_format="json"))
    (problem,) = check_file(path).problems
    assert problem.message == "target 'default': output_format: unknown output_format 'json'"
    assert "auto, text" in problem.hint
    path = write("targets.yaml", target("cat {BATCH_FILE}", output_format="text", provider_batching=True))
    (problem,) = check_file(path).problems
    assert problem.message == "target 'default': output_format: the output of a batch is JSONL"
    assert problem.hint == "remove output_format: the 'text' of a record is always used verbatim"
