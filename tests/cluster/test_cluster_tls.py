"""A cluster with TLS: messages are encrypted, so workers receive the variables that they lack."""

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.kits.clusters import Cluster, a_project, an_environment
from tests.kits.project import Write, agentv
from tests.kits.runs import results

pytestmark = pytest.mark.slow


CANARY = "canary-71c0d9e2ab44"


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificate")
def test_over_tls_the_variables_of_the_driver_are_sent(write: Write, tmp_path: Path) -> None:
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    subprocess.run([*command, "-keyout", key, "-out", certificate], check=True, capture_output=True)
    names = [
        f"DASK_DISTRIBUTED__COMM__TLS__{who}__{what}"
        for who in ("SCHEDULER", "WORKER", "CLIENT")
        for what in ("KEY", "CERT")
    ]
    tls = {name: str(key if name.endswith("KEY") else certificate) for name in names}
    environment = an_environment(DASK_DISTRIBUTED__COMM__TLS__CA_FILE=str(certificate), **tls)
    cluster = Cluster(tmp_path / "cluster", "--protocol", "tls", env=environment)
    cluster.add("--protocol", "tls", env=environment)
    assert cluster.url.startswith("tls://")
    path = a_project(write, 6, f"assert os.environ['AGENT_API_KEY'] == {CANARY!r}")
    write(".env", "")
    settings = "targets: [{name: default, provider: python, function: 'agent.py:answer', judge_target: '${{ AGENT_API_KEY }}'}]"
    write("targets.yaml", settings)
    ran = agentv(
        "eval", path, "--cluster", cluster.url, "--out", "out.jsonl", env={**environment, "AGENT_API_KEY": CANARY}
    )
    assert ran.returncode == 0, ran.stderr
    assert len(results("out.jsonl")) == 6
    assert CANARY not in cluster.logs()
