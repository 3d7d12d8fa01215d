"""Two versions of an agent: the one in production, and its replacement."""


def old(question: str) -> str:
    """Answer like the agent in production."""
    if "open" in question:
        return "We are open every day."
    if "phone" in question:
        return "Call 555-0100."
    return "I will ask a colleague."


def new(question: str) -> str:
    """Answer more questions than the old agent, but never hand over to a person."""
    if "open" in question:
        return "From 9 to 17 o'clock."
    if "return" in question:
        return "Within 30 days."
    if "phone" in question:
        return "Call 555-0100."
    return "How can I help?"
