"""Make the request to a judge from a prompt template."""

from collections.abc import Mapping

from agentv.evaluators.judging.prompt import build_judge_request, fill_prompt, names_messages, new_fence
from agentv.evaluators.judging.reply import require_whole_messages
from agentv.records import Exchange, Json, ProviderRequest


def template_request(
    template: str,
    exchange: Exchange,
    *,
    system: str,
    schema: Json,
    variables: Mapping[str, str] | None = None,
) -> ProviderRequest:
    """Return the request with a template filled for this exchange, and with more variables.

    Raise `BadJudgement` if the template shows messages that a results file has shortened.
    """
    if names_messages(template):
        require_whole_messages(exchange.response)
    fence = new_fence()
    prompt = fill_prompt(template, exchange, fence, variables)
    return build_judge_request(
        system,
        prompt,
        exchange,
        schema,
        fence,
    )
