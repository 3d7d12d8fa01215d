"""Text from files and agents -> text that is safe to print on one line."""


def printable(text: str) -> str:
    """The text on one line: what a file or an agent says must not pass for a line of ours, or steer the terminal."""
    return "".join(sign if sign.isprintable() else repr(sign)[1:-1] for sign in text)
