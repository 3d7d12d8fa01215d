"""A project with passing, failing and errored cases for reports."""

import os

from tests.kits.project import Write, a_case, agentv

AGENT = """
def answer(question):
    if "break" in question:
        raise ValueError('no <answer> & "no" \\x01 idea')
    return question
"""


def project(write: Write, **questions: str) -> None:
    write("agent.py", AGENT)
    write("targets.yaml", "targets: [{name: default, provider: python, function: '../agent.py:answer'}]\n")
    cases = [a_case(name, input_messages=[{"role": "user", "content": text}]) for name, text in questions.items()]
    write("evals/some.jsonl", cases)
    write("evals/some.yaml", "evaluators: [{type: contains, value: good}, {type: contains, value: ood, weight: 2.2}]\n")


def evaluate(*args: str, code: int = 0, **environment: str) -> str:
    ran = agentv("eval", "evals", "--out", "out.jsonl", *args, env={**os.environ, **environment})
    assert ran.returncode == code, ran.stderr
    return ran.stderr
