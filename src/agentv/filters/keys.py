"""The keys of filters: which exist where, and which values they take."""

from collections.abc import Sequence
from typing import Literal, NamedTuple

On = Literal["cases", "results", "comparisons"]
"""What a filter selects. Results have the keys of cases as well, and comparisons those of results."""
ON: tuple[On, ...] = ("cases", "results", "comparisons")
Values = Literal["text", "number", "choice", "any", "evaluator"]
"""The values of a key: text (globs), numbers, one of its choices, or text and numbers alike.

`evaluator` takes text; `evaluator.NAME` takes numbers and the choices.
"""


class Key(NamedTuple):
    """A key of filters."""

    values: Values
    on: On = "cases"
    """The first of `ON` that has the key."""
    choices: Sequence[str] = ()
    needs_name: bool = False
    """Whether a name follows, as in `metadata.level`."""

    @property
    def takes_name(self) -> bool:
        """Whether a name may follow the key."""
        return self.needs_name or self.values == "evaluator"


VERDICTS = ("pass", "borderline", "fail", "error")
"""The verdicts of filters. An error also counts as `fail`."""
YES_OR_NO = ("yes", "no")
KEYS = {
    "id": Key("text"),
    "tag": Key("text"),
    "dataset": Key("text"),
    "target": Key("text"),
    "metadata": Key("any", needs_name=True),
    "vars": Key("any", needs_name=True),
    "verdict": Key("choice", "results", VERDICTS),
    "score": Key("number", "results"),
    "evaluator": Key("evaluator", "results", VERDICTS),
    "error": Key("choice", "results", YES_OR_NO),
    "note": Key("choice", "results", YES_OR_NO),
    "duration": Key("number", "results"),
    "cost": Key("number", "results"),
    "flip": Key("choice", "comparisons", ("broken", "fixed", "errored", "no")),
    "delta": Key("number", "comparisons"),
}
"""All keys. Those of comparisons exist on pages only."""


def keys_on(on: On) -> list[str]:
    """Return the available keys as written in filters, such as `metadata.KEY`."""
    last = ON.index(on)
    names = []
    for name, key in KEYS.items():
        if ON.index(key.on) > last:
            continue
        if key.needs_name:
            names.append(f"{name}.KEY")
        else:
            names.append(name)
    return names
