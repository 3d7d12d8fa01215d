"""A small agent to try agentv on: it knows one capital and can add, but not multiply."""

import re


def answer(question: str) -> str:
    """Answer a question about capitals or sums."""
    numbers = [int(number) for number in re.findall(r"\d+", question)]
    if "capital" in question:
        return "Paris" if "one word" in question else "The capital of France is Paris. With pleasure!"
    if numbers:
        return f"The sum is {sum(numbers)}."
    return "I do not know."
