"""An evaluator that passes answers of the right length."""

from typing import Annotated

from msgspec import Meta

from agentv.extend import ConfigError, Evaluator, EvaluatorContext, EvaluatorSettings, Exchange, Score

Count = Annotated[int, Meta(ge=0)]


class WordCount(EvaluatorSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The settings, besides `type`, `name` and `weight`; and as no more is needed, the evaluator itself."""

    least: Count = 0
    most: Count

    def open(self, context: EvaluatorContext) -> Evaluator:
        """Optional: what no type can tell is checked here, before anything runs."""
        if self.least > self.most:
            raise ConfigError(f"no answer has {self.least} words or more, but at most {self.most}")
        return self

    async def evaluate(self, exchange: Exchange) -> Score:
        count = len(exchange.response.text.split())
        if self.least <= count <= self.most:
            return Score(score=1.0, hits=(f"has {count} words",))
        return Score(score=0.0, misses=(f"has {count} words, not {self.least} to {self.most}",))
