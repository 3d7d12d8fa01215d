"""A process that has imported agentv may be forked: each fork manages only its own children."""

import subprocess
import sys

from tests.kits.project import Write

FORKS = """
import asyncio, os, sys, time
from pathlib import Path
from agentv.processes.child import run_process

def run(script):
    return asyncio.run(run_process([b"/bin/sh", b"-c", script], os.environb)).code

first = os.fork()
if first == 0:
    os._exit(abs(run(b"touch started; until test -e go; do sleep 0.05; done")))
while not Path("started").exists():
    time.sleep(0.02)
second = os.fork()
if second == 0:
    os._exit(abs(run(b":")))  # then it looks for what its children have left behind
assert os.waitpid(second, 0)[1] == 0
Path("go").touch()
print(os.waitstatus_to_exitcode(os.waitpid(first, 0)[1]))
"""


def test_a_fork_does_not_end_the_children_of_another(write: Write) -> None:
    ran = subprocess.run([sys.executable, "-c", FORKS], capture_output=True, text=True, check=False, timeout=120)
    assert (ran.stdout, ran.stderr) == ("0\n", "")
