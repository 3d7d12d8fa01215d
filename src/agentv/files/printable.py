"""Escape text from files and agents for printing on one line."""


def printable(text: str) -> str:
    """Return the text with control characters escaped, so that it cannot fake other lines or control the terminal."""
    if text.isprintable():
        return text
    escaped = []
    for character in text:
        if character.isprintable():
            escaped.append(character)
        else:
            escaped.append(repr(character)[1:-1])
    return "".join(escaped)
