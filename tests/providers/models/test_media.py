"""Images and PDFs in the format of each vendor."""

import json
from base64 import b64decode, b64encode
from pathlib import Path
from typing import Any

import pytest

from agentv.cases.read import load_eval_cases
from agentv.cases.request import Files, build_request
from agentv.records import ProviderRequest
from tests.kits.media import GIF, JPEG, PDF, PNG, WEBP
from tests.kits.model_servers import RESPONSES, VENDORS, ask, failing, model_server
from tests.kits.project import Write, a_case
from tests.kits.runs import evaluate, results

every_vendor = pytest.mark.parametrize("vendor", (*VENDORS, *RESPONSES))
CONTENT = [
    {"type": "text", "value": "Compare"},
    {"type": "file", "value": "img/chart.png"},
    {"type": "text", "value": "with"},
    {"type": "file", "value": "notes.txt"},
    {"type": "file", "value": "report.pdf"},
]
NOTES = '<file path="notes.txt">\nnotes\n</file>'


def a_request_with(write: Write, content: Any = CONTENT, role: str = "user") -> ProviderRequest:
    for name, data in (("img/chart.png", PNG), ("report.pdf", PDF), ("notes.txt", b"notes")):
        write(name, "").write_bytes(data)
    path = write("a.jsonl", [a_case(input_messages=[{"role": role, "content": content}])])
    (case,) = load_eval_cases(path)
    return build_request(case, ("*.md",), Files.INLINE)


def url(kind: str, data: bytes) -> str:
    return f"data:{kind};base64,{b64encode(data).decode()}"


FORMS: dict[str, list[dict[str, Any]]] = {
    "openai": [
        {"type": "text", "text": "Compare"},
        {"type": "image_url", "image_url": {"url": url("image/png", PNG)}},
        {"type": "text", "text": f"with\n{NOTES}"},
        {"type": "file", "file": {"filename": "report.pdf", "file_data": url("application/pdf", PDF)}},
    ],
    "responses": [
        {"type": "input_text", "text": "Compare"},
        {"type": "input_image", "image_url": url("image/png", PNG), "detail": "auto"},
        {"type": "input_text", "text": f"with\n{NOTES}"},
        {"type": "input_file", "filename": "report.pdf", "file_data": url("application/pdf", PDF)},
    ],
    "anthropic": [
        {"type": "text", "text": "Compare"},
        {
            "type": "image",
            "source": {"type": "base64", "media_type": "image/png", "data": b64encode(PNG).decode()},
        },
        {"type": "text", "text": f"with\n{NOTES}"},
        {
            "type": "document",
            "source": {"type": "base64", "media_type": "application/pdf", "data": b64encode(PDF).decode()},
            "title": "report.pdf",
        },
    ],
}


@every_vendor
def test_each_vendor_has_its_own_format(vendor: str, write: Write) -> None:
    request = a_request_with(write)
    with model_server(lambda _: "Yes") as server:
        assert ask(server.target(vendor), request).text == "Yes"
    (sent,) = server.asked
    if vendor == "gemini":
        parts = sent["contents"][0]["parts"]
        assert [part.get("text") for part in parts] == ["Compare", None, f"with\n{NOTES}", None]
        found = [part["inlineData"] for part in parts if "inlineData" in part]
        # Google takes either spelling
        assert [blob.get("mimeType") or blob["mime_type"] for blob in found] == ["image/png", "application/pdf"]
        assert [b64decode(blob["data"].replace("-", "+").replace("_", "/")) for blob in found] == [PNG, PDF]
    else:
        messages = sent["input"] if vendor in RESPONSES else sent["messages"]
        form = "responses" if vendor in RESPONSES else "openai" if vendor == "azure" else vendor
        assert messages[0]["content"] == FORMS[form]


