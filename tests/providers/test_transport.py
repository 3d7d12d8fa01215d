"""Connections to targets: their limit, their reuse and the configured proxies."""

import asyncio
import json
import os
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from agentv.files.conversion import convert
from agentv.providers import settings_type
from agentv.providers.transport import make_transport
from tests.kits.model_servers import a_request, asked, model_server
from tests.kits.project import Write, a_case, agentv, flat

KINDS = ("openai", "azure", "anthropic", "gemini", "http")


@pytest.mark.parametrize("kind", KINDS)
def test_requests_one_after_another_use_one_connection(kind: str) -> None:
    with model_server(lambda _: "fine") as server:
        answers = asyncio.run(asked(server.target(kind), *["again"] * 5))
        assert len(answers) == len(server.asked) == 5
        assert server.connections == 1


@pytest.mark.parametrize("kind", KINDS)
def test_proxies_are_used(kind: str, write: Write) -> None:
    with model_server(lambda _: "fine") as proxy:
        target = proxy.target(kind)
        away = json.loads(json.dumps(target).replace(proxy.url, "http://far.away.invalid"))
        write("targets.yaml", json.dumps({"targets": [away]}))
        write("cases.jsonl", [a_case(evaluators=[{"type": "contains", "value": "fine"}])])
        ran = agentv("eval", "cases.jsonl", env={**os.environ, "http_proxy": proxy.url})
        assert ran.returncode == 0, ran.stdout + ran.stderr
        (request,) = proxy.requests
    assert request.path.startswith("http://far.away.invalid/")


REPLY = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
LOCALHOST_PEM = """-----BEGIN PRIVATE KEY-----
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgGh/a/9vBnezrpZDN
wLAMpgzW7/Z7YZpKeuQUGKyDGYWhRANCAAQbT2qxkJlpBeKCqaEaNh4v7KXYxhTF
aYqradlV3FFszAsyyLB3QluFieuVNyWUpu8lnsRy/XJjFlYFTXf6e5Xa
-----END PRIVATE KEY-----
-----BEGIN CERTIFICATE-----
MIIBZzCCAQ2gAwIBAgIBATAKBggqhkjOPQQDAjAUMRIwEAYDVQQDDAlsb2NhbGhv
c3QwIBcNMjAwMTAxMDAwMDAwWhgPMjEyMDAxMDEwMDAwMDBaMBQxEjAQBgNVBAMM
CWxvY2FsaG9zdDBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IABBtParGQmWkF4oKp
oRo2Hi/spdjGFMVpiqtp2VXcUWzMCzLIsHdCW4WJ65U3JZSm7yWexHL9cmMWVgVN
d/p7ldqjTjBMMBoGA1UdEQQTMBGCCWxvY2FsaG9zdIcEfwAAATAPBgNVHRMBAf8E
BTADAQH/MB0GA1UdDgQWBBSSLKjgIS1IiiALbDUMxPbjCTAqEjAKBggqhkjOPQQD
AgNIADBFAiEAwU8pu9FcVcr+jU6tWntGhzECaZSu/sUJ5PGHBIZY9+YCIC3XH8Mi
myq7VznN0x1saKmeRwhObshslZulo1eHMNCW
-----END CERTIFICATE-----
"""
"""The key and the certificate of a server at localhost, good for a hundred years and for nothing else."""


@contextmanager
def server(serve: Callable[[socket.socket], None], context: ssl.SSLContext | None = None) -> Iterator[str]:
    """Serve each connection by a function; the URL."""
    listening = socket.create_server(("127.0.0.1", 0))

    def accept() -> None:
        while True:
            try:
                connection, _ = listening.accept()
            except OSError:
                return
            try:
                wrapped = context.wrap_socket(connection, server_side=True) if context else connection
                with wrapped:
                    serve(wrapped)
            except OSError:
                connection.close()

    thread = threading.Thread(target=accept, daemon=True)
    thread.start()
    try:
        yield f"{'https' if context else 'http'}://localhost:{listening.getsockname()[1]}"
    finally:
        listening.shutdown(socket.SHUT_RDWR)
        listening.close()
        thread.join(10)


def receive(connection: socket.socket) -> bytes:
    """Read a request with its body, or return nothing if the client has disconnected."""
    received = b""
    while b"\r\n\r\n" not in received:
        if not (data := connection.recv(65536)):
            return b""
        received += data
    head, _, body = received.partition(b"\r\n\r\n")
    length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0] or 0)
    while len(body) < length:
        body += connection.recv(65536)
    return head + b"\r\n\r\n" + body


