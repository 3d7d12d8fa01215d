"""Read token counts in the shapes of OpenAI, Anthropic and Gemini, or in agentv's own."""

import math
from collections.abc import Mapping
from typing import Any

import msgspec

from agentv.files.dropped import DroppedParts
from agentv.files.plain import plain_mapping
from agentv.records import TokenUsage

INPUTS = ("input", "prompt_tokens", "input_tokens", "prompt_token_count", "promptTokenCount", "inputTokens")
OUTPUTS = (
    "output",
    "completion_tokens",
    "output_tokens",
    "candidates_token_count",
    "candidatesTokenCount",
    "outputTokens",
)
CACHED = ("cached", "cached_input_tokens", "cached_content_token_count", "cachedContentTokenCount")
CACHE_WRITES = ("cache_write", "cache_write_input_tokens")
REASONING = ("reasoning", "reasoning_output_tokens")
INPUT_DETAILS = ("prompt_tokens_details", "input_tokens_details", "input_token_details")
OUTPUT_DETAILS = ("completion_tokens_details", "output_tokens_details", "output_token_details")
CACHED_DETAILS = ("cached_tokens", "cache_read")
CACHE_WRITE_DETAILS = ("cache_write_tokens", "cache_creation")
REASONING_DETAILS = ("reasoning_tokens", "thinking_tokens", "reasoning")
CACHE_READS_APART = ("cache_read_input_tokens", "cacheReadInputTokens")
"""Anthropic's count of cached input, which its count of input excludes."""
CACHE_WRITES_APART = ("cache_creation_input_tokens", "cacheCreationInputTokens")
THOUGHTS_APART = ("thoughts_token_count", "thoughtsTokenCount")
"""Gemini's count of reasoning, which its count of output excludes."""
TOOL_PROMPTS_APART = ("tool_use_prompt_token_count", "toolUsePromptTokenCount")
"""Gemini's count of input that tools add, which its count of input excludes."""


def read_usage(raw: Any, dropped: DroppedParts | None = None) -> TokenUsage | None:
    """Return the token counts, or None if there are none. Counts that are not valid are counted in `dropped`."""
    if raw is None:
        return None
    if dropped is None:
        dropped = DroppedParts()
    entry = plain_mapping(raw)
    if entry is None:
        dropped.add("figures", {"token_usage": raw})
        return None
    counts = _Counts(entry, dropped)
    input_details = _Counts(_details(entry, INPUT_DETAILS), dropped)
    output_details = _Counts(_details(entry, OUTPUT_DETAILS), dropped)
    cached_apart = counts.first(CACHE_READS_APART)
    written_apart = counts.first(CACHE_WRITES_APART)
    thoughts_apart = counts.first(THOUGHTS_APART)
    usage = TokenUsage(
        input=_sum(counts.first(INPUTS), cached_apart, written_apart, counts.first(TOOL_PROMPTS_APART)),
        output=_sum(counts.first(OUTPUTS), thoughts_apart),
        cached=_known(counts.first(CACHED), input_details.first(CACHED_DETAILS), cached_apart),
        cache_write=_known(counts.first(CACHE_WRITES), input_details.first(CACHE_WRITE_DETAILS), written_apart),
        reasoning=_known(counts.first(REASONING), output_details.first(REASONING_DETAILS), thoughts_apart),
    )
    if usage == TokenUsage():
        return None
    return usage


class _Counts:
    """The counts in a usage object."""

    def __init__(self, entry: Mapping[str, Any], dropped: DroppedParts):
        self._entry = entry
        self._dropped = dropped

    def first(self, keys: tuple[str, ...]) -> int | None:
        """Return the first of these counts that is present."""
        for key in keys:
            number = read_figure(key, self._entry.get(key), self._dropped)
            if number is not None:
                return round(number)
        return None


def read_figure(name: str, value: Any, dropped: DroppedParts) -> float | None:
    """Return a number that is not negative, also if it is written as text.

    Anything else is counted in `dropped`, except for None.
    """
    if value is None:
        return None
    number = _number(value)
    if number is None or number < 0:
        dropped.add("figures", {name: value})
        return None
    return number


def _number(value: Any) -> float | None:
    """Return a finite number, also if it is written as text; otherwise None."""
    if isinstance(value, bool):
        return None
    if hasattr(value, "item") and not getattr(value, "ndim", 0):  # a scalar of numpy
        value = value.item()
    try:
        number = msgspec.convert(value, float, strict=False)
    except msgspec.ValidationError:
        return None
    if not math.isfinite(number):
        return None
    return number


def _details(entry: Mapping[str, Any], keys: tuple[str, ...]) -> Mapping[str, Any]:
    for key in keys:
        details = plain_mapping(entry.get(key))
        if details is not None:
            return details
    return {}


def _sum(*counts: int | None) -> int | None:
    """Return the sum of the known counts, or None if all are unknown."""
    known = [count for count in counts if count is not None]
    if not known:
        return None
    return sum(known)


def _known(*counts: int | None) -> int | None:
    """Return the first count that is known."""
    for count in counts:
        if count is not None:
            return count
    return None
