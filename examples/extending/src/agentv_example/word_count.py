"""An evaluator that checks the number of words in an answer."""

from typing import Annotated

from msgspec import Meta

from agentv.extend import ConfigError, Evaluator, EvaluatorContext, EvaluatorSettings, Exchange, Score

Count = Annotated[int, Meta(ge=0)]


class WordCount(EvaluatorSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The settings, in addition to `type`, `name` and `weight`. The class is also the evaluator."""

    least: Count = 0
    most: Count

    def open(self, context: EvaluatorContext) -> Evaluator:
        """Optional: check constraints that types cannot express, before the run starts."""
        if self.least > self.most:
            raise ConfigError(f"'least' is {self.least}, which is greater than 'most' ({self.most})")
        return self

    async def evaluate(self, exchange: Exchange) -> Score:
        count = len(exchange.response.text.split())
        if self.least <= count <= self.most:
            return Score(score=1.0, hits=(f"has {count} words",))
        return Score(score=0.0, misses=(f"has {count} words, not {self.least} to {self.most}",))
