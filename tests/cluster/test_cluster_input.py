"""Problems with a cluster or its options are explained before the run."""

import os
import signal
import sys
from pathlib import Path

import pytest

from tests.kits.clusters import Cluster, a_project, an_environment, calls
from tests.kits.project import Write, a_case, agentv, agentv_process, flat
from tests.kits.runs import ECHO, evaluate, start, target, wait_for_results

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("local:0", "--cluster 'local:0': the number of workers must be between 1 and 256"),
        ("local:257", "--cluster 'local:257': the number of workers must be between 1 and 256"),
        ("local:x", "--cluster 'local:x': the number of workers is missing or not a number"),
        ("local:-1", "--cluster 'local:-1': the number of workers is missing or not a number"),
        ("local:", "--cluster 'local:': the number of workers is missing or not a number"),
        ("local", "--cluster 'local': the number of workers is missing or not a number"),
        ("garbage", "invalid value for --cluster: 'garbage'"),
        ("", "invalid value for --cluster: ''"),
        ("http://host:80", "invalid value for --cluster: 'http://host:80'"),
        ("tcp://host", "invalid value for --cluster: 'tcp://host'"),
        ("tcp://host:0", "invalid value for --cluster: 'tcp://host:0'"),
        ("tcp://host:99999", "invalid value for --cluster: 'tcp://host:99999'"),
        ("tcp://me:pass@host:8786", "invalid value for --cluster: 'tcp://me:pass@host:8786'"),
    ],
)
def test_an_invalid_address(write: Write, address: str, message: str) -> None:
    path = a_project(write, 1)
    ran = evaluate(path, "--cluster", address, "--out", "out.jsonl", expect=2)
    assert message in ran.stderr
    assert calls() == []
    assert not Path("out.jsonl").exists()


@pytest.mark.parametrize("address", ["tcp://nowhere.invalid:1", "tcp://127.0.0.1:1"])
def test_a_cluster_that_does_not_respond(write: Write, address: str) -> None:
    ran = evaluate(a_project(write, 1), "--cluster", address, expect=2)
    assert f"error: no Dask scheduler responds at {address} within 10 s" in ran.stderr
    assert "Warning" not in ran.stderr  # of Python, for a client that was left open
    assert "hint: check that it is running at this address" in ran.stderr


def test_tls_without_configuration(write: Write, tmp_path: Path) -> None:
    cluster = Cluster(tmp_path / "cluster")
    address = cluster.url.replace("tcp://", "tls://")
    ran = evaluate(a_project(write, 1), "--cluster", address, expect=2)
    assert f"no Dask scheduler responds at {address}" in ran.stderr
    assert "configure TLS in Dask's configuration" in ran.stderr


def test_a_cluster_without_workers(write: Write, tmp_path: Path) -> None:
    cluster = Cluster(tmp_path / "cluster")
    ran = evaluate(a_project(write, 1), "--cluster", cluster.url, expect=2)
    assert f"the cluster at {cluster.url} has no workers" in ran.stderr
    assert "hint: start workers first" in ran.stderr


def test_without_the_extra_the_install_command_is_printed(write: Write) -> None:
    write("hidden/distributed.py", "raise ImportError('not here')")
    path = a_project(write, 1)
    environment = an_environment(PYTHONPATH=str(Path("hidden").absolute()))
    ran = agentv("eval", path, "--cluster", "local:2", env=environment)
    assert ran.returncode == 2
    assert "error: --cluster requires the 'distributed' package" in ran.stderr
    assert "hint: install it with: pip install 'distributed>=" in ran.stderr


def test_a_run_without_a_cluster_does_not_import_dask(write: Write) -> None:
    write("hidden/distributed.py", "raise SystemExit('imported')")
    write("hidden/dask.py", "raise SystemExit('imported')")
    environment = an_environment(PYTHONPATH=str(Path("hidden").absolute()))
    ran = agentv_process("eval", a_project(write, 1), "--out", "out.jsonl", env=environment)
    assert ran.returncode == 0, ran.stderr


def test_a_worker_with_another_version_refuses_the_run(write: Write, tmp_path: Path) -> None:
    write("other/agentv/__init__.py", "__version__ = '0.0.1'")
    cluster = Cluster(tmp_path / "cluster")
    cluster.add()
    cluster.add(env=an_environment(PYTHONPATH=str(Path("other").absolute())))
    ran = evaluate(a_project(write, 4), "--cluster", cluster.url, "--out", "out.jsonl", expect=2)
    assert "error: worker w2 (tcp://127.0.0.1:" in ran.stderr
    assert "has agentv 0.0.1, but this is " in ran.stderr
    assert calls() == []
    assert not Path("out.jsonl").exists()


