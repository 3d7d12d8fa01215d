"""Helper for Python code judges: read the case from stdin, write the score to stdout.

from agentv.judge import main

def score(candidate_answer, expected_outcome):
    return "Paris" in candidate_answer

main(score)
"""

import inspect
import json
import os
import sys
from collections.abc import Callable
from typing import Any


def main(function: Callable[..., Any]) -> None:
    """Call the function with the fields of the case that its parameters name, and print the score that it returns.

    It may return a number, a bool, or a mapping with `score` and, optionally, `hits`, `misses`, `reasoning` and
    `details`. A function with `**kwargs` gets all the fields. A single parameter that is not the name of a field gets
    the whole case as a mapping.
    """
    payload = json.load(sys.stdin)
    score = _call(function, payload)
    if not isinstance(score, dict):
        score = {"score": float(score)}
    json.dump(score, sys.stdout)


def _call(function: Callable[..., Any], payload: dict[str, Any]) -> Any:
    """Call the function with the fields that it asks for and return its result."""
    parameters = inspect.signature(function).parameters
    kinds = [parameter.kind for parameter in parameters.values()]
    if inspect.Parameter.VAR_KEYWORD in kinds:
        return function(**payload)
    named_fields = [name for name in parameters if name in payload]
    if len(parameters) == 1 and not named_fields:
        return function(payload)
    arguments = {name: payload[name] for name in named_fields}
    return function(**arguments)


def ask(
    question: str,
    system_prompt: str | None = None,
    target: str | None = None,
) -> str:
    """Return the judge target's answer to a question.

    The code judge must be configured with `target: {max_calls: …}`. Raise `RuntimeError` if it is not, or if the call
    fails.
    """
    # Imported here: most judges never call a target, and these modules are slow to import.
    from urllib.error import HTTPError
    from urllib.request import ProxyHandler, Request, build_opener

    try:
        url = os.environ["AGENTV_TARGET_PROXY_URL"]
        token = os.environ["AGENTV_TARGET_PROXY_TOKEN"]
    except KeyError:
        raise RuntimeError("to let this judge call a target, set 'target: {max_calls: …}'") from None
    body = {"question": question}
    if system_prompt is not None:
        body["system_prompt"] = system_prompt
    if target is not None:
        body["target"] = target
    headers = {
        "Authorization": f"Bearer {token}",
        "Content-Type": "application/json",
    }
    data = json.dumps(body).encode()
    request = Request(f"{url}/invoke", data, headers)
    # The server is on loopback: ignore the HTTP proxies that the environment configures.
    opener = build_opener(ProxyHandler({}))
    try:
        with opener.open(request) as response:
            answer = json.load(response)
    except HTTPError as error:
        message = json.load(error).get("error", "")
        raise RuntimeError(f"{error.code}: {message}") from None
    return str(answer["rawText"])
