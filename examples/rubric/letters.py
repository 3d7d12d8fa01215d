"""Writes letters to customers without making promises."""


def write(question: str) -> str:
    """Return the requested letter."""
    if question.startswith("Remind"):
        return "Would you please pay the 40 EUR that are still open?"
    return "We are sorry that your parcel is late."