async def ask(url: str, *contents: bytes) -> list[bytes]:
    """Post contents one after another, by one client."""
    async with httpx2.AsyncClient(timeout=None, transport=make_transport(httpx2)) as client:
        return [(await client.post(url, content=content)).content for content in contents]


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    path = tmp_path / "localhost.pem"
    path.write_text(LOCALHOST_PEM)
    return path


def test_tls(certificate: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate)
    requests: list[bytes] = []

    def serve(connection: socket.socket) -> None:
        while request := receive(connection):
            requests.append(request)
            connection.sendall(REPLY)

    with server(serve, context) as url:
        with pytest.raises(httpx2.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
            asyncio.run(ask(url, b"one"))
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        assert asyncio.run(ask(url, b"one", b"x" * 3_000_000)) == [b"ok", b"ok"]
    assert [len(request.partition(b"\r\n\r\n")[2]) for request in requests] == [3, 3_000_000]


def test_a_connection_that_the_server_has_closed_is_not_used_again() -> None:
    connections = []

    def serve(connection: socket.socket) -> None:
        request = receive(connection)
        connection.sendall(REPLY)
        connection.shutdown(socket.SHUT_RDWR)
        connections.append(request)

    async def pausing(url: str) -> None:
        async with httpx2.AsyncClient(timeout=None, transport=make_transport(httpx2)) as client:
            for number in range(3):
                assert (await client.post(url, content=b"hm")).content == b"ok"
                while len(connections) <= number:  # until the server has closed it
                    await asyncio.sleep(0.01)
                await asyncio.sleep(0.01)  # which the client sees when it looks next

    with server(serve) as url:
        asyncio.run(pausing(url))
    assert len(connections) == 3


def test_a_large_answer_that_is_read_slowly() -> None:
    size = 20_000_000

    def serve(connection: socket.socket) -> None:
        receive(connection)
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size + b"x" * size)

    async def read(url: str) -> int:
        client = httpx2.AsyncClient(timeout=None, transport=make_transport(httpx2))
        async with client, client.stream("POST", url) as response:
            total = 0
            async for chunk in response.aiter_raw():
                total += len(chunk)
                await asyncio.sleep(0)
            return total

    with server(serve) as url:
        assert asyncio.run(read(url)) == size


@pytest.mark.parametrize(
    ("reply", "error"),
    [
        (b"", httpx2.RemoteProtocolError),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhal", httpx2.RemoteProtocolError),
        (b"220 mail.example ESMTP\r\n\r\n", httpx2.RemoteProtocolError),
    ],
)
def test_a_broken_answer_is_an_error_of_httpx(reply: bytes, error: type[Exception]) -> None:
    def serve(connection: socket.socket) -> None:
        receive(connection)
        connection.sendall(reply)

    with server(serve) as url, pytest.raises(error):
        asyncio.run(ask(url, b"one"))


def test_timeouts_of_a_client_apply() -> None:
    def serve(connection: socket.socket) -> None:
        receive(connection)
        receive(connection)  # until the client gives up

    async def impatient(url: str) -> None:
        timeout = httpx2.Timeout(None, read=0.1)  # connecting may take its time
        async with httpx2.AsyncClient(timeout=timeout, transport=make_transport(httpx2)) as client:
            await client.post(url)

    with server(serve) as url, pytest.raises(httpx2.ReadTimeout):
        asyncio.run(impatient(url))


@pytest.mark.parametrize("kind", KINDS)
def test_a_provider_that_is_entered_twice_has_one_client(kind: str) -> None:
    async def twice(target: dict[str, Any]) -> None:
        settings: Any = convert(target, settings_type(kind))
        provider = settings.open(None)
        async with provider:
            async with provider:
                await provider.invoke(a_request())
            await provider.invoke(a_request())

    with model_server(lambda _: "Paris") as server:
        asyncio.run(twice(server.target(kind)))
        assert (len(server.asked), server.connections) == (2, 1)


@pytest.mark.parametrize("kind", KINDS)
def test_a_provider_can_be_used_again_in_another_event_loop(kind: str) -> None:
    with model_server(lambda _: "Paris") as server:
        settings: Any = convert(server.target(kind), settings_type(kind))
        provider = settings.open(None)

        async def once() -> None:
            async with provider:
                await provider.invoke(a_request())

        asyncio.run(once())
        asyncio.run(once())
        assert (len(server.asked), server.connections) == (2, 2)


def test_a_request_on_a_closed_reused_connection_is_resent() -> None:
    requests: list[bytes] = []

    def serve(connection: socket.socket) -> None:
        """Answer the first request of a connection, and close it when the second has arrived."""
        requests.append(receive(connection))
        connection.sendall(REPLY)
        requests.append(receive(connection))

    with server(serve) as url:
        assert asyncio.run(ask(url, b"one", b"two", b"three")) == [b"ok", b"ok", b"ok"]
    bodies = [request.partition(b"\r\n\r\n")[2] for request in requests]
    assert bodies[:5] == [b"one", b"two", b"two", b"three", b"three"]


