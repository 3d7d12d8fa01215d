"""A JSON endpoint as a target."""

import asyncio
import gzip
import json
import socket
import threading
from typing import Any

import pytest

from agentv.project.validate import check_file
from agentv.records import Message, ProviderResponse, TokenUsage, ToolCall
from tests.kits.model_servers import Asked, Reply, a_request, ask, asked, failing, model_server
from tests.kits.project import Write, a_case
from tests.kits.runs import evaluate, results, run_one

NASTY = 'Say "hi"\n\\ {{ eval_id }} ${{ HOME }} &a=b#c/../d?é \u2028 \x00 </script> %41 {0}'


def sent(question: str = "Capital of France?", *turns: Message, **settings: Any) -> Asked:
    """The request for a question."""
    with model_server(lambda _: "Paris") as server:
        settings = {"url": f"{server.url}/agent", **{name: _on(server.url, value) for name, value in settings.items()}}
        ask(server.target("http", **settings), a_request(question, *turns))
    return server.requests[0]


def _on(url: str, value: Any) -> Any:
    return value.replace("SERVER", url) if isinstance(value, str) else value


def answer(reply: Any, **settings: Any) -> str:
    with model_server(lambda _: reply) as server:
        return ask(server.target("http", **settings)).text


def test_the_default_body() -> None:
    asked = sent("Capital of France?")
    assert (asked.method, asked.path) == ("POST", "/agent")
    assert json.loads(asked.content) == {"question": "Capital of France?", "guidelines": ""}
    assert asked.headers["content-type"] == "application/json"


def test_no_prompt_breaks_the_body() -> None:
    body = {
        "text": "Q: {{ question }}!",
        "both": ["{{eval_id}} {{ question }}", 1, None, True],
        "{{ question }}": {"deep": "{{ guidelines }}"},
    }
    assert json.loads(sent(NASTY, body=body).content) == {
        "text": f"Q: {NASTY}!",
        "both": [f"case-1 {NASTY}", 1, None, True],
        "{{ question }}": {"deep": ""},
    }


def test_no_prompt_breaks_the_url() -> None:
    asked = sent("a/../b?c=d&e #é", url="SERVER/cases/{{ question }}/x?q={{ question }}&id={{ eval_id }}")
    encoded = "a%2F..%2Fb%3Fc%3Dd%26e%20%23%C3%A9"
    assert asked.path == f"/cases/{encoded}/x?q={encoded}&id=case-1"
    assert sent("..", url="SERVER/cases/{{ question }}/x").path in ("/cases/%2E%2E/x", "/cases/%2e%2e/x")


def test_no_prompt_breaks_the_headers() -> None:
    headers = {"X-Question": "{{ question }}", "Authorization": "Bearer abc", "Content-Type": "application/x-mine"}
    asked = sent("a\r\nX-Evil: 1\n\nbody \u00e9", headers=headers)
    assert asked.headers["x-question"].encode("latin-1").decode() == "a X-Evil: 1 body é"
    assert "x-evil" not in asked.headers
    assert (asked.headers["authorization"], asked.headers["content-type"]) == ("Bearer abc", "application/x-mine")


def test_the_chat_turns() -> None:
    turns = Message(role="system", content="Be brief."), Message(role="user", content="Hi")
    body = {"model": "m", "messages": "{{ messages }}"}
    expected = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]
    assert json.loads(sent("all", *turns, body=body).content) == {"model": "m", "messages": expected}
    assert json.loads(sent("Hi", body="{{messages}}").content) == [{"role": "user", "content": "Hi"}]


def test_other_methods() -> None:
    assert sent(method="put", body=["{{ question }}"]).method == "PUT"
    got = sent(method="get", url="SERVER/agent?q={{ question }}")
    assert (got.method, got.path, got.content) == ("GET", "/agent?q=Capital%20of%20France%3F", b"")


