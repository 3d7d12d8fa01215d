"""The same work in pydantic-evals: N cases, a target that answers at once, one `Contains`, ten at a time.

Run by `benchmarks.peers` in a virtual environment of its own; prints the seconds that it took.
"""

import sys
import time


def main(count: int) -> None:
    from pydantic_evals import Case, Dataset  # type: ignore[import-not-found,unused-ignore]
    from pydantic_evals.evaluators import Contains  # type: ignore[import-not-found,unused-ignore]

    async def answer(question: str) -> str:
        return f"hello there, {question}"

    cases = [Case(name=f"case-{n}", inputs=f"Say hello to number {n}") for n in range(count)]
    dataset = Dataset(name="hello", cases=cases, evaluators=[Contains(value="hello")])
    start = time.perf_counter()
    report = dataset.evaluate_sync(answer, max_concurrency=10, progress=False)
    took = time.perf_counter() - start
    assert len(report.cases) == count
    print(took)


main(int(sys.argv[1]))
