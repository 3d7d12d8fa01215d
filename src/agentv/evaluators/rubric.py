"""A language model checks the answer against a list, item by item."""

from collections.abc import Iterator, Sequence
from typing import Annotated, Any, ClassVar, NamedTuple

import msgspec
from msgspec import Meta

from agentv.errors import SettingError
from agentv.judges.panel import JudgeNames, JudgePanel, Repeats, open_panel
from agentv.judges.prompt import DATA, build_judge_request, fill_prompt, new_fence, with_changes
from agentv.judges.reply import BadJudgement, find_object
from agentv.protocols import Evaluator, EvaluatorContext, EvaluatorSettings
from agentv.records import Exchange, Score, Weight

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

SCHEMA: dict[str, Any] = {
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

Text = Annotated[str, Meta(min_length=1)]


class Item(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One criterion. If it is `required`, an answer that misses it fails, whatever its score."""

    description: Text
    id: Text | None = None
    weight: Weight = 1.0
    required: bool = False


class Rubric(EvaluatorSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Asks a language model which items of a list an answer meets; the score is their share of the weight."""

    asks_model: ClassVar[bool] = True

    rubrics: Annotated[tuple[Text | Item, ...], Meta(min_length=1)]
    judge_target: JudgeNames | None = None
    judge_repeats: Repeats = 1

    def open(self, context: EvaluatorContext) -> Evaluator:
        items = tuple(_items(self.rubrics))
        ids = [item.id for item in items]
        for index, id_ in enumerate(ids):
            if id_ in ids[:index]:
                raise SettingError(f"rubrics: the id {id_!r} stands twice", "rubrics", index, hint="rename one of them")
        return _Rubric(items, open_panel(self.judge_target, self.judge_repeats, context))


def _items(given: Sequence[str | Item]) -> Iterator[Item]:
    for number, entry in enumerate(given, 1):
        item = Item(description=entry) if isinstance(entry, str) else entry
        yield item if item.id else msgspec.structs.replace(item, id=f"rubric-{number}")


class _Check(NamedTuple):
    satisfied: bool
    reasoning: str


class _Rubric(Evaluator):
    def __init__(self, items: tuple[Item, ...], panel: JudgePanel):
        self._items, self.panel = items, panel

    async def evaluate(self, exchange: Exchange) -> Score:
        listed = "\n".join(f"- {item.id}: {item.description}" for item in self._items)
        fence = new_fence()
        prompt = fill_prompt(with_changes(PROMPT, exchange), exchange, fence) + CRITERIA + listed
        request = build_judge_request(SYSTEM, prompt, exchange, SCHEMA, fence)
        return await self.panel.judge(request, self._parse)

    def _parse(self, text: str) -> Score:
        """Return the score in a judge's reply; raise `BadJudgement` if there is none."""
        checks, reasoning = _parse_checks(text)
        left_out = _Check(False, "the judge left it out")
        found = [(item, checks.get(item.id or "", left_out)) for item in self._items]
        total = sum(item.weight for item in self._items)
        met = sum(item.weight for item, check in found if check.satisfied)
        failed = any(item.required and not check.satisfied for item, check in found)
        return Score(
            score=met / total if total else 0.0,
            verdict="fail" if failed else None,
            hits=tuple(item.description for item, check in found if check.satisfied),
            misses=tuple(_missed(item, check) for item, check in found if not check.satisfied),
            reasoning=reasoning,
            details={"checks": [_detail(item, check) for item, check in found]},
        )


def _missed(item: Item, check: _Check) -> str:
    start = f"required: {item.description}" if item.required else item.description
    return f"{start} ({check.reasoning})" if check.reasoning else start


def _detail(item: Item, check: _Check) -> dict[str, Any]:
    about = {"id": item.id, "description": item.description, "weight": item.weight, "required": item.required}
    return {**about, "satisfied": check.satisfied, "reasoning": check.reasoning}


def _parse_checks(text: str) -> tuple[dict[str, _Check], str]:
    """Return what the judge says of each item, and its reasoning. An item that is named twice must be met twice."""
    raw = find_object(text, "checks")
    if not isinstance(raw["checks"], list):
        raise BadJudgement("'checks' is no list")
    found: dict[str, _Check] = {}
    for entry in raw["checks"]:
        if not isinstance(entry, dict) or not isinstance(entry.get("satisfied"), bool):
            raise BadJudgement("a check does not say whether it is 'satisfied', true or false")
        check = _Check(entry["satisfied"], str(entry.get("reasoning") or ""))
        id_ = str(entry.get("id"))
        if id_ not in found or found[id_].satisfied:
            found[id_] = check
    return found, str(raw.get("overall_reasoning") or "")
