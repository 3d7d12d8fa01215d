"""Versions of commands: the programs and scripts in them."""

from pathlib import Path

import pytest

from agentv.versions.commands import command_files
from tests.kits.project import Write


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("python agent.py {PROMPT} --log agent.log", {"agent.py", "helper.py"}),
        ("python -m pack.agent", {"pack/agent.py"}),
        ("python -m pack", {"pack/__main__.py"}),
        ("timeout 60 sh 'run.sh' state.db", {"run.sh"}),
        ("./program data.csv", {"program"}),
        ("MODEL=a ./plain --state state.db", {"plain"}),
        ("cat state.db | ./program", {"program"}),
        ("node --script=agent.mjs", {"agent.mjs"}),
        ("sh run.sh > out.py", {"run.sh"}),
        ("sh run.sh --output out.py", {"run.sh"}),
        ("sh run.sh --output-file='out.py' -o out.py", {"run.sh"}),
        ('python3 "$AGENTV_EVAL_DIR/agent.py" {PROMPT}', {"agent.py", "helper.py"}),
        ("${PWD}/program && $PWD/plain", {"program", "plain"}),
        ("cd bin && python agent.py", {"agent.py", "helper.py", "bin/agent.py"}),
        ("cd bin; cd ../bin && ./tool", {"bin/tool"}),
        ("cd nowhere && ./tool", set()),
        ("echo state.db agent.log ./marked", set()),
        ("cat /etc/hostname missing.py $HOME/x ~ . .. /", set()),
    ],
)
def test_programs_and_scripts_count_and_data_does_not(write: Write, command: str, expected: set[str]) -> None:
    write("agent.py", "import helper\n")
    write("helper.py", "")
    write("out.py", "")
    write("pack/agent.py", "")
    write("pack/__main__.py", "")
    write("agent.mjs", "")
    for name in ("agent.log", "state.db", "data.csv", "run.sh"):
        write(name, "x")
    write("bin/agent.py", "")
    write("bin/tool", "#!/bin/sh\n").chmod(0o755)
    write("program", "#!/bin/sh\n").chmod(0o755)
    write("plain", "echo\n").chmod(0o755)
    write("marked", "a log on a file system where every file is executable\n").chmod(0o755)
    found = command_files(command, Path.cwd())
    assert {str(path.relative_to(Path.cwd())) for path in found} == expected
