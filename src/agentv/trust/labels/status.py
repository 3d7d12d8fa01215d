"""Report the number of labels for a run by reviewer, and the inter-rater agreement."""

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import combinations

import msgspec

from agentv.results.run_files import RunFiles
from agentv.stats.agreement import Figure, alpha, kappa, rate
from agentv.trust.labels.file import Label, LabelKey
from agentv.trust.labels.match import LabelBook, match_labels

MAX_PAIRS = 50


class ReviewerStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The labels of one reviewer, or of all reviewers without a name."""

    reviewer: str | None
    labels: int
    passes: int
    stale: int
    unmatched: int


class PairStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The agreement of two reviewers on the answers that both have labelled."""

    reviewers: tuple[str | None, str | None]
    answers: int
    agreement: Figure
    kappa: Figure


class LabelStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The number of labels for a run by reviewer, and the inter-rater agreement."""

    lines: int
    superseded: int
    """The number of labels that the same reviewer has replaced or retracted."""
    results: int
    used: int
    """The number of labels for answers that the results contain."""
    answers: int
    """The number of these answers."""
    random: int
    """The number of used labels for answers that were sampled at random."""
    stale: int
    unmatched: int
    reviewers: tuple[ReviewerStatus, ...]
    pairs: tuple[PairStatus, ...]
    alpha: Figure
    """Krippendorff's alpha of all reviewers, on the answers that two or more have labelled."""


_Ratings = dict[str | None, str]
"""The labels of one answer by reviewer."""


def label_status(run: RunFiles, book: LabelBook) -> LabelStatus:
    """Return the status of the labels for a run; raise `ConfigError` for a run without answers."""
    matched = match_labels(run, book)
    used = list(matched.used)
    stale = _count_by_reviewer(matched.stale)
    unmatched = _count_by_reviewer(matched.unmatched)
    counts = _count_by_reviewer(used)
    passes = _count_by_reviewer(label for label in used if label.label == "pass")
    names = sorted({*counts, *stale, *unmatched}, key=lambda name: (-counts[name], name or ""))
    reviewers: list[ReviewerStatus] = []
    for name in names:
        status = ReviewerStatus(
            reviewer=name,
            labels=counts[name],
            passes=passes[name],
            stale=stale[name],
            unmatched=unmatched[name],
        )
        reviewers.append(status)
    rated: dict[LabelKey, _Ratings] = {}
    for label in used:
        rated.setdefault(label.key, {})[label.reviewer] = label.label
    answers = {(key.eval_id, key.dataset, key.trial, key.answer_digest) for key in rated}
    ratings = list(rated.values())
    return LabelStatus(
        lines=book.lines,
        superseded=book.lines - len(book),
        results=matched.results,
        used=len(used),
        answers=len(answers),
        random=sum(label.sampling == "random" for label in used),
        stale=stale.total(),
        unmatched=unmatched.total(),
        reviewers=tuple(reviewers),
        pairs=tuple(_pairs(names, ratings))[:MAX_PAIRS],
        alpha=alpha([tuple(labels.values()) for labels in ratings]),
    )


def _count_by_reviewer(labels: Iterable[Label]) -> Counter[str | None]:
    return Counter(label.reviewer for label in labels)


def _pairs(names: list[str | None], ratings: list[_Ratings]) -> Iterator[PairStatus]:
    """Yield the agreement of each pair of reviewers who have labelled the same answers."""
    for first, second in combinations(names, 2):
        cells: list[tuple[str, str]] = []
        for labels in ratings:
            if first in labels and second in labels:
                cells.append((labels[first], labels[second]))
        if not cells:
            continue
        same = sum(one == other for one, other in cells)
        yield PairStatus(
            reviewers=(first, second),
            answers=len(cells),
            agreement=rate({(1, 1.0): same, (1, 0.0): len(cells) - same}),
            kappa=kappa({cell: 1} for cell in cells),
        )
