"""Access to the viewer's server, tested on plain sockets like a client other than a browser."""

import contextlib
import json
import os
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agentv.view.files import file_id
from agentv.view.serve import serving
from agentv.view.server import ViewerServer
from tests.kits.pages import a_result, save_results
from tests.kits.processes import PATIENCE_SECONDS, wait_until
from tests.kits.viewer import Address, exchange, request


@pytest.fixture
def at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Address]:
    """A viewer of a folder with one run."""
    monkeypatch.chdir(tmp_path)
    save_results(tmp_path / "runs" / "eval_1.jsonl", [a_result("one"), a_result("two", 0.2)])
    with serving([Path("runs")]) as address:
        yield Address(address)


def run_of(path: Path) -> str:
    return file_id(Path(os.path.realpath(path)))


def test_the_token_is_behind_the_hash_and_no_cookie_is_set(at: Address) -> None:
    assert at.whole == f"{at.origin}/#token={at.token}"
    for path in ("/", "/api/runs", f"/?token={at.token}"):
        assert "set-cookie" not in request(at, path).headers
    cookie = f"agentv-{at.port}={at.token}"
    assert request(at, "/api/runs", X_Agentv_Token=None, Cookie=cookie).status == 403


@pytest.mark.parametrize("token", [None, "", "wrong", "{token}x"])
def test_without_the_token_there_is_no_data(at: Address, tmp_path: Path, token: str | None) -> None:
    sent = token and token.format(token=at.token)
    run = run_of(tmp_path / "runs" / "eval_1.jsonl")
    for path in ("/api/runs", f"/api/run/{run}/index", f"/api/runs?token={at.token}", "/api/review", "/api/nothing"):
        reply = request(at, path, X_Agentv_Token=sent)
        assert reply.status == 403
        assert "Open the complete address printed by 'agentv view'" in reply.text


def test_two_tokens_are_refused(at: Address) -> None:
    token = f"X-Agentv-Token: {at.token}\r\n"
    head = f"GET /api/runs HTTP/1.1\r\nHost: 127.0.0.1:{at.port}\r\n{token}{token}\r\n"
    assert exchange(at.port, head.encode()).startswith(b"HTTP/1.1 403 ")


def test_pages_without_the_token_are_shells_without_data(at: Address, tmp_path: Path) -> None:
    run = run_of(tmp_path / "runs" / "eval_1.jsonl")
    unknown = "0" * 16
    for known_path, unknown_path in (
        (f"/run/{run}", f"/run/{unknown}"),
        (f"/compare/{run}/{run}", f"/compare/{unknown}/{unknown}"),
        (f"/review/{run}", f"/review/{unknown}"),
    ):
        shell = request(at, known_path, X_Agentv_Token=None)
        assert shell.status == 200
        assert shell.body == request(at, unknown_path, X_Agentv_Token=None).body
        assert b"eval_1" not in shell.body
    for path in ("/", "/review", "/assets/view.js", "/favicon.ico"):
        assert request(at, path, X_Agentv_Token=None).status == 200


def test_the_file_that_opens_the_browser_may_lead_to_a_page_but_not_to_data(at: Address) -> None:
    assert request(at, "/", X_Agentv_Token=None, Sec_Fetch_Site="cross-site").status == 200
    assert request(at, "/api/runs", Sec_Fetch_Site="cross-site").status == 403
    assert request(at, "/", Origin="https://evil.example").status == 403


@pytest.mark.parametrize(
    "host",
    [None, "", "evil.example", "evil.example:{port}", "127.0.0.1", "127.0.0.1:1", "0.0.0.0:{port}", "[::1]:{port}"],
)
def test_another_host_is_refused_even_with_the_token(at: Address, host: str | None) -> None:
    sent = host and host.format(port=at.port)
    for path in ("/", f"/?token={at.token}", "/api/runs"):
        reply = request(at, path, Host=sent)
        assert (reply.status, reply.text) == (403, "this is not the address of the viewer\n")
    assert request(at, "/", Host=f"localhost:{at.port}").status == 200


def test_two_hosts_are_refused(at: Address) -> None:
    head = f"GET / HTTP/1.1\r\nHost: 127.0.0.1:{at.port}\r\nHost: evil.example\r\n\r\n"
    assert exchange(at.port, head.encode()).startswith(b"HTTP/1.1 403 ")


