"""A language model grades the answer."""

from typing import Any

import msgspec

from agentv.judges.prompt import DATA, filled, judge_request, read_prompt, shown
from agentv.judges.reply import MOST_POINTS, BadJudgement, judged, object_in, score_from
from agentv.protocols import Evaluator, EvaluatorContext, Provider
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


class LlmJudge(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Asks a language model for a score, with the prompt of the user's or with ours."""

    prompt: str | None = None
    judge_target: str | None = None

    def open(self, context: EvaluatorContext) -> Evaluator:
        template = PROMPT if self.prompt is None else read_prompt(self.prompt, context)
        return _Judge(template, context.judge(self.judge_target))


class _Judge:
    def __init__(self, template: str, judge: Provider):
        self.fingerprint = template
        self._judge = judge

    async def evaluate(self, exchange: Exchange) -> Score:
        request = judge_request(SYSTEM, filled(self.fingerprint, exchange), exchange, SCHEMA)
        try:
            score = await judged(self._judge, request, lambda text: score_from(object_in(text, "score"), MOST_POINTS))
        except BadJudgement as error:
            score = Score(score=0.0, misses=(str(error),), failed=True)
        return msgspec.structs.replace(score, evaluator_provider_request=shown(request))
