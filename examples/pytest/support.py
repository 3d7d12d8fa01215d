"""An agent that answers customers' questions."""

ANSWERS = {
    "open": "We are open from 9 to 17.",
    "return": "You may return it within 30 days.",
    "ship": "Shipping takes two days.",
    "gift": "We wrap gifts for free.",
}


def answer(question: str) -> str:
    return next((text for word, text in ANSWERS.items() if word in question.lower()), "I do not know.")


def last_release(question: str) -> str:
    return answer(question) if "gift" not in question else "I do not know."
