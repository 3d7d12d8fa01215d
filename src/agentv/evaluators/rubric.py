"""Scores an answer against a rubric: a language model checks each criterion."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar, NamedTuple

import msgspec
from msgspec import Meta

from agentv.errors import SettingError
from agentv.judges.panel import JudgeNames, JudgePanel, Repeats, open_panel
from agentv.judges.prompt import DATA, build_judge_request, fill_prompt, new_fence, with_changes
from agentv.judges.reply import BadJudgement, find_object
from agentv.protocols import Evaluator, EvaluatorContext, EvaluatorSettings
from agentv.providers.settings import Text
from agentv.records import Exchange, Json, Score, Verdict, Weight

SYSTEM = f"""You check the answer of an AI agent against a list of criteria, each on its own. {DATA}
Reply with one JSON object and nothing else:
{{"checks": [{{"id": the criterion's id, "reasoning": one sentence, then "satisfied": true or false}}],
"overall_reasoning": one or two sentences}}"""

PROMPT = """What was asked:
{{ question }}

What is expected of the answer:
{{ expected_outcome }}

The answer to check:
{{ candidate_answer }}
"""
CRITERIA = "\nThe criteria:\n"

SCHEMA: Json = {
    "type": "object",
    "properties": {
        "checks": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "id": {"type": "string"},
                    "reasoning": {"type": "string"},
                    "satisfied": {"type": "boolean"},
                },
                "required": ["id", "reasoning", "satisfied"],
                "additionalProperties": False,
            },
        },
        "overall_reasoning": {"type": "string"},
    },
    "required": ["checks", "overall_reasoning"],
    "additionalProperties": False,
}


class Item(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One criterion. If it is `required`, an answer that does not meet it fails regardless of its score."""

    description: Text
    id: Text | None = None
    weight: Weight = 1.0
    required: bool = False


class Rubric(EvaluatorSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Ask a language model which criteria an answer meets; the score is their share of the total weight."""

    asks_model: ClassVar[bool] = True

    rubrics: Annotated[tuple[Text | Item, ...], Meta(min_length=1)]
    judge_target: JudgeNames | None = None
    judge_repeats: Repeats = 1

    def open(self, context: EvaluatorContext) -> Evaluator:
        items = _items_with_ids(self.rubrics)
        ids = [item.id for item in items]
        for index, id_ in enumerate(ids):
            if id_ in ids[:index]:
                raise SettingError(f"rubrics: the id {id_!r} stands twice", "rubrics", index, hint="rename one of them")
        panel = open_panel(self.judge_target, self.judge_repeats, context)
        return _RubricJudge(items, panel)


def _items_with_ids(given: Sequence[str | Item]) -> tuple[Item, ...]:
    """Return the items of a rubric; those without an id are numbered."""
    items = []
    for number, entry in enumerate(given, 1):
        own_id = f"rubric-{number}"
        if isinstance(entry, str):
            items.append(Item(description=entry, id=own_id))
        elif not entry.id:
            items.append(msgspec.structs.replace(entry, id=own_id))
        else:
            items.append(entry)
    return tuple(items)


class _Check(NamedTuple):
    """What the judge says about one item."""

    satisfied: bool
    reasoning: str


_OMITTED = _Check(False, "the judge left it out")


@dataclass
class _RubricJudge(Evaluator):
    """Asks a panel of judges which items an answer meets."""

    items: tuple[Item, ...]
    panel: JudgePanel

    async def evaluate(self, exchange: Exchange) -> Score:
        fence = new_fence()
        template = with_changes(PROMPT, exchange)
        material = fill_prompt(template, exchange, fence)
        criteria = "\n".join(f"- {item.id}: {item.description}" for item in self.items)
        request = build_judge_request(
            SYSTEM,
            material + CRITERIA + criteria,
            exchange,
            SCHEMA,
            fence,
        )
        return await self.panel.judge(request, self._parse)

    def _parse(self, text: str) -> Score:
        """Return the score in a judge's reply; raise `BadJudgement` if there is none."""
        checks, reasoning = _parse_checks(text)
        met: list[Item] = []
        hits: list[str] = []
        misses: list[str] = []
        details: list[Json] = []
        verdict: Verdict | None = None
        for item in self.items:
            check = checks.get(item.id or "", _OMITTED)
            details.append(_details(item, check))
            if check.satisfied:
                met.append(item)
                hits.append(item.description)
                continue
            misses.append(_miss(item, check))
            if item.required:
                verdict = "fail"
        return Score(
            score=_share_of_weight(met, self.items),
            verdict=verdict,
            hits=tuple(hits),
            misses=tuple(misses),
            reasoning=reasoning,
            details={"checks": details},
        )


def _share_of_weight(met: Sequence[Item], items: Sequence[Item]) -> float:
    """Return the weight of the met items divided by the total weight; 0 if all weights are 0."""
    total = sum(item.weight for item in items)
    if not total:
        return 0.0
    return sum(item.weight for item in met) / total


def _miss(item: Item, check: _Check) -> str:
    text = item.description
    if item.required:
        text = f"required: {text}"
    if check.reasoning:
        text = f"{text} ({check.reasoning})"
    return text


def _details(item: Item, check: _Check) -> Json:
    """Return the check of an item as it is written to the results file."""
    return {
        "id": item.id,
        "description": item.description,
        "weight": item.weight,
        "required": item.required,
        "satisfied": check.satisfied,
        "reasoning": check.reasoning,
    }


def _parse_checks(text: str) -> tuple[dict[str, _Check], str]:
    """Return the judge's check of each item and its overall reasoning; raise `BadJudgement` if the reply has no checks.

    An item that is listed twice must be satisfied twice.
    """
    raw = find_object(text, "checks")
    if not isinstance(raw["checks"], list):
        raise BadJudgement("'checks' is no list")
    checks: dict[str, _Check] = {}
    for entry in raw["checks"]:
        if not isinstance(entry, dict) or not isinstance(entry.get("satisfied"), bool):
            raise BadJudgement("a check does not say whether it is 'satisfied', true or false")
        id_ = str(entry.get("id"))
        reasoning = str(entry.get("reasoning") or "")
        earlier = checks.get(id_)
        if earlier is None or earlier.satisfied:
            checks[id_] = _Check(entry["satisfied"], reasoning)
    overall_reasoning = str(raw.get("overall_reasoning") or "")
    return checks, overall_reasoning
