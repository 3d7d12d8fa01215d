"""Labelled answers -> how far a judge can be trusted, and the pass rate that people would give."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from agentv.errors import ConfigError
from agentv.results.labels.match import LabelBook, LabelMatches, Verdicts, match_labels
from agentv.results.labels.pairs import JudgedPair, LabelledPairs, OtherRuns, choose_pairs, pairs_of_other_runs
from agentv.results.run_files import RunFiles, name_of
from agentv.results.runs import RunRecord
from agentv.stats.agreement import Clusters, Figure, kappa, kappa_large_sample, rate
from agentv.stats.correction import SplitCluster, prediction_powered, rogan_gladen

NAMED, FEW = 20, 10
NOT_RANDOM = "no label is of an answer that was drawn at random from this run"
Source = Literal["this run", "other runs"]
Bar = Literal["reached", "missed", "undecided"]


class LabelCounts(msgspec.Struct, frozen=True, kw_only=True):
    """How many labels there are, and what became of them."""

    used: int
    """Labels that the figures are made of."""
    answers: int
    """The answers that they are of: several people may label one."""
    random: int
    """Of these answers, those that were drawn at random from the run: the pass rates are made of them."""
    disputed: int
    """Answers that as many people pass as fail: they are left out."""
    unjudged: int
    """Answers with labels of which the judge gave no verdict: they are left out."""
    stale: int
    """Labels of other answers than the present ones."""
    unmatched: int
    """Labels of cases that the run does not have."""
    source: Source = "this run"
    """Whose answers the labels are of."""


class PassRates(msgspec.Struct, frozen=True, kw_only=True):
    """The pass rate of a run: as the judge says, as the labels alone say, and the judge's corrected by labels."""

    judge: Figure
    labels: Figure
    corrected: Figure


class JudgeFigures(msgspec.Struct, frozen=True, kw_only=True):
    """How far a judge agrees with people, and what that makes of a run's pass rate."""

    evaluator: str | None
    """The evaluator; None stands for the verdict on the case as a whole."""
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
    run: RunFiles, book: LabelBook, evaluator: str | None, runs: Sequence[RunRecord] = ()
) -> JudgeFigures:
    """Return how far the judge of a run agrees with labels.

    If none of its answers was labelled at random, labels of other runs correct its pass rate; `runs` are those to look
    into. Raise `ConfigError` if nothing of this can be used, `ResultsError` for a file that is wrong.
    """
    path = name_of(run)
    matched = match_labels(run, book, evaluator)
    _check_evaluator(matched, path, evaluator)
    own = choose_pairs(matched.answers, evaluator, matched.stale)
    others = OtherRuns() if own.random else pairs_of_other_runs(run, matched, evaluator, runs)
    if not own.pairs and not others.pairs:
        raise _nothing_to_use(path, matched, own, evaluator)
    return _figures(matched, own, others, evaluator)


def meets_bar(found: Figure, bar: float) -> Bar:
    """Return whether a figure is at least `bar`; undecided if its interval has room for both."""
    if found.ci_lower is None or found.ci_upper is None:
        return "undecided"
    return "reached" if found.ci_lower >= bar else "missed" if found.ci_upper < bar else "undecided"


def _check_evaluator(matched: LabelMatches, path: Path, evaluator: str | None) -> None:
    """Raise `ConfigError` if there is no such evaluator."""
    if evaluator is not None and evaluator not in matched.evaluators:
        known = sorted(matched.evaluators)
        names = ", ".join(map(repr, known[:NAMED])) if known else "none that has a name"
        raise ConfigError(f"no evaluator is called {evaluator!r}", file=path, hint=f"this run has {names}")


def _nothing_to_use(path: Path, matched: LabelMatches, own: LabelledPairs, evaluator: str | None) -> ConfigError:
    """Return the error that says why no label can be used."""
    labels = len(matched.book)
    none = "the only label is not" if labels == 1 else f"none of the {labels} labels is"
    stale, missing = sum(1 for _ in matched.stale), list(matched.unmatched)
    if own.unjudged or own.disputed:
        message = f"of {own.unjudged + own.disputed} labelled answers none can be used"
        hint = f"{own.unjudged} have no verdict of the judge, {own.disputed} as many labels 'pass' as 'fail'"
    elif any(matched.is_used):
        names = sorted({str(label.evaluator) for label in matched.used})
        message = f"the labels of this run are for the evaluator {' and '.join(map(repr, names))}"
        hint = f"--evaluator {names[0]}" if evaluator is None else f"label answers for {evaluator!r}, or the whole case"
    elif not stale:
        message = f"{none} of a case of this run: there is no {missing[0].eval_id!r}"
        hint = "an id, its dataset and its trial must be those of the results"
    else:
        others = f", {len(missing)} of other cases" if missing else ""
        message = f"{none} of an answer of this run: {stale} of other answers to its cases (stale){others}"
        hint = "label answers of this run"
    return ConfigError(message, file=path, hint=hint)


