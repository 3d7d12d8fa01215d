"""Test the provider and the evaluator without a run."""

import asyncio
from pathlib import Path

import pytest

from agentv.extend import ConfigError, EvalCase, Exchange, ProviderError, ProviderRequest, ProviderResponse
from agentv_example.canned import Canned, CannedSettings
from agentv_example.word_count import WordCount


def test_canned_answers_by_the_id_of_the_case() -> None:
    canned = Canned({"france": "Paris"})
    assert asyncio.run(canned.invoke(ProviderRequest(eval_id="france", question="?"))).text == "Paris"
    with pytest.raises(ProviderError, match="no answer was recorded"):
        asyncio.run(canned.invoke(ProviderRequest(eval_id="norway", question="?")))


def test_canned_needs_a_file_of_answers(tmp_path: Path) -> None:
    (tmp_path / "numbers.json").write_text('{"france": 1}')
    for name in ("numbers.json", "missing.json"):
        with pytest.raises(ConfigError, match=f"answers: {name} cannot be used"):
            CannedSettings(name="recorded", provider="canned", answers=name).open(tmp_path)


@pytest.mark.parametrize(("answer", "score"), [("Paris", 1.0), ("", 0.0), ("It is Paris", 0.0)])
def test_word_count_passes_answers_of_the_right_length(answer: str, score: float) -> None:
    case = EvalCase(id="france", expected_outcome="Names Paris.", input_messages=())
    request = ProviderRequest(eval_id="france", question="?")
    exchange = Exchange(case=case, request=request, response=ProviderResponse(text=answer))
    assert asyncio.run(WordCount(least=1, most=2).evaluate(exchange)).score == score
