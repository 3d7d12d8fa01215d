"""On Windows, agentv names the supported platforms. Elsewhere, importing it is silent."""

import subprocess
import sys

from tests.kits.project import Write

HINT = "hint: install and run it in WSL, the Windows Subsystem for Linux: 'wsl --install' sets it up"
ON_WINDOWS = """
import runpy, signal, sys
sys.platform = "win32"
for name in ("fcntl", "pwd", "resource", "termios"):
    sys.modules[name] = None
del signal.SIGHUP
"""


def run_on_windows(code: str) -> "subprocess.CompletedProcess[str]":
    """Run code in a process that takes its platform for Windows, without the modules that Windows lacks."""
    return subprocess.run([sys.executable, "-c", ON_WINDOWS + code], capture_output=True, text=True, check=False)


def test_the_command_line_names_wsl() -> None:
    ran = run_on_windows("runpy.run_module('agentv', run_name='__main__')")
    assert ran.returncode == 2
    assert ran.stderr == f"error: agentv runs on Linux and macOS, not on Windows\n{HINT}\n"
    assert ran.stdout == ""


def test_public_names_name_wsl_at_first_use() -> None:
    ran = run_on_windows("import agentv\nprint(agentv.__version__)\nfrom agentv import evaluate")
    assert ran.returncode == 1
    assert ran.stdout != ""
    assert ran.stderr.endswith(f"ImportError: agentv runs on Linux and macOS, not on Windows\n{HINT}\n")


def test_code_judges_work_on_windows() -> None:
    assert run_on_windows("import agentv.judge").stderr == ""


def test_the_pytest_plugin_names_wsl_if_it_is_used(write: Write) -> None:
    # pytest itself starts on the real platform
    write(
        "windows.py",
        "import sys, pytest\n"
        "@pytest.hookimpl(tryfirst=True)\n"
        "def pytest_configure(config):\n"
        "    sys.platform = 'win32'\n",
    )
    command = [sys.executable, "-m", "pytest", "-p", "windows", "-p", "no:cacheprovider", "--agentv", "a.jsonl"]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 4
    assert f"ERROR: agentv runs on Linux and macOS, not on Windows\n{HINT}" in ran.stderr
