"""The job for inspect_ai: a solver that answers at once, `includes`, its log as it is by default.

Run by `benchmarks.peers` in a virtual environment of its own.
"""

import sys
from typing import Any

from inspect_ai import Task, eval  # type: ignore[import-not-found,unused-ignore]
from inspect_ai.dataset import MemoryDataset, Sample  # type: ignore[import-not-found,unused-ignore]
from inspect_ai.scorer import includes  # type: ignore[import-not-found,unused-ignore]
from inspect_ai.solver import solver  # type: ignore[import-not-found,unused-ignore]


@solver  # type: ignore[untyped-decorator,unused-ignore]
def answer() -> Any:
    async def solve(state: Any, _generate: Any) -> Any:
        state.output.completion = f"hello there, {state.input_text}"
        return state

    return solve


def main(count: int) -> None:
    samples = [Sample(id=f"case-{n}", input=f"Say hello to number {n}", target="hello") for n in range(count)]
    task = Task(dataset=MemoryDataset(samples), solver=answer(), scorer=includes())
    (log,) = eval(task, model="mockllm/model", display="none", max_samples=10, log_dir="logs")
    assert log.status == "success"
    assert log.results.completed_samples == count


main(int(sys.argv[1]))
