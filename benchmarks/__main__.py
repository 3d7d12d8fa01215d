"""`make bench`, or `python -m benchmarks [NAME...]`: one line a figure, with the promise it is held against."""

import sys
from importlib import import_module

NAMES = (
    "loading",
    "running",
    "regression",
    "evaluating",
    "objects",
    "commands",
    "asking",
    "batches",
    "comparing",
    "merging",
    "grading",
    "reporting",
    "viewing",
    "startup",
    "cluster",
)


def main(names: list[str]) -> None:
    for name in names or NAMES:
        for figure in import_module(f"benchmarks.{name}").figures():
            print(figure, flush=True)


main(sys.argv[1:])