@pytest.mark.parametrize(
    "header",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:1"},
        {"Origin": "http://localhost:{port}"},  # the request is for 127.0.0.1
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},  # another port of this machine
    ],
)
def test_another_site_is_refused_even_with_the_token(at: Address, header: dict[str, str]) -> None:
    sent: Any = {name: value.format(port=at.port) for name, value in header.items()}
    reply = request(at, "/api/runs", **sent)
    assert (reply.status, reply.text) == (403, "requests from other sites are not allowed\n")
    assert request(at, "/api/runs", Origin=at.origin, Sec_Fetch_Site="same-origin").status == 200


def described(tmp_path: Path) -> bytes:
    sums = {"results": 2, "cases": 2, "trials": 1, "mean": 0.6, "deviation": 0.5, "shares": [[1.0, 1], [0.0, 1]]}
    runs = [{"run": run_of(tmp_path / "runs" / "eval_1.jsonl"), "sums": {**sums, "histogram": [0, 1, 0, 0, 1]}}]
    return json.dumps({"runs": runs}).encode()


def test_a_post_needs_the_token(at: Address, tmp_path: Path) -> None:
    body = described(tmp_path)
    good = request(at, "/api/describe", "POST", body)
    assert (good.status, json.loads(good.body)["headline"]) == (200, "50% passed (95%: 9 to 91%), mean 0.60.")
    assert request(at, "/api/describe", "POST", body, X_Agentv_Token=None).status == 403
    assert request(at, f"/api/describe?token={at.token}", "POST", body, X_Agentv_Token=None).status == 403
    assert request(at, "/", "POST", body, X_Agentv_Token=None).status == 403
    assert request(at, "/api/describe", "POST", body, Origin="https://evil.example").status == 403
    assert request(at, "/api/describe", "POST", body, Host="evil.example").status == 403


def test_an_oversized_or_invalid_post_is_rejected(at: Address) -> None:
    assert "the request is too large" in request(at, "/api/describe", "POST", Content_Length=str(1 << 40)).text
    for length in (None, "-1", "x", "1e3", "²"):
        assert "needs a Content-Length" in request(at, "/api/describe", "POST", Content_Length=length).text
    for body in (b"", b"[]", b"{", b'{"runs": []}', b"\xff", b'{"runs": [{"run": "x", "sums": {}}]}'):
        reply = request(at, "/api/describe", "POST", body)
        assert (reply.status, reply.text.startswith("the request cannot be read")) == (400, True)


def test_favicon_ico_is_served(at: Address) -> None:
    reply = request(at, "/favicon.ico")
    assert (reply.status, reply.headers["content-type"]) == (200, "image/svg+xml; charset=utf-8")


def test_responses_have_a_strict_content_security_policy(at: Address) -> None:
    for path in ("/", "/assets/view.js", "/api/runs", "/nothing"):
        headers = request(at, path).headers
        policy = headers["content-security-policy"]
        assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self';")
        assert "unsafe" not in policy and "require-trusted-types-for 'script'" in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
        assert headers["cache-control"] == "no-store"
        assert not [name for name in headers if name.startswith("access-control")]
        assert headers["server"] == "agentv"
    assert b"<script>" not in request(at, "/").body


@pytest.mark.parametrize(
    "path",
    [
        "/../../../../etc/passwd",
        "/assets/../routes.py",
        "/assets/..%2f..%2froutes.py",
        "/assets/%2e%2e/%2e%2e/routes.py",
        "/assets/..\\routes.py",
        "/assets//etc/passwd",
        "//etc/passwd",
        "/assets/routes.py",
        "/run/../../etc/passwd",
        "/run/..%2f..%2fetc%2fpasswd",
        "/api/run/%2e%2e%2f%2e%2e%2fetc%2fpasswd/index",
        "/api/run/runs%2feval_1.jsonl/index",
        "/etc/passwd",
        "http://127.0.0.1/etc/passwd",
        "file:///etc/passwd",
    ],
)
def test_an_unknown_path_is_not_found(at: Address, path: str) -> None:
    reply = request(at, path)
    assert reply.status == 404
    assert b"root:" not in reply.body and b"import" not in reply.body


def test_runs_have_opaque_ids_and_are_limited_to_the_folders(at: Address, tmp_path: Path) -> None:
    outside = save_results(tmp_path / "outside" / "eval_2.jsonl", [a_result("secret")])
    (tmp_path / "runs" / "link.jsonl").symlink_to(outside)
    (tmp_path / "runs" / "folder").symlink_to(outside.parent)
    (tmp_path / "runs" / "inside.jsonl").symlink_to(tmp_path / "runs" / "eval_1.jsonl")
    (tmp_path / "runs" / "passwd.jsonl").symlink_to("/etc/passwd")
    (run,) = json.loads(request(at, "/api/runs").body)["runs"]
    assert run["id"] == run_of(tmp_path / "runs" / "eval_1.jsonl")
    assert len(run["id"]) == 16 and "eval" not in run["id"]
    for path in (outside, tmp_path / "runs" / "link.jsonl", Path("/etc/passwd")):
        assert b"results file no longer exists" in request(at, f"/api/run/{run_of(path)}/index").body
        assert request(at, f"/api/run/{run_of(path)}/results/0?generation=1").status == 404


