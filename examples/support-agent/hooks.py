"""What an eval sets up and tears down: a database for each case, and the service for the whole run."""

import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ORDERS = [
    ("A1", "Alice", "delivered", 10, 40),
    ("A2", "Alice", "delivered", 45, 25),
    ("A3", "Alice", "on its way", 2, 250),
    ("B1", "Bob", "delivered", 3, 15),
]


def create_database() -> dict[str, str]:
    """Before each attempt at a case: a fresh database. What is returned is the state of the attempt."""
    file, database = tempfile.mkstemp(suffix=".db")
    os.close(file)
    connection = sqlite3.connect(database)
    with connection:
        connection.execute("CREATE TABLE orders (id, customer, status, days_ago, price)")
        connection.executemany("INSERT INTO orders VALUES (?, ?, ?, ?, ?)", ORDERS)
    connection.close()
    return {"database": database, "customer": "Alice"}


def remove_database(state: dict[str, Any]) -> None:
    """After each attempt, also after errors and time-outs."""
    if "database" in state:
        Path(state["database"]).unlink(missing_ok=True)


def start_service() -> dict[str, Any]:
    """Before the first case: the agent as a service, on a free port."""
    service = subprocess.Popen(
        [sys.executable, Path(__file__).with_name("service.py")],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert service.stdout is not None
    return {"port": int(service.stdout.readline()), "pid": service.pid}


def stop_service(state: dict[str, Any]) -> None:
    """After the last case."""
    os.kill(state["pid"], signal.SIGTERM)