def _figures(matched: LabelMatches, own: LabelledPairs, others: OtherRuns, evaluator: str | None) -> JudgeFigures:
    pairs = own.pairs or others.pairs
    tables = [Counter(map(_cell, group)) for group in _groups(pairs)]
    whole: Counter[tuple[str, str]] = Counter()
    for table in tables:
        whole.update(table)
    return JudgeFigures(
        evaluator=evaluator,
        labels=LabelCounts(
            used=len({label for pair in pairs for label in pair.labels}),
            answers=len(pairs),
            random=len(own.random),
            disputed=own.disputed,
            unjudged=own.unjudged,
            stale=sum(1 for _ in matched.stale),
            unmatched=sum(1 for _ in matched.unmatched),
            source="this run" if own.pairs else "other runs",
        ),
        agreement=_rate(pairs, lambda pair: pair.passed == pair.deserved),
        sensitivity=_rate([p for p in pairs if p.deserved], lambda pair: pair.passed, "no label is 'pass'"),
        specificity=_rate([p for p in pairs if not p.deserved], lambda pair: not pair.passed, "no label is 'fail'"),
        kappa=kappa(tables),
        kappa_large_sample=kappa_large_sample(whole),
        base_rate=_rate(pairs, lambda pair: pair.deserved),
        pass_rate=_pass_rates(matched, own, others),
        notes=(*_notes(own, others, evaluator), *_few(pairs), *_without_verdict(matched)),
    )


def _pass_rates(matched: LabelMatches, own: LabelledPairs, others: OtherRuns) -> PassRates:
    verdicts = matched.others
    for cluster, passed in own.left:
        verdicts.add(cluster, passed)
    rest = verdicts.clusters()
    if own.random or not others.pairs:
        corrected = _by_own_labels(own.random, verdicts, rest)
    else:
        known = [[pair for pair in others.pairs if pair.deserved is side] for side in (True, False)]
        right = [_clusters(found, lambda pair: pair.passed == pair.deserved) for found in known]
        corrected = rogan_gladen(rest, *right)
    for pair in own.random:
        verdicts.add(pair.cluster, pair.passed)
    return PassRates(
        judge=rate(verdicts.clusters(), "the judge gave no verdict"),
        labels=_rate(own.random, lambda pair: pair.deserved, NOT_RANDOM),
        corrected=corrected,
    )


def _by_own_labels(pairs: Sequence[JudgedPair], verdicts: Verdicts, rest: Clusters) -> Figure:
    """Return the corrected pass rate by labels of this run; `verdicts` are those on answers without labels."""
    labelled: Counter[tuple[int, float, float]] = Counter()
    split: Counter[SplitCluster] = Counter()
    for group in _groups(pairs):
        found = len(group), float(sum(pair.deserved for pair in group)), float(sum(pair.passed for pair in group))
        labelled[found] += 1
        size, passes = verdicts.of(group[0].cluster)
        split.update([SplitCluster(*found, size, passes)] if size else [])
    return prediction_powered(labelled, rest, split)


def _notes(own: LabelledPairs, others: OtherRuns, evaluator: str | None) -> Iterator[str]:
    """Yield what a reader of the figures must know."""
    if own.is_for_case:
        yield f"no label is for the evaluator {evaluator!r}: those of the whole case are used"
    if chosen := len(own.pairs) - len(own.random) - own.carried_over:
        yield f"{chosen} of {len(own.pairs)} labelled answers were not drawn at random: no pass rate is made of them"
    if own.carried_over:
        yield (
            f"{own.carried_over} labelled answers were labelled before this run and have not changed, while other"
            " labels of that time are stale: no pass rate is made of them, as what stays the same is no random sample"
        )
    if others.pairs:
        yield (
            f"{len(others.pairs)} labelled answers are of other runs: the corrected pass rate holds if the judge"
            " errs as often here as there"
        )
    if others.of_other_judges:
        yield f"{others.of_other_judges} labelled answers of other runs are left out: another judge, or another prompt"


def _few(pairs: Sequence[JudgedPair]) -> Iterator[str]:
    """Yield that one of the two labels is rare: drawing so few anew says too little of how kappa varies."""
    passes = sum(pair.deserved for pair in pairs)
    fails = len(pairs) - passes
    if 0 < min(passes, fails) < FEW:
        yield f"{passes} pass and {fails} fail: below {FEW} of either, kappa's interval may be too narrow"


def _without_verdict(matched: LabelMatches) -> Iterator[str]:
    """Yield how many results are in no pass rate."""
    if without := matched.unjudged + sum(answer.passed is None for answer in matched.answers):
        yield f"{without} of {matched.results} results have no verdict of the judge: they are in none of the pass rates"


def _cell(pair: JudgedPair) -> tuple[str, str]:
    return _word(pair.passed), _word(pair.deserved)


def _word(passed: bool) -> str:
    return "pass" if passed else "fail"


def _groups(pairs: Iterable[JudgedPair]) -> list[list[JudgedPair]]:
    """Return the pairs that belong together, and each other one alone."""
    groups: dict[object, list[JudgedPair]] = {}
    for number, pair in enumerate(pairs):
        groups.setdefault(number if pair.cluster is None else pair.cluster, []).append(pair)
    return list(groups.values())


def _clusters(pairs: Iterable[JudgedPair], is_one: Callable[[JudgedPair], bool]) -> Clusters:
    return Counter((len(group), float(sum(map(is_one, group)))) for group in _groups(pairs))


def _rate(
    pairs: Iterable[JudgedPair], is_one: Callable[[JudgedPair], bool], nothing: str = "there are no labels"
) -> Figure:
    return rate(_clusters(pairs, is_one), nothing)
