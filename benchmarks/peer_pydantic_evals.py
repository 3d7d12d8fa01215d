"""The job for pydantic-evals: an async function, `Contains`, the report as JSON.

Run by `benchmarks.peers` in a virtual environment of its own.
"""

import sys
from pathlib import Path

from pydantic_evals import Case, Dataset  # type: ignore[import-not-found,unused-ignore]
from pydantic_evals.evaluators import Contains  # type: ignore[import-not-found,unused-ignore]
from pydantic_evals.reporting import EvaluationReportAdapter  # type: ignore[import-not-found,unused-ignore]


async def answer(question: str) -> str:
    return f"hello there, {question}"


def main(count: int) -> None:
    cases = [Case(name=f"case-{n}", inputs=f"Say hello to number {n}") for n in range(count)]
    dataset = Dataset(name="hello", cases=cases, evaluators=[Contains(value="hello")])
    report = dataset.evaluate_sync(answer, max_concurrency=10, progress=False)
    assert len(report.cases) == count
    Path("results.json").write_bytes(EvaluationReportAdapter.dump_json(report))


main(int(sys.argv[1]))
