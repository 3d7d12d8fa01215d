"""A judge of your own: a function that gets what its parameters name, and gives a score from 0 to 1."""

import re

MOST_WORDS = 30


def score(candidate_answer: str, reference_answer: str) -> dict:
    """Three quarters for the right answer, one quarter for saying it in few words."""
    is_right = re.search(rf"\b{re.escape(reference_answer)}\b", candidate_answer) is not None
    is_brief = 0 < len(candidate_answer.split()) <= MOST_WORDS
    checks = {f"says {reference_answer}": is_right, f"takes at most {MOST_WORDS} words": is_brief}
    return {
        "score": 0.75 * is_right + 0.25 * is_brief,
        "hits": [check for check, is_met in checks.items() if is_met],
        "misses": [check for check, is_met in checks.items() if not is_met],
    }
