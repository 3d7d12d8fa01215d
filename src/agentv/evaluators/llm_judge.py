"""A language model grades the answer."""

from typing import Any, ClassVar

import msgspec

from agentv.judges.prompt import DATA, build_judge_request, fill_prompt, prompts_of, read_prompt, with_changes
from agentv.judges.reply import BadJudgement, ask_judge, parse_reply
from agentv.protocols import Evaluator, EvaluatorContext, EvaluatorSettings, Provider
from agentv.records import Exchange, Score

SYSTEM = f"""You grade the answer of an AI agent against what was expected of it. {DATA}
Reply with one JSON object and nothing else:
{{"score": a number from 0 (worthless) to 1 (perfect), "hits": [up to four short points that were met],
"misses": [up to four short points that were not], "reasoning": one or two sentences}}"""

PROMPT = """What was asked:
{{ question }}

What is expected of the answer:
{{ expected_outcome }}

A good answer, if one is known:
{{ reference_answer }}

The answer to grade:
{{ candidate_answer }}
"""

_POINTS: dict[str, Any] = {"type": "array", "items": {"type": "string"}}
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"score": {"type": "number"}, "hits": _POINTS, "misses": _POINTS, "reasoning": {"type": "string"}},
    "required": ["score", "hits", "misses", "reasoning"],
    "additionalProperties": False,
}


class LlmJudge(EvaluatorSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Asks a language model for a score, with the user's own prompt or with ours."""

    asks_model: ClassVar[bool] = True

    prompt: str | None = None
    judge_target: str | None = None

    def open(self, context: EvaluatorContext) -> Evaluator:
        template = PROMPT if self.prompt is None else read_prompt(self.prompt, context)
        return _ModelJudge(template, context.judge(self.judge_target))


class _ModelJudge(Evaluator):
    def __init__(self, template: str, judge: Provider):
        self._template, self._judge = template, judge

    def fingerprint(self) -> str:
        return self._template

    async def evaluate(self, exchange: Exchange) -> Score:
        template = with_changes(self._template, exchange) if self._template is PROMPT else self._template
        request = build_judge_request(SYSTEM, fill_prompt(template, exchange), exchange, SCHEMA)
        try:
            score = await ask_judge(self._judge, request, parse_reply)
        except BadJudgement as error:
            score = Score(score=0.0, misses=(str(error),), failed=True)
        return msgspec.structs.replace(score, evaluator_provider_request=prompts_of(request))
