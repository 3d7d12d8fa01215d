"""Two versions of an agent: the one that customers talk to, and the one that is to take its place."""


def old(question: str) -> str:
    """The agent that is in use."""
    if "open" in question:
        return "We are open every day."
    if "phone" in question:
        return "Call 555-0100."
    return "I will ask a colleague."


def new(question: str) -> str:
    """Knows more than the old one, but no longer hands over."""
    if "open" in question:
        return "From 9 to 17 o'clock."
    if "return" in question:
        return "Within 30 days."
    if "phone" in question:
        return "Call 555-0100."
    return "How can I help?"