@pytest.mark.parametrize(
    ("name", "data", "kind"),
    [
        ("a.png", PNG, "image/png"),
        ("a.jpg", PNG, "image/png"),  # by what is in it, not by its name
        ("a.jpeg", JPEG, "image/jpeg"),
        ("a.gif", GIF, "image/gif"),
        ("a.bin", WEBP, "image/webp"),
        ("prompts/a", PDF, "application/pdf"),  # no guideline, though it lies where those are
    ],
)
def test_the_type_of_a_file_is_detected_from_its_content(name: str, data: bytes, kind: str, write: Write) -> None:
    write(name, "").write_bytes(data)
    path = write("a.jsonl", [a_case(input_messages=[{"role": "user", "content": [{"type": "file", "value": name}]}])])
    (case,) = load_eval_cases(path)
    request = build_request(case, ("**/prompts/**",), Files.INLINE)
    assert [(media.value, media.type) for media in request.media] == [(name, kind)]
    assert request.question == f'<file: path="{name}">'
    assert request.guidelines == ""


def test_a_question_never_contains_image_data(write: Write) -> None:
    request = a_request_with(write)
    assert request.question == f'Compare\n<file: path="img/chart.png">\nwith\n{NOTES}\n<file: path="report.pdf">'


def test_a_missing_file_is_an_error_for_the_case(write: Write) -> None:
    request = a_request_with(write)
    Path("img/chart.png").unlink()
    with model_server(lambda _: "Yes") as server:
        error = failing(server.target("openai"), request)
    assert error.message == "img/chart.png cannot be read: No such file or directory"


@pytest.mark.parametrize("data", [b"<svg></svg>", b"", b"version https://git-lfs.github.com/spec/v1\n"])
def test_a_file_with_only_the_name_of_an_image(data: bytes, write: Write) -> None:
    write("chart.png", "").write_bytes(data)
    write("targets.yaml", "targets: [{name: default, provider: mock}]")
    content = [{"type": "file", "value": "chart.png"}]
    write("a.jsonl", [a_case(input_messages=[{"role": "user", "content": content}], evaluators=[ANY])])
    evaluate("a.jsonl", "--out", "out.jsonl", expect=1)
    (result,) = results("out.jsonl")
    assert result["error"] == (
        "a.jsonl:1: not an image or a PDF, despite its name: chart.png"
        " (supported types, by content: PNG, JPEG, GIF, WebP, PDF)"
    )


ANY = {"type": "contains", "value": ""}


def test_no_written_file_contains_base64(write: Write) -> None:
    a_request_with(write)
    write("a.jsonl", [a_case(input_messages=[{"role": "user", "content": CONTENT}], evaluators=[ANY])])
    with model_server(lambda _: "Yes") as server:
        write("targets.yaml", json.dumps({"targets": [server.target("anthropic")]}))
        evaluate("a.jsonl", "--out", "out.jsonl", "--cache", "--dump-prompts", "--dump-traces", "--include-trace")
    secret = b64encode(PNG).decode()[:20]
    assert secret in json.dumps(server.asked[0])
    written = [path for path in Path().rglob("*") if path.is_file() and path.suffix in (".json", ".jsonl", ".txt")]
    assert len(written) > 3
    assert not [path for path in written if secret in path.read_text()]
    (result,) = results("out.jsonl")
    assert result["question"].startswith('Compare\n<file: path="img/chart.png">')


def test_a_changed_image_is_detected(write: Write) -> None:
    a_request_with(write)
    write("a.jsonl", [a_case(input_messages=[{"role": "user", "content": CONTENT}], evaluators=[ANY])])
    with model_server(lambda _: "Yes") as server:
        write("targets.yaml", json.dumps({"targets": [server.target("openai")]}))
        for out in ("1.jsonl", "2.jsonl"):
            evaluate("a.jsonl", "--out", out, "--cache")
        assert len(server.asked) == 1
        Path("img/chart.png").write_bytes(PNG + b"!")
        evaluate("a.jsonl", "--out", "3.jsonl", "--cache")
        assert len(server.asked) == 2
        evaluate("a.jsonl", "--out", "1.jsonl", "--resume")
        assert len(server.asked) == 3
    digests = [results(name)[-1]["digests"]["case"] for name in ("2.jsonl", "3.jsonl", "1.jsonl")]
    assert digests[0] != digests[1] == digests[2]
