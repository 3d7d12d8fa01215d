"""Labels and a results file -> how many there are, by whom, and how far the reviewers agree."""

from collections import Counter
from collections.abc import Iterable
from itertools import combinations

import msgspec

from agentv.results.labels.file import Label, LabelKey
from agentv.results.labels.match import LabelBook, match_labels
from agentv.results.run_files import RunFiles
from agentv.stats.agreement import Figure, alpha, kappa, rate

MAX_PAIRS = 50


class ReviewerStatus(msgspec.Struct, frozen=True, kw_only=True):
    """What one person has labelled; without a name, those who gave none."""

    reviewer: str | None
    labels: int
    passes: int
    stale: int
    unmatched: int


class PairStatus(msgspec.Struct, frozen=True, kw_only=True):
    """How far two people agree on the answers that both have labelled."""

    reviewers: tuple[str | None, str | None]
    answers: int
    agreement: Figure
    kappa: Figure


class LabelStatus(msgspec.Struct, frozen=True, kw_only=True):
    """How many labels there are, by whom, and how far the reviewers agree."""

    lines: int
    superseded: int
    """Labels that the same person has replaced or taken back."""
    results: int
    used: int
    """Labels of answers that are in the results."""
    answers: int
    """The answers that they are of."""
    random: int
    """Of these labels, those of answers that were drawn at random."""
    stale: int
    unmatched: int
    reviewers: tuple[ReviewerStatus, ...]
    pairs: tuple[PairStatus, ...]
    alpha: Figure
    """Of all reviewers, on the answers that two or more have labelled."""


def label_status(run: RunFiles, book: LabelBook) -> LabelStatus:
    """Return what there is of labels for a run; raise `ConfigError` for one that has no answers."""
    matched = match_labels(run, book)
    used, stale, unmatched = list(matched.used), Counter(_names(matched.stale)), Counter(_names(matched.unmatched))
    counts, passes = Counter(_names(used)), Counter(_names(label for label in used if label.label == "pass"))
    names = sorted({*counts, *stale, *unmatched}, key=lambda name: (-counts[name], name or ""))
    rated: dict[LabelKey, dict[str | None, str]] = {}
    for label in used:
        rated.setdefault(label.key, {})[label.reviewer] = label.label
    return LabelStatus(
        lines=book.lines,
        superseded=book.lines - len(book),
        results=matched.results,
        used=len(used),
        answers=len({key[:4] for key in rated}),
        random=sum(label.sampling == "random" for label in used),
        stale=stale.total(),
        unmatched=unmatched.total(),
        reviewers=tuple(
            ReviewerStatus(
                reviewer=name, labels=counts[name], passes=passes[name], stale=stale[name], unmatched=unmatched[name]
            )
            for name in names
        ),
        pairs=tuple(_pairs(names, list(rated.values())))[:MAX_PAIRS],
        alpha=alpha([tuple(labels.values()) for labels in rated.values()]),
    )


def _names(labels: Iterable[Label]) -> Iterable[str | None]:
    return (label.reviewer for label in labels)


def _pairs(names: list[str | None], rated: list[dict[str | None, str]]) -> Iterable[PairStatus]:
    """Yield the agreement of each two people who have labelled the same."""
    for first, second in combinations(names, 2):
        cells = [(labels[first], labels[second]) for labels in rated if first in labels and second in labels]
        if cells:
            same = sum(a == b for a, b in cells)
            yield PairStatus(
                reviewers=(first, second),
                answers=len(cells),
                agreement=rate({(1, 1.0): same, (1, 0.0): len(cells) - same}),
                kappa=kappa({cell: 1} for cell in cells),
            )