def test_a_worker_without_agentv_refuses_the_run(write: Write, tmp_path: Path) -> None:
    write("other/agentv.py", "raise ImportError('not here')")
    cluster = Cluster(tmp_path / "cluster")
    cluster.add(env=an_environment(PYTHONPATH=str(Path("other").absolute())))
    ran = evaluate(a_project(write, 4), "--cluster", cluster.url, expect=2)
    assert "has no agentv: install version" in ran.stderr
    assert calls() == []


def test_a_worker_without_a_variable_refuses_the_run(write: Write, tmp_path: Path) -> None:
    """Plain TCP to another machine sends no variables; here the driver is another one that has it."""
    cluster = Cluster(tmp_path / "cluster")
    cluster.add(env={name: value for name, value in os.environ.items() if name != "AGENT_API_KEY"})
    path = a_project(write, 4)
    write("targets.yaml", target("echo ${{ AGENT_API_KEY }}"))
    ran = agentv("eval", path, "--cluster", reachable(cluster), env=an_environment(AGENT_API_KEY="canary-1234567890"))
    assert ran.returncode == 2, ran.stderr
    assert "error: worker w1 (tcp://127.0.0.1:" in ran.stderr
    assert "the environment variable AGENT_API_KEY is not set" in flat(ran.stderr)
    assert "nothing was run" in ran.stderr


def reachable(cluster: Cluster) -> str:
    """The address of a scheduler, written so that only who looks it up knows that it is on this machine."""
    return cluster.url.replace("127.0.0.1", "127.1")


def test_a_worker_without_a_file_refuses_the_run(write: Write, tmp_path: Path) -> None:
    """A worker on another machine, simulated by one that sees a different project folder."""
    cluster = Cluster(tmp_path / "cluster")
    cluster.add(env=an_environment(PYTHONPATH=str(blind(write))))
    path = a_project(write, 4)
    ran = evaluate(path, "--cluster", cluster.url, "--out", "out.jsonl", expect=2)
    assert "error: worker w1 (tcp://127.0.0.1:" in ran.stderr
    assert f"{path}: cannot be read: No such file or directory" in flat(ran.stderr)
    assert calls() == []


def blind(write: Write) -> Path:
    """A folder for `PYTHONPATH` with which a process does not see the eval file."""
    code = "import pathlib\nreal = pathlib.Path.open\ndef open_(self, *args, **named):\n    if self.name == 'cases.jsonl':\n        raise FileNotFoundError(2, 'No such file or directory')\n    return real(self, *args, **named)\npathlib.Path.open = open_\n"
    return write("blind/sitecustomize.py", code).parent


def test_batch_targets_are_rejected_on_a_cluster(write: Write) -> None:
    write("all.py", ECHO)
    write("targets.yaml", target(f"{sys.executable} all.py {{BATCH_FILE}} {{OUTPUT_FILE}}", provider_batching=True))
    path = write("cases.jsonl", [a_case("a", evaluators=[{"type": "contains", "value": ""}])])
    ran = evaluate(path, "--cluster", "local:1", expect=2)
    assert "--cluster: target 'default' answers all cases of a file in one batch" in ran.stderr
    assert "hint: run without --cluster, or set 'provider_batching: false'" in ran.stderr


def test_a_worker_that_is_busy_with_another_run(write: Write, tmp_path: Path) -> None:
    cluster = Cluster(tmp_path / "cluster")
    cluster.add()
    path = a_project(write, 300, "time.sleep(1)")
    start(str(path), "--cluster", cluster.url, "--workers", "1", "--out", "one.jsonl")
    wait_for_results(Path("one.jsonl"), 1)
    ran = evaluate(path, "--cluster", cluster.url, "--out", "two.jsonl", expect=2)
    assert "is busy with another run of agentv" in ran.stderr
    assert not Path("two.jsonl").exists()


def test_a_worker_that_does_not_respond_is_named(write: Write, tmp_path: Path) -> None:
    cluster = Cluster(tmp_path / "cluster")
    cluster.add()
    cluster.add().send_signal(signal.SIGSTOP)
    ran = evaluate(a_project(write, 4), "--cluster", cluster.url, expect=2)
    assert "error: worker w2 (tcp://127.0.0.1:" in ran.stderr
    assert "does not respond: no response within 30 s" in ran.stderr
    assert calls() == []