def test_a_file_that_becomes_a_symlink_to_the_outside_is_not_served(at: Address, tmp_path: Path) -> None:
    path = tmp_path / "runs" / "eval_1.jsonl"
    run = run_of(path)
    assert b"results file no longer exists" not in request(at, f"/api/run/{run}/index").body
    outside = save_results(tmp_path / "outside.jsonl", [a_result("secret")])
    path.unlink()
    path.symlink_to(outside)
    index = request(at, f"/api/run/{run}/index").body
    assert b"results file no longer exists" in index
    assert b"secret" not in index


def test_head_and_unsupported_methods(at: Address) -> None:
    head = request(at, "/", "HEAD")
    assert (head.status, head.body) == (200, b"")
    assert int(head.headers["content-length"]) > 100
    assert request(at, "/api/runs", "HEAD", X_Agentv_Token=None).status == 403
    assert request(at, "/", "POST").status == 405
    assert request(at, "/api/describe").status == 405
    for method in ("PUT", "DELETE", "OPTIONS", "TRACE", "CONNECT", "BREW"):
        reply = request(at, "/", method)
        assert reply.status == 501
        assert not [name for name in reply.headers if name.startswith("access-control")]


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"\r\n\r\n", b""),
        (b"garbage\r\n\r\n", b"400"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", b"400"),
        (b"GET / HTTP/9.9\r\n\r\n", b"505"),
        (b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\n\r\n", b"414"),
        (b"GET / HTTP/1.1\r\nX: " + b"a" * 100_000 + b"\r\n\r\n", b"431"),
        (b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 200 + b"\r\n", b"431"),
        (b"GET / HTTP/1.1\r\n" + b"".join(b"X%d: %s\r\n" % (n, b"a" * 1000) for n in range(60)) + b"\r\n", b"431"),
        (b"GET / HTTP/1.1\r\nno colon\r\n\r\n", b"403"),
        (b"GET /%00%ff HTTP/1.1\r\n\r\n", b"403"),
        (b"GET / HTTP/1.1\r\nHost: \xff\xfe\r\n\r\n", b"403"),
    ],
)
def test_malformed_requests_do_not_stop_the_server(
    at: Address, data: bytes, status: bytes, capfd: pytest.CaptureFixture[str]
) -> None:
    reply = exchange(at.port, data)
    assert reply[9:12] == status
    assert request(at, "/").status == 200
    assert capfd.readouterr() == ("", "")


def test_invalid_numbers_in_a_query_are_rejected(at: Address, tmp_path: Path) -> None:
    run = run_of(tmp_path / "runs" / "eval_1.jsonl")
    assert request(at, f"/api/run/{run}/index?generation=x").status == 400
    assert request(at, "http://[/").status == 400
    assert request(at, f"/api/run/{run}/index?from=-1&generation=1").status == 200
    assert request(at, f"/api/run/{run}/results/999?generation=1").status == 409
    assert request(at, f"/api/run/{run}/results/0?generation=7").text == "the results file was replaced\n"
    assert request(at, f"/api/run/{run}/index?" + "&".join(f"a{n}=1" for n in range(99))).status == 400


@pytest.mark.parametrize("sent", [b"", b"GET / HT", b"POST /api/describe HTTP/1.1\r\nContent-Length: 1000\r\n"])
def test_connections_without_the_token_do_not_keep_others_waiting(
    at: Address, monkeypatch: pytest.MonkeyPatch, sent: bytes
) -> None:
    monkeypatch.setattr(ViewerServer, "request_seconds", 10_000.0)
    slow = [socket.create_connection(("127.0.0.1", at.port)) for _ in range(200)]
    for connection in slow:
        with contextlib.suppress(OSError):  # the oldest are closed already
            connection.sendall(sent)
    assert request(at, "/api/runs").status == 200
    for connection in slow:
        connection.close()


def test_slow_readers_without_the_token_do_not_keep_others_waiting(at: Address) -> None:
    head = f"GET /assets/view.js HTTP/1.1\r\nHost: 127.0.0.1:{at.port}\r\n\r\n".encode()
    slow = []
    for _ in range(2 * ViewerServer.max_threads):
        connection = socket.socket()
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        connection.connect(("127.0.0.1", at.port))
        connection.sendall(head)
        slow.append(connection)
    assert request(at, "/api/runs").status == 200
    for connection in slow:
        connection.close()


