"""Scores an answer against a rubric: a language model checks each criterion."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar, NamedTuple

import msgspec
from msgspec import Meta

from agentv.errors import SettingError
from agentv.evaluators.judging.examples import NO_EXAMPLES, CheckableJudge, Examples, check_examples
from agentv.evaluators.judging.panel import JudgeNames, Repeats, ScoresByJudge, open_panel
from agentv.evaluators.judging.prompt import DATA, build_judge_request, fill_prompt, new_fence, with_sections
from agentv.evaluators.judging.reply import BadJudgement, find_object
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
    """The criterion."""
    id: Text | None = None
    """The name of the criterion in results."""
    weight: Weight = 1.0
    """The weight of the criterion in the score."""
    required: bool = False
    """Whether the case fails if the answer does not meet it."""


class Rubric(EvaluatorSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Ask a language model which criteria an answer meets; the score is their share of the total weight."""

    asks_model: ClassVar[bool] = True

    rubrics: Annotated[tuple[Text | Item, ...], Meta(min_length=1)]
    """The criteria."""
    judge_target: JudgeNames | None = None
    """The judge, or a list of judges. Defaults to the target's judge."""
    judge_repeats: Repeats = 1
    """How many times each judge is called per answer."""
    examples: Examples = NO_EXAMPLES
    """Answers with a known verdict, for `--check-judge`."""

    def open(self, context: EvaluatorContext) -> Evaluator:
        items = _items_with_ids(self.rubrics)
        ids = [item.id for item in items]
        for index, id_ in enumerate(ids):
            if id_ in ids[:index]:
                raise SettingError(f"rubrics: duplicate id {id_!r}", "rubrics", index, hint="rename one of them")
        panel = open_panel(self.judge_target, self.judge_repeats, context)
        return _RubricJudge(panel, check_examples(self.examples), items)


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


_OMITTED = _Check(False, "the judge did not check it")


@dataclass(frozen=True)
class _RubricJudge(CheckableJudge):
    """Asks a panel of judges which items an answer meets."""

    items: tuple[Item, ...]

    async def evaluate(self, exchange: Exchange) -> Score:
        fence = new_fence()
        template = with_sections(PROMPT, exchange)
        material = fill_prompt(template, exchange, fence)
        criteria = "\n".join(f"- {item.id}: {item.description}" for item in self.items)
        request = build_judge_request(
            SYSTEM,
            material + CRITERIA + criteria,
            exchange,
            SCHEMA,
            fence,
        )
        return await self.panel.judge(request, self._parse, self._decide)

    def _decide(self, scores_by_judge: ScoresByJudge) -> Verdict | None:
        """Return `fail` if a required item is missed. It is met only if most judges find it met."""
        for index, item in enumerate(self.items):
            if not item.required:
                continue
            votes = [_is_mostly_met(index, scores) for scores in scores_by_judge]
            if votes.count(True) <= len(votes) / 2:
                return "fail"
        return None

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


def _is_mostly_met(index: int, scores: Sequence[Score]) -> bool:
    """Return whether most judgements of one judge find an item met."""
    met = 0
    for score in scores:
        assert isinstance(score.details, dict)
        if score.details["checks"][index]["satisfied"]:
            met += 1
    return met > len(scores) / 2


def _share_of_weight(met: Sequence[Item], items: Sequence[Item]) -> float:
    """Return the weight of the met items divided by the total weight; 0 if all weights are 0."""
    total = sum(item.weight for item in items)
    if not total:
        return 0.0
    return sum(item.weight for item in met) / total


def _miss(item: Item, check: _Check) -> str:
    text = f"not met: {item.description}"
    if item.required:
        text = f"required, but not met: {item.description}"
    if check.reasoning:
        text = f"{text} ({check.reasoning})"
    return text


def _details(item: Item, check: _Check) -> Json:
    """Return the check of an item for the results file."""
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
        raise BadJudgement("'checks' is not a list")
    checks: dict[str, _Check] = {}
    for entry in raw["checks"]:
        if not isinstance(entry, dict) or not isinstance(entry.get("satisfied"), bool):
            raise BadJudgement("a check lacks 'satisfied' (true or false)")
        id_ = str(entry.get("id"))
        reasoning = str(entry.get("reasoning") or "")
        earlier = checks.get(id_)
        if earlier is None or earlier.satisfied:
            checks[id_] = _Check(entry["satisfied"], reasoning)
    overall_reasoning = str(raw.get("overall_reasoning") or "")
    return checks, overall_reasoning
