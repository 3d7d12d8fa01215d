"""A custom evaluator: a Python function that returns a score from 0 to 1. Its parameters select its inputs."""

import re

MAX_WORDS = 30


def score(candidate_answer: str, reference_answer: str) -> dict:
    """Score 0.75 for the right answer and 0.25 for a brief one."""
    is_right = re.search(rf"\b{re.escape(reference_answer)}\b", candidate_answer) is not None
    is_brief = 0 < len(candidate_answer.split()) <= MAX_WORDS
    checks = {f"contains {reference_answer}": is_right, f"at most {MAX_WORDS} words": is_brief}
    return {
        "score": 0.75 * is_right + 0.25 * is_brief,
        "hits": [check for check, is_met in checks.items() if is_met],
        "misses": [check for check, is_met in checks.items() if not is_met],
    }
