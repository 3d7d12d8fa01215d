"""Random samples of cases."""

from pathlib import Path

from agentv.cases.sample import CaseSample
from agentv.records import CaseFile, EvalCase

FILE = CaseFile(path=Path("a.yaml"), dataset="d")


def cases(count: int, file: CaseFile = FILE) -> list[EvalCase]:
    return [EvalCase(str(number), "", (), file=file) for number in range(count)]


def drawn(size: int, seed: int = 0, count: int = 100) -> list[str]:
    everything = cases(count)
    sample = CaseSample(size, seed).draw(everything)
    return [case.id for case in everything if sample.includes(case)]


def test_a_sample_is_the_same_on_every_machine() -> None:
    assert drawn(5) == ["21", "60", "61", "64", "87"]
    assert drawn(5, seed=1) == ["15", "51", "54", "69", "71"]


def test_a_larger_sample_contains_the_smaller_ones() -> None:
    sizes = [len(drawn(size)) for size in (1, 10, 99, 100, 101)]
    assert sizes == [1, 10, 99, 100, 100]
    assert set(drawn(10)) < set(drawn(50))


def test_the_order_of_the_cases_does_not_matter() -> None:
    everything = cases(50)
    assert CaseSample(7).draw(everything) == CaseSample(7).draw(reversed(everything))


def test_the_dataset_is_part_of_the_hash() -> None:
    other = CaseFile(path=Path("b.yaml"), dataset="other")
    sample = CaseSample(20).draw(cases(100) + cases(100, other))
    first = [case.id for case in cases(100) if sample.includes(case)]
    second = [case.id for case in cases(100, other) if sample.includes(case)]
    assert len(first) + len(second) == 20
    assert first != second


def test_every_case_is_equally_likely() -> None:
    counts = dict.fromkeys(map(str, range(10)), 0)
    for seed in range(300):
        for id_ in drawn(3, seed, count=10):
            counts[id_] += 1
    assert sum(counts.values()) == 900
    assert min(counts.values()) > 60
    assert max(counts.values()) < 120
