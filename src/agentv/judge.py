"""For judges in Python that `code_judge` runs: read the case, return a score.

from agentv.judge import main

def score(candidate_answer, expected_outcome):
    return {"score": 1.0 if "Paris" in candidate_answer else 0.0}

main(score)
"""

import inspect
import json
import os
import sys
from collections.abc import Callable
from typing import Any


def main(function: Callable[..., Any]) -> None:
    """Call the function with those fields of the case that its parameters name, and print what it returns.

    It may return a number, a bool, or a mapping with `score` and, if you like, `hits`, `misses`, `reasoning` and
    `details`. A single parameter of another name gets the whole case.
    """
    payload = json.load(sys.stdin)
    parameters = inspect.signature(function).parameters
    if any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        found = function(**payload)
    elif len(parameters) == 1 and not set(parameters) & set(payload):
        found = function(payload)
    else:
        found = function(**{name: payload[name] for name in parameters if name in payload})
    score = found if isinstance(found, dict) else {"score": float(found)}
    json.dump(score, sys.stdout)


def ask(question: str, system_prompt: str | None = None, target: str | None = None) -> str:
    """Return the judge target's answer to a question; the judge must be set up with `target: {max_calls: …}`."""
    from urllib.error import HTTPError
    from urllib.request import ProxyHandler, Request, build_opener

    body = {"question": question, "system_prompt": system_prompt, "target": target}
    try:
        url, token = os.environ["AGENTV_TARGET_PROXY_URL"], os.environ["AGENTV_TARGET_PROXY_TOKEN"]
    except KeyError:
        raise RuntimeError("set this judge up with 'target: {max_calls: …}', so that it may ask") from None
    data = json.dumps({name: value for name, value in body.items() if value is not None}).encode()
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    try:
        with build_opener(ProxyHandler({})).open(Request(f"{url}/invoke", data, headers)) as answer:
            return str(json.load(answer)["rawText"])
    except HTTPError as error:
        raise RuntimeError(f"{error.code}: {json.load(error).get('error', '')}") from None
