"""The next version of the small agent: it knows a second capital and can multiply."""

import math
import re


def answer(question: str) -> str:
    """Answer a question about capitals, sums or products."""
    numbers = [int(number) for number in re.findall(r"\d+", question)]
    if "Norway" in question:
        return "The capital of France is Paris. That of Norway is Oslo."
    if "capital" in question:
        return "Paris" if "one word" in question else "The capital of France is Paris. With pleasure!"
    if "*" in question:
        return f"The product is {math.prod(numbers)}."
    if numbers:
        return f"The sum is {sum(numbers)}."
    return "I do not know."
