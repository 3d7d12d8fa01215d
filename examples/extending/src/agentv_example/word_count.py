"""An evaluator that passes answers with a number of words in a given range."""

from typing import Annotated

from msgspec import Meta

from agentv.extend import ConfigError, Evaluator, EvaluatorContext, EvaluatorSettings, Exchange, Score

Count = Annotated[int, Meta(ge=0)]


class WordCount(EvaluatorSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The settings, in addition to `type`, `name` and `weight`. They are also the evaluator."""

    least: Count = 0
    most: Count

    def open(self, context: EvaluatorContext) -> Evaluator:
        """Optional: check what types cannot express, before the run starts."""
        if self.least > self.most:
            raise ConfigError(f"no answer has {self.least} words or more, but at most {self.most}")
        return self

    async def evaluate(self, exchange: Exchange) -> Score:
        count = len(exchange.response.text.split())
        if self.least <= count <= self.most:
            return Score(score=1.0, hits=(f"has {count} words",))
        return Score(score=0.0, misses=(f"has {count} words, not {self.least} to {self.most}",))
