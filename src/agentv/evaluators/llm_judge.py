"""Scores an answer with a language model as judge."""

from dataclasses import dataclass
from typing import ClassVar

from agentv.evaluators.judging.examples import NO_EXAMPLES, CheckableJudge, Examples, check_examples
from agentv.evaluators.judging.panel import JudgeNames, Repeats, open_panel
from agentv.evaluators.judging.prompt import DATA, read_prompt, with_sections
from agentv.evaluators.judging.reply import parse_reply
from agentv.evaluators.judging.request import template_request
from agentv.files.yaml import Steps
from agentv.protocols import Evaluator, EvaluatorContext, EvaluatorSettings
from agentv.records import Exchange, Json, Score

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

_POINTS: Json = {"type": "array", "items": {"type": "string"}}
SCHEMA: Json = {
    "type": "object",
    "properties": {
        "reasoning": {"type": "string"},
        "hits": _POINTS,
        "misses": _POINTS,
        "score": {"type": "number"},
    },
    "required": ["reasoning", "hits", "misses", "score"],
    "additionalProperties": False,
}


class LlmJudge(EvaluatorSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Ask a language model for a score, with the user's own prompt or with the built-in one."""

    asks_model: ClassVar[bool] = True
    templates: ClassVar[tuple[Steps, ...]] = (("prompt",),)

    prompt: str | None = None
    """Your own prompt, or the path of a file that contains it."""
    judge_target: JudgeNames | None = None
    """The judge, or a list of judges. Defaults to the target's judge."""
    judge_repeats: Repeats = 1
    """How many times each judge is called per answer."""
    examples: Examples = NO_EXAMPLES
    """Answers with a known verdict, for `--check-judge`."""

    def open(self, context: EvaluatorContext) -> Evaluator:
        template = PROMPT
        if self.prompt is not None:
            template = read_prompt(self.prompt, context)
        panel = open_panel(self.judge_target, self.judge_repeats, context)
        return _ModelJudge(panel, check_examples(self.examples), template)


@dataclass(frozen=True)
class _ModelJudge(CheckableJudge):
    """Asks a panel of judges for a score."""

    template: str

    @property
    def compares_with_reference(self) -> bool:
        return self.template is PROMPT

    def fingerprint(self) -> str:
        return self.template

    async def evaluate(self, exchange: Exchange) -> Score:
        template = self.template
        if template is PROMPT:
            # A custom prompt decides whether to show guidelines and file changes.
            template = with_sections(template, exchange)
        request = template_request(template, exchange, system=SYSTEM, schema=SCHEMA)
        return await self.panel.judge(request, parse_reply)
