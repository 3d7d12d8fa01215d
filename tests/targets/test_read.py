"""Reading targets files and reporting all of their errors."""

from pathlib import Path

import pytest

from agentv import AgentvError
from agentv.providers.cli.provider import CliSettings
from agentv.providers.models.openai import OpenAISettings
from agentv.targets.read import read_targets
from tests.kits.project import Write


def problems(path: Path, **environment: str) -> list[tuple[int | None, str, str, str]]:
    found = read_targets(path, environment).problems
    return [(p.line, p.severity, p.message, p.hint) for p in sorted(found, key=lambda p: p.line or 0)]


def test_snake_case_takes_precedence_over_camel_case(write: Write) -> None:
    path = write(
        "targets.yaml",
        """
targets:
  - name: a
    provider: cli
    commandTemplate: echo {PROMPT}
    timeoutSeconds: 5
    timeout_seconds: 7
    healthcheck: {type: command, commandTemplate: "true", timeoutSeconds: 1}
  - name: b
    provider: openai
    model: m
    retry_max_retries: 2
    retryInitialDelayMs: 50
    options: {topLogprobs: 3}
""",
    )
    read = read_targets(path, {})
    assert read.problems == []
    a, b = read.targets.values()
    assert isinstance(a, CliSettings)
    assert (a.command_template, a.timeout_seconds) == ("echo {PROMPT}", 7)
    assert a.healthcheck is not None
    assert a.healthcheck.timeout_seconds == 1
    assert isinstance(b, OpenAISettings)
    assert (b.max_retries, b.initial_delay_ms, b.options) == (2, 50, {"topLogprobs": 3})


def test_all_errors_of_a_file_at_once(write: Write) -> None:
    path = write(
        "targets.yaml",
        """targets:
  - name: one
    provider: opnai
  - name: two
    provider: openai
    modle: gpt
    workers: many
    api_key: ${{ MISSING_KEY }}
  - name: two
    provider: mock
    delay_ms: -1
  - provider: cli
    workers: 0
    headers: {}
""",
    )
    assert problems(path) == [
        (3, "error", "target 'one': provider: unknown provider 'opnai'", "did you mean 'openai'?"),
        (4, "error", "target 'two': missing model", ""),
        (6, "error", "target 'two': modle: unknown field", "did you mean 'model'?"),
        (7, "error", "target 'two': workers: expected an integer, got a string", WORKERS_HINT),
        (8, "warning", "target 'two': api_key: the environment variable MISSING_KEY is not set", ENV_HINT),
        (9, "error", "target 'two': name: duplicate name, first used on line 4", "rename one of them"),
        (11, "error", "target 'two': delay_ms: must be at least 0, got -1", ""),
        (12, "error", "unnamed target: missing name", ""),
        (12, "error", "unnamed target: missing command_template", ""),
        (13, "error", "unnamed target: workers: must be at least 1, got 0", ""),
        (14, "error", "unnamed target: headers: unknown field", HEADERS_HINT),
    ]


WORKERS_HINT = "remove the quotes, or use ${{ VARIABLE }}"
ENV_HINT = "set it, or add it to .env"
HEADERS_HINT = (
    "available: after_each, batch_api, batch_on_missing, before_each, command_template, cwd, depends_on, env, files_format, healthcheck, hooks, judge_target, "
    "keep_temp_files, keep_workspaces, name, output_format, provider, provider_batching, timeout_seconds, verbose, workers, "
    "workspace_template"
)


def test_numbers_may_be_set_by_variables(write: Write) -> None:
    path = write("targets.yaml", "targets:\n- {name: a, provider: mock, workers: '${{ N }}', delay_ms: '${{N}}'}\n")
    assert problems(path, N="3") == []


@pytest.mark.parametrize("provider", ["azure-openai", "google", "google-gemini", "codex-cli"])
def test_aliases_of_providers(write: Write, provider: str) -> None:
    endpoint = ", endpoint: e, deployment: d" if provider.startswith("azure") else ""
    path = write("targets.yaml", f"targets:\n- {{name: a, provider: {provider}{endpoint}}}\n")
    assert problems(path) == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the file is empty"),
        ("- name: a\n", "expected an object, got an array"),
        ("target: []\n", "missing targets"),
        ("targets: []\n", "targets: must not be empty"),
        ("targets: {}\n", "'targets' must be a list"),
        ("targets: [a]\n", "targets[0]: expected an object, got a string"),
    ],
)
def test_files_of_a_wrong_shape(write: Write, text: str, message: str) -> None:
    path = write("targets.yaml", text)
    try:
        found = [problem.message for problem in read_targets(path, {}).problems]
    except AgentvError as error:
        found = [error.message]
    assert message in found


def test_an_invalid_entry_does_not_hide_another(write: Write) -> None:
    path = write("targets.yaml", "foo: 1\ntargets:\n- 5\n- {name: a, provider: mok}\n- {name: 5, provider: ''}\n")
    assert [message for _, _, message, _ in problems(path)] == [
        "foo: unknown field",
        "targets[0]: expected an object, got an integer",
        "target 'a': provider: unknown provider 'mok'",
        "target 5: name: expected a string, got an integer",
        "target 5: provider: must not be empty",
    ]


@pytest.mark.parametrize(
    ("target", "secret"),
    [
        ("{name: a, provider: openai, model: m, apiKey: swordfish-one}", "swordfish-one"),
        ("{name: a, provider: openai, model: m, api_key: 1234567890}", "1234567890"),
        ("{name: a, provider: openai, model: m, api_key: [swordfish-one]}", "swordfish-one"),
        ("{name: a, provider: openai, model: m, api_key: '${{ PLAIN }}'}", "filled-in"),
        ("{name: a, provider: http, url: 'http://x', headers: {a: Bearer swordfish-one}}", "swordfish-one"),
        ("{name: a, provider: cli, command_template: curl http://me:swordfish-one@host}", "swordfish-one"),
        ("{name: a, provider: unknown, headers: {a: swordfish-one}}", "swordfish-one"),
        ("{name: a, provider: unknown, authToken: swordfish-one}", "swordfish-one"),
        ("{name: a, provider: mock, api_key: swordfish-one}", "swordfish-one"),
    ],
)
def test_secrets_of_invalid_targets_are_found(write: Write, target: str, secret: str) -> None:
    path = write("targets.yaml", f"targets:\n  - {target}\n")
    assert secret in read_targets(path, {"PLAIN": "filled-in"}).secrets


def test_other_values_are_not_masked(write: Write) -> None:
    target = "{name: a, provider: openai, model: gpt-5-large, base_url: 'http://somewhere', api_key: swordfish-one}"
    path = write("targets.yaml", f"targets:\n  - {target}\n  - {{name: b, provider: unknown, model: gpt-5-large}}\n")
    assert set(read_targets(path, {}).secrets) == {"swordfish-one"}
