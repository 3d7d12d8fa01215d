"""An answer of the cache -> which calls of judges about it the cache has, too.

What a judge is sent follows from the answer, so it is known before the run. Nobody is asked, and of the evaluators only
those are called that do nothing else than to ask a judge.
"""

import copy
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any

from agentv.calls.cache import Cache
from agentv.calls.cache_key import cache_key
from agentv.errors import AgentvError, ProviderError
from agentv.evaluators.judge_check import judging_evaluators
from agentv.evaluators.score import CaseEvaluators
from agentv.judges.panel import JudgePanel, Parse
from agentv.judges.reply import BadJudgement, ask_judge
from agentv.records import Exchange, ProviderRequest, ProviderResponse, Score


def cached_calls(
    evaluators: CaseEvaluators, exchange: Exchange, cache: Cache, target_key: Callable[[str], Any]
) -> Counter[str]:
    """Return how many of the calls about an answer the cache has, by judge; `target_key` gives that of a judge."""
    found: Counter[str] = Counter()
    for _, configured in judging_evaluators(evaluators.evaluators):
        evaluator: Any = configured.evaluator
        panel = evaluator.panel
        if not isinstance(panel, JudgePanel) or hasattr(evaluator, "inner"):
            continue  # what the model of a composite is sent depends on other scores
        noted = _NotedPanel()
        twin = copy.copy(evaluator)
        twin.panel = noted
        _finish(twin.evaluate(exchange))
        for request, parse in noted.sent:
            for judge in panel.judges:
                stored = _StoredReplies(cache, target_key(judge.name))
                repeats = range(1, panel.repeats + 1)
                found[judge.name] += sum(_finish(ask_judge(stored, request, parse, repeat)) for repeat in repeats)
    return found


class _NotedPanel:
    """Notes what judges would be sent."""

    def __init__(self) -> None:
        self.sent: list[tuple[ProviderRequest, Parse]] = []

    async def judge(self, request: ProviderRequest, parse: Parse) -> Score:
        self.sent.append((request, parse))
        return Score(score=0.0)


class _StoredReplies:
    """A judge that says again what it has said, and nothing else."""

    def __init__(self, cache: Cache, target_key: Any):
        self._cache, self._target_key = cache, target_key

    async def invoke(self, request: ProviderRequest) -> ProviderResponse:
        found = self._cache.get(cache_key(self._target_key, request))
        if found is None:
            raise ProviderError("the cache does not have it")
        return found


def _finish(call: Coroutine[Any, Any, Any]) -> bool:
    """Return whether a call that waits for nothing comes to its end without an error."""
    try:
        call.send(None)
    except StopIteration:
        return True
    except (AgentvError, BadJudgement):
        return False
    call.close()  # it waits for something, which is not ours to give
    return False
