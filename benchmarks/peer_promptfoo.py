"""The job for promptfoo: a YAML file, a provider of a few lines of JavaScript, `contains`."""

from pathlib import Path

from benchmarks.peer_job import questions

HEAD = """prompts: ['{{question}}']
providers: [file://provider.js]
defaultTest: {assert: [{type: contains, value: hello}]}
tests:
"""
PROVIDER = """module.exports = class {
  id() { return "hello"; }
  async callApi(prompt) { return { output: "hello there, " + prompt }; }
};
"""


def job(folder: Path, count: int) -> list[str]:
    (folder / "cases.yaml").write_text(HEAD + "".join(f"- {{vars: {{question: {q}}}}}\n" for q in questions(count)))
    (folder / "provider.js").write_text(PROVIDER)
    quiet = ["--no-cache", "--no-write", "--no-table", "--no-progress-bar"]
    return ["promptfoo", "eval", "--config", "cases.yaml", *quiet, "--max-concurrency", "10", "--output", "out.jsonl"]
