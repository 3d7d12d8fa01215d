"""A package can bring a kind of target and a type of evaluator, by entry points alone."""

import os
from pathlib import Path

from tests.conftest import Write, a_case, agentv
from tests.test_seed_eval_cli import results

PLUGIN = """
from typing import Annotated
import msgspec
from agentv import ProviderResponse, Score
from agentv.providers.settings import TargetSettings

class ShoutSettings(TargetSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    mark: str = "!"

    def open(self, folder):
        return Shout(self.mark)

class Shout:
    def __init__(self, mark):
        self.mark = mark

    async def invoke(self, request):
        return ProviderResponse(text=request.question.upper() + self.mark)

class EndsWith(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    value: str

    async def evaluate(self, exchange):
        good = exchange.response.text.endswith(self.value)
        return Score(score=float(good), hits=("ends well",) if good else ())
"""
ENTRY_POINTS = """
[agentv.providers]
shout = shouting:ShoutSettings
[agentv.evaluators]
ends_with = shouting:EndsWith
"""


def test_a_provider_and_an_evaluator_from_another_package(write: Write, tmp_path: Path) -> None:
    write("site/shouting.py", PLUGIN)
    write("site/shouting-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: shouting\nVersion: 1.0\n")
    write("site/shouting-1.0.dist-info/entry_points.txt", ENTRY_POINTS)
    write("targets.yaml", "targets:\n  - {name: default, provider: shout, mark: '?'}\n")
    path = write("a.jsonl", [a_case(input="hi", input_messages=None, evaluators=[{"type": "ends_with", "value": "?"}])])
    env = {**os.environ, "PYTHONPATH": str(tmp_path / "site")}
    ran = agentv("eval", path, "--out", "o.jsonl", env=env)
    assert ran.returncode == 0, ran.stderr
    (result,) = results("o.jsonl")
    assert (result["candidate_answer"], result["score"], result["hits"]) == ("HI?", 1.0, ["ends well"])
    assert agentv("validate", "targets.yaml", env=env).returncode == 0
    assert "unknown evaluator type 'ends_with'" in agentv("eval", path).stderr
    assert "unknown provider 'shout'" in agentv("validate", "targets.yaml").stdout