def test_a_connection_with_the_token_keeps_its_thread(at: Address, tmp_path: Path) -> None:
    body = described(tmp_path)
    lines = ("POST /api/describe HTTP/1.1", f"Host: 127.0.0.1:{at.port}", f"X-Agentv-Token: {at.token}")
    head = "\r\n".join([*lines, f"Content-Length: {len(body)}", "", ""]).encode()
    with socket.create_connection(("127.0.0.1", at.port), timeout=PATIENCE_SECONDS) as own:
        own.sendall(head + body[:10])
        assert request(at, "/api/runs").status == 200  # the server has read the head by now, or will before others
        others = [socket.create_connection(("127.0.0.1", at.port)) for _ in range(100)]
        assert request(at, "/api/runs").status == 200
        own.sendall(body[10:])
        assert own.recv(100).startswith(b"HTTP/1.1 200 ")
    for connection in others:
        connection.close()


def test_slow_clients_are_dropped_and_do_not_block_others(
    at: Address, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(ViewerServer, "request_seconds", 1.0)
    slow = [socket.create_connection(("127.0.0.1", at.port)) for _ in range(ViewerServer.max_threads + 5)]
    for connection in slow:
        connection.sendall(b"GET / HT")
    assert request(at, "/").status == 200
    for connection in slow:
        connection.settimeout(30)
        assert connection.recv(100) == b""
        connection.close()
    assert capfd.readouterr() == ("", "")


def test_it_listens_on_this_machine_only_and_leaves_no_thread(tmp_path: Path) -> None:
    path = save_results(tmp_path / "a.jsonl", [a_result("one")])
    before = set(threading.enumerate())
    with serving([path]) as address:
        at = Address(address)
        listening = Path("/proc/net/tcp").read_text() + Path("/proc/net/tcp6").read_text()
        ours = [line.split()[1] for line in listening.splitlines() if f":{at.port:04X} " in line.split("00000000")[0]]
        assert {place.partition(":")[0] for place in ours if place.endswith(f":{at.port:04X}")} == {"0100007F"}
        waiting = socket.create_connection(("127.0.0.1", at.port))
        waiting.sendall(b"GET ")
        time.sleep(0.1)
    waiting.close()
    wait_until(lambda: set(threading.enumerate()) <= before)  # the last of them may be about to end
    with pytest.raises(OSError):
        socket.create_connection(("127.0.0.1", at.port), timeout=1)


def test_secrets_are_masked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from agentv.redact import Redactor, clean

    secret = "hunter2-hunter2"
    monkeypatch.setattr(clean, "_forms", Redactor([secret])._forms)
    path = save_results(tmp_path / "a.jsonl", [a_result("one", candidate_answer=f"it is {secret}", target=secret)])
    with serving([path]) as address:
        at, run = Address(address), run_of(path)
        texts = [request(at, f"/api/run/{run}/index").body]
        generation = json.loads(texts[0][4 : 4 + int.from_bytes(texts[0][:4], "little")])["generation"]
        texts += [
            request(at, f"/api/run/{run}/{kind}/0?generation={generation}").body for kind in ("results", "snippets")
        ]
        texts += [request(at, "/api/runs").body]
    assert not [text for text in texts if secret.encode() in text]
    assert b"it is ***" in texts[1] and b"it is ***" in texts[2]


def test_a_partial_index_announces_that_there_is_more(
    at: Address, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agentv.view.incremental_index.CHUNK_BYTES", 1000)
    monkeypatch.setattr("agentv.view.incremental_index.ANSWER_BYTES", 2000)
    path = save_results(tmp_path / "runs" / "eval_2.jsonl", [a_result(f"case-{number}") for number in range(200)])
    run = run_of(path)

    def read(query: str) -> dict[str, Any]:
        body = request(at, f"/api/run/{run}/index{query}").body
        state: dict[str, Any] = json.loads(body[4 : 4 + int.from_bytes(body[:4], "little")])
        return state

    def read_to_end() -> int:
        """Read as a page does that was just loaded; return the number of chunks."""
        state = read("")
        while state["is_behind"]:
            state = read(f"?generation={state['generation']}&from={state['first'] + state['chunks']}")
        assert state["results"] == 200
        return int(state["first"] + state["chunks"])

    chunks = read_to_end()
    assert chunks > 10
    assert read("")["chunks"] < chunks  # the file is read, and one answer does not hold its index
    assert read_to_end() == chunks  # after a reload
