"""The job for the TypeScript agentv: a YAML file, its mock provider, `contains`."""

from pathlib import Path

from benchmarks.peer_job import questions


def job(folder: Path, count: int) -> list[str]:
    head = "description: hello\nassertions: [{type: contains, value: hello}]\ntests:\n"
    tests = [f"- {{id: case-{n}, criteria: Says hello, input: {text}}}\n" for n, text in enumerate(questions(count))]
    (folder / "cases.yaml").write_text(head + "".join(tests))
    (folder / "targets.yaml").write_text("targets: [{name: default, provider: mock, response: hello there}]\n")
    return ["agentv", "eval", "run", "cases.yaml", "--targets", "targets.yaml", "--workers", "10", "--output", "run"]