@pytest.mark.parametrize(
    ("reply", "text"),
    [
        (Reply(body=b"Paris, of course"), "Paris, of course"),
        (Reply(body="Paris"), "Paris"),
        (Reply(body={"a": "Paris"}), '{"a": "Paris"}'),
        (Reply(body=b"42"), "42"),
        (Reply(body=b""), ""),
        (Reply(body="Orléans".encode("latin-1"), headers={"Content-Type": "text/plain; charset=latin-1"}), "Orléans"),
        (Reply(body=gzip.compress(b'"Paris"'), headers={"Content-Encoding": "gzip"}), "Paris"),
        (Reply(201, body="Paris"), "Paris"),
    ],
)
def test_the_body_is_the_answer(reply: Reply, text: str) -> None:
    assert answer(reply) == text


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("choices[0].message.content", "Paris"),
        ("choices[1]", '{"score":0.5}'),
        ("choices", '[{"message":{"content":"Paris"}},{"score":0.5}]'),
        ('["odd key"].n', "1"),
        ("nothing", "null"),
        ("odd key.n", "1"),
    ],
)
def test_a_path_into_the_answer(path: str, text: str) -> None:
    body = {"choices": [{"message": {"content": "Paris"}}, {"score": 0.5}], "odd key": {"n": 1}, "nothing": None}
    assert answer(Reply(body=body), response_path=path) == text


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("result.text", "no 'result' in the answer, which is an object with 'choices', 'usage'"),
        ("choices[1]", "no [1] in choices, which is an array of 1"),
        ("choices[0].message.content", "no 'message' in choices[0], which is an object with 'text'"),
        ("choices[0].text.more", "no 'more' in choices[0].text, which is \"Paris\""),
        ("choices.text", "no 'text' in choices, which is an array of 1"),
        ("usage[0]", "no [0] in usage, which is an object with no fields"),
    ],
)
def test_an_unresolved_path_reports_how_far_it_matched(path: str, words: str) -> None:
    with model_server(lambda _: Reply(body={"choices": [{"text": "Paris"}], "usage": {}})) as server:
        error = failing(server.target("http", response_path=path))
    assert error.message == f"response_path: {words}"


def test_an_answer_that_is_not_json_with_a_response_path() -> None:
    with model_server(lambda _: Reply(body=b"<html>\n Hello")) as server:
        error = failing(server.target("http", response_path="a"))
    assert error.message == "the answer is not valid JSON: <html> Hello"


def test_cookies_are_not_shared_between_cases() -> None:
    with model_server(lambda _: Reply(body="Paris", headers={"Set-Cookie": "session=1; Path=/"})) as server:
        asyncio.run(asked(server.target("http"), "one", "two"))
    assert [("cookie" in request.headers) for request in server.requests] == [False, False]


def test_placeholders_may_directly_follow_the_host() -> None:
    assert sent("Hi", url="SERVER?q={{ question }}").path == "/?q=Hi"


def test_redirections_are_not_followed() -> None:
    with model_server(lambda _: Reply(302, b"over there", {"Location": "/elsewhere"})) as server:
        error = failing(server.target("http"))
    message = "status 302: redirects to /elsewhere, which is not followed"
    assert (error.message, error.status, error.may_pass) == (message, 302, False)
    assert len(server.asked) == 1


def test_an_endless_answer_is_aborted() -> None:
    """Small on the wire, and too large when unpacked."""
    bomb = gzip.compress(bytes(17 << 20))
    with model_server(lambda _: Reply(body=bomb, headers={"Content-Encoding": "gzip"})) as server:
        assert failing(server.target("http")).message == "the answer is larger than 16 MiB"


def test_a_prompt_with_unpaired_surrogates() -> None:
    with model_server(lambda _: "Paris") as server:
        assert failing(server.target("http"), a_request("\ud800")).message.startswith("the prompt cannot be sent: ")
    assert server.asked == []


def test_a_server_that_does_not_speak_http() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def talk() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(b"220 mail.example.com ESMTP\r\n")

        thread = threading.Thread(target=talk, daemon=True)
        thread.start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/"
        error = failing({"name": "a", "provider": "http", "url": url})
        thread.join()
    assert error.message.startswith("the connection failed: ")


@pytest.mark.parametrize(
    ("settings", "message", "hint"),
    [
        (
            {"body": {"a": ["{{ qestion }}"]}},
            "body.a[0]: unknown placeholder {{ qestion }}",
            "did you mean 'question'?",
        ),
        ({"url": "http://a/{{ id }}"}, "url: unknown placeholder {{ id }}", "available: eval_id, guidelines, question"),
        ({"headers": {"X": "{{ evalid }}"}}, "headers.X: unknown placeholder {{ evalid }}", "did you mean 'eval_id'?"),
        (
            {"body": {"a": "So: {{ messages }}"}},
            "body.a: {{ messages }} cannot be part of a text",
            "it can only be a whole value in the body",
        ),
        (
            {"url": "http://a/?m={{ messages }}"},
            "url: {{ messages }} cannot be part of a text",
            "it can only be a whole value in the body",
        ),
        (
            {"url": "http://{{ question }}.example.com/"},
            "url: the server must not depend on the case",
            "put placeholders after the host name",
        ),
        ({"url": "ftp://a/"}, "url: must start with http:// or https:// and a host name", ""),
        ({"method": "GET", "body": {}}, "body: GET sends no body", "remove it, or set another 'method'"),
        (
            {"response_path": "a[x]"},
            "response_path: invalid path 'a[x]'",
            """valid paths: choices[0].message.content or a["odd key"]""",
        ),
    ],
)
def test_invalid_combinations_of_settings(write: Write, settings: dict[str, Any], message: str, hint: str) -> None:
    target = {"name": "a", "provider": "http", "url": "http://127.0.0.1/", **settings}
    found = check_file(write("targets.yaml", json.dumps({"targets": [target]}))).problems
    assert (f"target 'a': {message}", hint) in [(problem.message, problem.hint) for problem in found]