def test_a_request_on_a_new_connection_is_sent_once() -> None:
    requests: list[bytes] = []

    def serve(connection: socket.socket) -> None:
        requests.append(receive(connection))

    async def ask_twice(url: str) -> None:
        async with httpx2.AsyncClient(timeout=None, transport=make_transport(httpx2)) as client:
            for _ in range(2):
                with pytest.raises(httpx2.RemoteProtocolError):
                    await client.post(url, content=b"one")

    with server(serve) as url:
        asyncio.run(ask_twice(url))
    assert len(requests) == 2


def test_a_malformed_answer_on_a_reused_connection_is_not_retried() -> None:
    requests: list[bytes] = []

    def serve(connection: socket.socket) -> None:
        requests.append(receive(connection))
        connection.sendall(REPLY)
        requests.append(receive(connection))
        connection.sendall(b"220 mail.example ESMTP\r\n\r\n")

    with server(serve) as url, pytest.raises(httpx2.RemoteProtocolError):
        asyncio.run(ask(url, b"one", b"two"))
    assert len(requests) == 2


def run_with(write: Write, url: str, *args: str, **variables: str) -> Any:
    """Run a case on an `http` target with these variables."""
    write("targets.yaml", json.dumps({"targets": [{"name": "default", "provider": "http", "url": url}]}))
    write("cases.jsonl", [a_case(evaluators=[{"type": "contains", "value": ""}])])
    environment = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
    return agentv("eval", "cases.jsonl", "--out", "out.jsonl", *args, env=environment | variables)


@pytest.mark.parametrize(
    ("variable", "value", "problem"),
    [
        ("HTTPS_PROXY", "foo://proxy:3128", "'foo://proxy:3128' has the scheme 'foo' (expected http, https or socks5)"),
        ("http_proxy", "http://", "'http://' has no host"),
        ("ALL_PROXY", "http://me:secret@proxy:port", "'http://proxy:port' cannot be read"),
        ("ALL_PROXY", "socks5://proxy", "'socks5://proxy' needs the 'socksio' package"),
    ],
)
def test_an_invalid_proxy_is_an_error_before_the_run(write: Write, variable: str, value: str, problem: str) -> None:
    ran = run_with(write, "https://far.away.invalid/", **{variable: value})
    assert ran.returncode == 2
    assert f"target 'default' is not ready: {variable} is not a valid proxy: {problem}" in flat(ran.stderr)
    assert "secret" not in ran.stderr
    assert not Path("out.jsonl").exists()


def test_an_error_names_the_proxy_in_use(write: Write) -> None:
    ran = run_with(write, "https://far.away.invalid/", https_proxy="http://me:secret@127.0.0.1:9")
    assert ran.returncode == 1
    (result,) = map(json.loads, Path("out.jsonl").read_text().splitlines())
    assert "(through the proxy http://127.0.0.1:9)" in result["error"]
    assert "secret" not in result["error"]


def test_a_missing_ca_file_is_named_before_the_run(write: Write) -> None:
    ran = run_with(write, "https://far.away.invalid/", SSL_CERT_FILE="/nonexistent/ca.pem")
    assert ran.returncode == 2
    message = "SSL_CERT_FILE: /nonexistent/ca.pem cannot be read: No such file or directory"
    assert f"target 'default' is not ready: {message}" in flat(ran.stderr)
    path = write("empty.pem", "nothing")
    ran = run_with(write, "https://far.away.invalid/", SSL_CERT_FILE=str(path))
    assert "has no certificates in PEM format" in flat(ran.stderr)


def test_a_ca_file_is_not_needed_without_tls(write: Write) -> None:
    with model_server(lambda _: "fine") as running:
        ran = run_with(write, running.url, SSL_CERT_FILE="/nonexistent/ca.pem")
    assert ran.returncode == 0, ran.stderr


def test_a_failed_certificate_check_names_the_setting_and_is_not_retried(certificate: Path, write: Write) -> None:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate)
    with server(lambda _: None, context) as url:
        ran = run_with(write, url, "--max-retries", "3")
    assert ran.returncode == 1
    (result,) = map(json.loads, Path("out.jsonl").read_text().splitlines())
    assert "CERTIFICATE_VERIFY_FAILED" in result["error"]
    assert result["error"].endswith("set SSL_CERT_FILE to a file with the certificate of its CA")
    assert result["attempt"] == 1
