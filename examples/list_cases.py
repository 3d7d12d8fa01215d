"""Lists the cases of eval files: `python list_cases.py evals/a.yaml evals/b.jsonl`."""

import sys

from agentv import load_eval_cases


def main(paths: list[str]) -> None:
    for path in paths:
        for case in load_eval_cases(path):
            print(f"{case.dataset:10} {case.id:18} target {case.target:10} {case.expected_outcome}")


main(sys.argv[1:])
