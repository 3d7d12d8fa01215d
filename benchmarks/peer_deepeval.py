"""The job for deepeval: answers made beforehand, as it calls no target itself, a pattern, results as JSON.

Run by `benchmarks.peers` in a virtual environment of its own.
"""

import sys

from deepeval import evaluate  # type: ignore[import-not-found,unused-ignore]
from deepeval.evaluate import AsyncConfig, CacheConfig, DisplayConfig  # type: ignore[import-not-found,unused-ignore]
from deepeval.metrics import PatternMatchMetric  # type: ignore[import-not-found,unused-ignore]
from deepeval.test_case import LLMTestCase  # type: ignore[import-not-found,unused-ignore]


def answer(question: str) -> str:
    return f"hello there, {question}"


def main(count: int) -> None:
    questions = [f"Say hello to number {number}" for number in range(count)]
    shown = DisplayConfig(show_indicator=False, print_results=False, inspect_after_run=False, results_folder="results")
    done = evaluate(
        [LLMTestCase(input=question, actual_output=answer(question)) for question in questions],
        [PatternMatchMetric(pattern=".*hello.*")],
        async_config=AsyncConfig(max_concurrent=10),
        cache_config=CacheConfig(write_cache=False),
        display_config=shown,
    )
    assert sum(result.success for result in done.test_results) == count


main(int(sys.argv[1]))
