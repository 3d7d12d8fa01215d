"""Writes letters to customers, and makes no promises."""


def write(question: str) -> str:
    """The letter that is asked for."""
    if question.startswith("Remind"):
        return "Would you please pay the 40 EUR that are still open?"
    return "We are sorry that your parcel is late."
