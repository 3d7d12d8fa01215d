"""An agent with two tools that reports its tool calls."""

from typing import Any

CITIES = {"Oslo": 1, "Rome": 2}
RAIN = {1: True, 2: False}


def answer(question: str) -> dict[str, Any]:
    """Return the answer and all tool calls."""
    name = next(city for city in CITIES if city in question)
    number = CITIES[name]
    calls = [
        {"tool": "find_city", "input": {"name": name}, "output": {"city": number}},
        {"tool": "get_weather", "input": {"city": number}, "output": {"rain": RAIN[number], "unit": "celsius"}},
    ]
    text = f"Take an umbrella to {name}." if RAIN[number] else f"It is dry in {name}."
    return {"text": text, "output_messages": [{"role": "assistant", "content": text, "tool_calls": calls}]}
