"""Measure judge/human agreement, and estimate the true pass rate of a run from labels."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Literal

from agentv.errors import ConfigError
from agentv.results.run_files import RunFiles, name_of
from agentv.results.runs import RunRecord
from agentv.stats.agreement import Clusters, Figure, kappa, kappa_large_sample, rate
from agentv.stats.correction import SplitCluster, prediction_powered, rogan_gladen
from agentv.stats.fields import Fields
from agentv.trust.labels.file import Label
from agentv.trust.labels.match import LabelBook, LabelMatches, Verdicts, match_labels
from agentv.trust.labels.pairs import JudgedPair, LabelledPairs, OtherRuns, choose_pairs, pairs_of_other_runs

MAX_NAMES = 20
"""The number of evaluators that a hint lists."""
FEW = 10
"""Kappa is unreliable with fewer passes or fails than this."""
NOT_RANDOM = "no label is for an answer that was sampled at random from this run"
Source = Literal["this run", "other runs"]
Bar = Literal["reached", "missed", "undecided"]


class LabelCounts(Fields, frozen=True, kw_only=True):
    """The number of labels that are used, and of those that are not."""

    used: int
    """The number of labels that the figures are computed from."""
    answers: int
    """The number of answers with these labels; several reviewers may label one answer."""
    random: int
    """The number of these answers that were sampled at random from the run; pass rates use only these."""
    disputed: int
    """The number of answers that are excluded because as many reviewers pass as fail them."""
    unjudged: int
    """The number of labelled answers that are excluded because the judge gave no verdict."""
    stale: int
    """The number of labels for other answers to the cases of the run."""
    unmatched: int
    """The number of labels for cases that are not in the run."""
    source: Source = "this run"
    """The runs whose answers are labelled."""


class PassRates(Fields, frozen=True, kw_only=True):
    """The pass rate of a run: by the judge, by the labels alone, and by the judge corrected with labels."""

    judge: Figure
    labels: Figure
    corrected: Figure


class JudgeFigures(Fields, frozen=True, kw_only=True):
    """The agreement of a judge with human labels, and the corrected pass rate of a run."""

    evaluator: str | None
    """The evaluator, or None for the verdict on the case as a whole."""
    labels: LabelCounts
    agreement: Figure
    sensitivity: Figure
    specificity: Figure
    kappa: Figure
    kappa_large_sample: Figure
    base_rate: Figure
    pass_rate: PassRates
    notes: tuple[str, ...] = ()


def judge_figures(
    run: RunFiles,
    book: LabelBook,
    evaluator: str | None,
    runs: Sequence[RunRecord] = (),
) -> JudgeFigures:
    """Return the agreement of the judge of a run with human labels.

    If none of its answers was sampled at random, the pass rate is corrected with labels of other runs, which are looked
    up in `runs`. Raise `ConfigError` if no label can be used, `ResultsError` for an invalid file.
    """
    path = name_of(run)
    matched = match_labels(run, book, evaluator)
    _check_evaluator(matched, path, evaluator)
    own = choose_pairs(matched.answers, evaluator, matched.stale)
    others = OtherRuns()
    if not own.random:
        others = pairs_of_other_runs(run, matched, evaluator, runs)
    if not own.pairs and not others.pairs:
        raise _nothing_to_use(path, matched, own, evaluator)
    return _figures(matched, own, others, evaluator)


def meets_bar(found: Figure, bar: float) -> Bar:
    """Return whether a figure is at least `bar`; undecided if its confidence interval contains `bar`."""
    if found.ci_lower is None or found.ci_upper is None:
        return "undecided"
    if found.ci_lower >= bar:
        return "reached"
    if found.ci_upper < bar:
        return "missed"
    return "undecided"


def _check_evaluator(
    matched: LabelMatches,
    path: Path,
    evaluator: str | None,
) -> None:
    """Raise `ConfigError` for an evaluator that the run does not have."""
    if evaluator is None or evaluator in matched.evaluators:
        return
    known = sorted(matched.evaluators)
    names = "no named evaluators"
    if known:
        names = ", ".join(map(repr, known[:MAX_NAMES]))
    raise ConfigError(
        f"no evaluator is named {evaluator!r}",
        file=path,
        hint=f"evaluators of this run: {names}",
    )


def _nothing_to_use(
    path: Path,
    matched: LabelMatches,
    own: LabelledPairs,
    evaluator: str | None,
) -> ConfigError:
    """Return an error that explains why no label can be used."""
    if own.unjudged or own.disputed:
        message = f"none of {own.unjudged + own.disputed} labelled answers can be used"
        hint = f"{own.unjudged} have no verdict of the judge, {own.disputed} have tied labels"
    elif any(matched.is_used):
        message, hint = _for_other_evaluators(matched, evaluator)
    else:
        message, hint = _for_other_answers(matched)
    return ConfigError(message, file=path, hint=hint)


def _for_other_evaluators(matched: LabelMatches, evaluator: str | None) -> tuple[str, str]:
    """Return the message and hint if all labels are for other evaluators."""
    names = sorted({str(label.evaluator) for label in matched.used})
    shown = " and ".join(map(repr, names))
    message = f"the labels of this run are for the evaluator {shown}"
    if evaluator is None:
        return message, f"--evaluator {names[0]}"
    return message, f"label answers for {evaluator!r}, or the whole case"


def _for_other_answers(matched: LabelMatches) -> tuple[str, str]:
    """Return the message and hint if all labels are for other cases, or for other answers."""
    none = f"none of the {len(matched.book)} labels is"
    if len(matched.book) == 1:
        none = "the only label is not"
    stale = _count(matched.stale)
    missing = list(matched.unmatched)
    if not stale:
        message = f"{none} for a case of this run: there is no case {missing[0].eval_id!r}"
        return message, "the id, dataset and trial must match those of the results"
    message = f"{none} for an answer of this run: {stale} for other answers to its cases (stale)"
    if missing:
        message += f", {len(missing)} for other cases"
    return message, "label answers of this run"


def _count(labels: Iterable[Label]) -> int:
    return sum(1 for _ in labels)


def _figures(
    matched: LabelMatches,
    own: LabelledPairs,
    others: OtherRuns,
    evaluator: str | None,
) -> JudgeFigures:
    pairs = own.pairs or others.pairs
    tables = [Counter(map(_cell, group)) for group in _groups(pairs)]
    whole: Counter[tuple[str, str]] = Counter()
    for table in tables:
        whole.update(table)
    good = [pair for pair in pairs if pair.deserved]
    bad = [pair for pair in pairs if not pair.deserved]
    notes = [
        *_notes(own, others, evaluator),
        *_few(pairs),
        *_without_verdict(matched),
    ]
    return JudgeFigures(
        evaluator=evaluator,
        labels=_label_counts(matched, own, others),
        agreement=_rate(pairs, _is_right),
        sensitivity=_rate(good, _is_right, "no label is 'pass'"),
        specificity=_rate(bad, _is_right, "no label is 'fail'"),
        kappa=kappa(tables),
        kappa_large_sample=kappa_large_sample(whole),
        base_rate=_rate(pairs, _passes_by_label),
        pass_rate=_pass_rates(matched, own, others),
        notes=tuple(notes),
    )


def _label_counts(
    matched: LabelMatches,
    own: LabelledPairs,
    others: OtherRuns,
) -> LabelCounts:
    pairs = own.pairs
    source: Source = "this run"
    if not pairs:
        pairs = others.pairs
        source = "other runs"
    used: set[Label] = set()
    for pair in pairs:
        used.update(pair.labels)
    return LabelCounts(
        used=len(used),
        answers=len(pairs),
        random=len(own.random),
        disputed=own.disputed,
        unjudged=own.unjudged,
        stale=_count(matched.stale),
        unmatched=_count(matched.unmatched),
        source=source,
    )


def _pass_rates(
    matched: LabelMatches,
    own: LabelledPairs,
    others: OtherRuns,
) -> PassRates:
    # First the verdicts on answers that count as unlabelled, then those on all answers.
    verdicts = matched.others
    for cluster, passed in own.as_unlabelled:
        verdicts.add(cluster, passed)
    rest = verdicts.clusters()
    if own.random or not others.pairs:
        corrected = _by_own_labels(own.random, verdicts, rest)
    else:
        good = [pair for pair in others.pairs if pair.deserved]
        bad = [pair for pair in others.pairs if not pair.deserved]
        corrected = rogan_gladen(rest, _clusters(good, _is_right), _clusters(bad, _is_right))
    for pair in own.random:
        verdicts.add(pair.cluster, pair.passed)
    return PassRates(
        judge=rate(verdicts.clusters(), "the judge gave no verdict"),
        labels=_rate(own.random, _passes_by_label, NOT_RANDOM),
        corrected=corrected,
    )


def _by_own_labels(
    pairs: Sequence[JudgedPair],
    verdicts: Verdicts,
    rest: Clusters,
) -> Figure:
    """Return the pass rate corrected with labels of this run; `verdicts` are those on answers without labels."""
    labelled: Counter[tuple[int, float, float]] = Counter()
    split: Counter[SplitCluster] = Counter()
    for group in _groups(pairs):
        deserved = float(sum(pair.deserved for pair in group))
        passed = float(sum(pair.passed for pair in group))
        found = (len(group), deserved, passed)
        labelled[found] += 1
        rest_size, rest_passes = verdicts.of(group[0].cluster)
        if rest_size:
            split[SplitCluster(*found, rest_size, rest_passes)] += 1
    return prediction_powered(labelled, rest, split)


def _notes(
    own: LabelledPairs,
    others: OtherRuns,
    evaluator: str | None,
) -> Iterator[str]:
    """Yield remarks that readers of the figures need."""
    if own.is_for_case:
        yield f"no label is for evaluator {evaluator!r}: the labels of the whole case are used"
    chosen = len(own.pairs) - len(own.random) - own.carried_over
    if chosen:
        labelled = f"{chosen} of {len(own.pairs)} labelled answers"
        yield f"{labelled} were not sampled at random and are not used for pass rates"
    if own.carried_over:
        yield (
            f"{own.carried_over} labelled answers were labelled before this run and have not changed, while other"
            " labels of that time are stale: unchanged answers are not a random sample and are not used for pass rates"
        )
    if others.pairs:
        yield (
            f"{len(others.pairs)} labelled answers are from other runs: the corrected pass rate is valid only if the"
            " judge errs as often in this run"
        )
    if others.of_other_judges:
        labelled = f"{others.of_other_judges} labelled answers of other runs"
        yield f"{labelled} are skipped: the judge or its prompt was different"


def _few(pairs: Sequence[JudgedPair]) -> Iterator[str]:
    """Yield a remark if one of the two labels is rare: the bootstrap then underestimates how much kappa varies."""
    passes = sum(pair.deserved for pair in pairs)
    fails = len(pairs) - passes
    if 0 < min(passes, fails) < FEW:
        yield f"{passes} pass and {fails} fail: with fewer than {FEW} of either, kappa's interval may be too narrow"


def _without_verdict(matched: LabelMatches) -> Iterator[str]:
    """Yield a remark if results are excluded from the pass rates."""
    without = matched.unjudged
    for answer in matched.answers:
        if answer.passed is None:
            without += 1
    if without:
        results = f"{without} of {matched.results} results"
        yield f"{results} have no verdict of the judge and are excluded from all pass rates"


def _cell(pair: JudgedPair) -> tuple[str, str]:
    """Return the cell of the confusion matrix that a pair belongs to."""
    return _word(pair.passed), _word(pair.deserved)


def _word(passed: bool) -> str:
    if passed:
        return "pass"
    return "fail"


def _is_right(pair: JudgedPair) -> bool:
    return pair.passed == pair.deserved


def _passes_by_label(pair: JudgedPair) -> bool:
    return pair.deserved


def _groups(pairs: Iterable[JudgedPair]) -> list[list[JudgedPair]]:
    """Return the pairs grouped by cluster; pairs without a cluster are groups of their own."""
    groups: dict[object, list[JudgedPair]] = {}
    for number, pair in enumerate(pairs):
        key: object = pair.cluster
        if key is None:
            key = number
        groups.setdefault(key, []).append(pair)
    return list(groups.values())


def _clusters(pairs: Iterable[JudgedPair], is_one: Callable[[JudgedPair], bool]) -> Clusters:
    """Return the number of clusters by size and number of pairs for which `is_one` is true."""
    found: Counter[tuple[int, float]] = Counter()
    for group in _groups(pairs):
        ones = sum(map(is_one, group))
        found[len(group), float(ones)] += 1
    return found


def _rate(
    pairs: Iterable[JudgedPair],
    is_one: Callable[[JudgedPair], bool],
    nothing: str = "no labels",
) -> Figure:
    return rate(_clusters(pairs, is_one), nothing)
