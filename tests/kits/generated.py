"""Randomly generated eval cases and files, for property tests."""

from typing import Any

from hypothesis import strategies as st

# YAML has no way to write some control characters; they are not what differs between the formats
texts = st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"], exclude_characters="\x85\u2028\u2029"))


names = texts.filter(bool)


scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts


tricky = st.sampled_from(
    ["NO", "on", "yes", "12:30", "0o17", "1_000", "~", "null", "1e3", "", "- a", "a: b", "#", "<<"]
)


values = st.recursive(
    scalars | tricky, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3)
)


objects = st.dictionaries(names, values, max_size=3)


blocks = st.fixed_dictionaries({"type": st.sampled_from(["text", "file"]), "value": names})


calls = st.fixed_dictionaries({"tool": texts}, optional={"input": values, "output": values, "id": texts})


messages = st.fixed_dictionaries(
    {
        "role": st.sampled_from(["system", "user", "assistant", "tool"]),
        "content": texts | tricky | objects | st.lists(blocks),
    },
    optional={"name": texts, "tool_calls": st.lists(calls, max_size=2)},
)


executions = st.fixed_dictionaries({}, optional={"target": names, "evaluators": st.lists(objects, max_size=2)})


optional: dict[str, st.SearchStrategy[Any]] = {
    "expected_messages": st.lists(messages, max_size=2),
    "expected_output": texts | objects | st.lists(messages, max_size=2),
    "conversation_id": st.none() | texts,
    "execution": executions,
    "evaluators": st.lists(objects, max_size=2),
    "rubrics": st.lists(texts | objects, max_size=2),
    "evaluator": names,
    "description": texts | st.none(),
    "metadata": objects,
    "outcome": texts,
    "input": texts | st.lists(messages, min_size=1, max_size=2),
    "something_else": values,
}


written_cases = st.fixed_dictionaries(
    {
        "id": names | tricky.filter(bool),
        "expected_outcome": texts | tricky,
        "input_messages": st.lists(messages, min_size=1, max_size=3),
    },
    optional=optional,
)


files = st.lists(written_cases, min_size=1, max_size=4, unique_by=lambda case: case["id"])


junk = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.floats(-2, 2) | st.sampled_from(["", "x", "user", "${{ A }}"]),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["type", "value", "url", "role"]), inner)
    ),
    max_leaves=4,
)


@st.composite
def spoiled(draw: st.DrawFn) -> dict[str, Any]:
    """A case with a random part replaced."""
    case = draw(written_cases)
    for _ in range(draw(st.integers(0, 3))):
        holder: Any = case
        while True:
            if not holder:
                break
            steps = list(holder) if isinstance(holder, dict) else range(len(holder))
            step = draw(st.sampled_from(steps))
            if not isinstance(holder[step], dict | list) or draw(st.booleans()):
                holder[step] = draw(junk)
                break
            holder = holder[step]
    return case
