"""A language model grades the answer."""

from typing import Any, ClassVar

from agentv.judges.panel import JudgeNames, JudgePanel, Repeats, open_panel
from agentv.judges.prompt import DATA, build_judge_request, fill_prompt, new_fence, read_prompt, with_changes
from agentv.judges.reply import parse_reply
from agentv.protocols import Evaluator, EvaluatorContext, EvaluatorSettings
from agentv.records import Exchange, Score

SYSTEM = f"""You grade the answer of an AI agent against what was expected of it. {DATA}
Reply with one JSON object and nothing else:
{{"reasoning": one or two sentences, written before the score is decided,
"hits": [up to four short points that were met], "misses": [up to four short points that were not],
"score": a number from 0 (worthless) to 1 (perfect), which follows from them}}"""

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
    "properties": {"reasoning": {"type": "string"}, "hits": _POINTS, "misses": _POINTS, "score": {"type": "number"}},
    "required": ["reasoning", "hits", "misses", "score"],
    "additionalProperties": False,
}


class LlmJudge(EvaluatorSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Asks a language model for a score, with the user's own prompt or with ours."""

    asks_model: ClassVar[bool] = True

    prompt: str | None = None
    judge_target: JudgeNames | None = None
    judge_repeats: Repeats = 1

    def open(self, context: EvaluatorContext) -> Evaluator:
        template = PROMPT if self.prompt is None else read_prompt(self.prompt, context)
        return _ModelJudge(template, open_panel(self.judge_target, self.judge_repeats, context))


class _ModelJudge(Evaluator):
    def __init__(self, template: str, panel: JudgePanel):
        self._template, self.panel = template, panel

    def fingerprint(self) -> str:
        return self._template

    async def evaluate(self, exchange: Exchange) -> Score:
        template = with_changes(self._template, exchange) if self._template is PROMPT else self._template
        fence = new_fence()
        request = build_judge_request(SYSTEM, fill_prompt(template, exchange, fence), exchange, SCHEMA, fence)
        return await self.panel.judge(request, parse_reply)
