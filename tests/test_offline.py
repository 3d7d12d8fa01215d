"""Only hosts that the user configured are contacted."""

import os
import subprocess
import sys

import pytest

from tests.kits.project import Write

NO_NETWORK = """
import socket

def refuse(*_, **__):
    raise AssertionError("somebody wants to use the network")

socket.socket.connect = socket.socket.connect_ex = socket.socket.sendto = refuse
socket.getaddrinfo = socket.gethostbyname = socket.create_connection = refuse
"""
QUICKSTART = (
    ("init", "."),
    ("validate", "."),
    ("doctor",),
    ("eval", "evals/", "--out", "one.jsonl", "--junit", "junit.xml"),
    ("eval", "evals/", "--out", "two.jsonl", "--cache", "--trials", "2"),
    ("compare", "one.jsonl", "two.jsonl"),
    ("schema",),
    ("cache", "clear"),
)


@pytest.mark.slow
def test_the_quickstart_needs_no_network(write: Write) -> None:
    folder = write("blocked/sitecustomize.py", NO_NETWORK).parent
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])}
    probe = "import socket; socket.create_connection(('127.0.0.1', 1))"
    refused = subprocess.run(
        [sys.executable, "-c", probe], env=environment, capture_output=True, text=True, check=False
    )
    assert "somebody wants to use the network" in refused.stderr
    for args in QUICKSTART:
        line = [sys.executable, "-m", "agentv", *args]
        ran = subprocess.run(line, env=environment, capture_output=True, text=True, check=False)
        assert ran.returncode == 0, (args, ran.stderr)
        assert "network" not in ran.stderr + ran.stdout