@pytest.mark.parametrize(
    ("url", "state", "path"),
    [
        ("http://127.0.0.1:{{ state.port }}/chat", '{"port": PORT}', "/chat"),
        ("{{ state.url }}/a/{{ state.id }}", '{"url": "SERVER", "id": "x/y"}', "/a/x%2Fy"),
        ("{{state.url}}?q={{ eval_id }}", '{"url": "SERVER/b"}', "/b?q=x%26y"),
    ],
)
def test_hooks_may_decide_the_server(write: Write, url: str, state: str, path: str) -> None:
    with model_server(lambda _: "Paris") as server:
        port = server.url.rpartition(":")[2]
        state = state.replace("SERVER", server.url).replace("PORT", port)
        write("hooks.py", f"def start():\n    return {state}\n")
        hooks = {"before_all": {"function": "hooks.py:start"}}
        target = {"name": "default", "provider": "http", "url": url, "hooks": hooks}
        write("targets.yaml", json.dumps({"targets": [target]}))
        write("a.jsonl", [a_case(id="x&y", evaluators=[{"type": "equals", "value": "Paris"}])])
        result = run_one("a.jsonl")
    assert result["candidate_answer"] == "Paris"
    assert server.requests[0].path == path


def test_variables_are_not_placeholders(write: Write) -> None:
    target = {"name": "a", "provider": "http", "url": "${{ URL }}/x", "headers": {"Authorization": "Bearer ${{ KEY }}"}}
    assert all(
        p.severity == "warning" for p in check_file(write("targets.yaml", json.dumps({"targets": [target]}))).problems
    )


def test_a_run_through_the_command_line_shows_no_secret(write: Write) -> None:
    with model_server(lambda body: Reply(body={"out": body["question"]})) as server:
        host = server.url.removeprefix("http://")
        target = server.target(
            "http",
            url=f"http://me:secret-word-1@{host}/agent?id={{{{ eval_id }}}}",
            headers={"X-Key": "${{ MY_VALUE }}"},
            response_path="out",
        )
        lost = {**target, "name": "lost", "response_path": "other"}
        write("targets.yaml", json.dumps({"targets": [target, lost]}))
        write(".env", "MY_VALUE=secret-word-2\n")
        told = {
            "input_messages": [{"role": "user", "content": "secret-word-1 secret-word-2"}],
            "evaluators": [{"type": "contains", "value": "x"}],
        }
        write("a.jsonl", [a_case("a b", **told), a_case("c", execution={"target": "lost"}, **told)])
        ran = evaluate("a.jsonl", "--out", "out.jsonl", expect=1)
    first, second = sorted(results("out.jsonl"), key=lambda result: str(result["eval_id"]))
    assert first["candidate_answer"] == "*** ***"
    assert second["error"] == "response_path: no 'other' in the answer, which is an object with 'out'"
    assert sorted(asked.path for asked in server.requests) == ["/agent?id=a%20b", "/agent?id=c"]
    assert {asked.headers["x-key"] for asked in server.requests} == {"secret-word-2"}
    assert all(asked.headers["authorization"].startswith("Basic ") for asked in server.requests)
    assert "secret-word" not in ran.stdout + ran.stderr + json.dumps([first, second])


def test_usage_messages_and_metadata_are_kept() -> None:
    call = {"id": "1", "type": "function", "function": {"name": "find", "arguments": '{"q": 1}'}}
    reply = {
        "answer": "Paris",
        "output_messages": [{"role": "assistant", "content": "Paris", "tool_calls": [call]}],
        "usage": {"prompt_tokens": 3, "completion_tokens": 4},
        "metadata": {"documents": ["a.pdf"]},
    }
    with model_server(lambda _: reply) as server:
        response = ask(server.target("http", response_path="answer"))
    assert response.text == "Paris"
    assert response.token_usage == TokenUsage(input=3, output=4)
    assert response.metadata == {"documents": ["a.pdf"]}
    calls = (ToolCall(tool="find", input={"q": 1}, id="1"),)
    assert response.output_messages == (Message(role="assistant", content="Paris", tool_calls=calls),)
    with model_server(lambda _: {"answer": "Paris", "usage": "much", "metadata": 7}) as server:
        assert ask(server.target("http", response_path="answer")) == ProviderResponse(text="Paris")
