"""Masking secrets in files of any size."""

import subprocess
import sys
from pathlib import Path

import pytest

from agentv.files.masked_files import mask_files
from agentv.redact import Redactor
from tests.kits.project import PRINT_PEAK_KB

SECRET = 'a "secret" of some length'
CHUNK = 1 << 20


@pytest.mark.parametrize("shift", range(-60, 61, 5))
def test_a_secret_that_spans_two_chunks_is_masked(tmp_path: Path, shift: int) -> None:
    escaped = SECRET.replace('"', '\\"')
    start = CHUNK + shift
    text = f"{'x' * start}{escaped}{'y' * CHUNK}{SECRET}"
    tmp_path.joinpath("file").write_text(text)
    mask_files(tmp_path, Redactor([SECRET]))
    assert tmp_path.joinpath("file").read_text() == f"{'x' * start}***{'y' * CHUNK}***"


def test_a_file_that_contains_only_secrets_is_masked(tmp_path: Path) -> None:
    tmp_path.joinpath("file").write_text("s3cret-01" * 300_000)
    mask_files(tmp_path, Redactor(["s3cret-01"]))
    assert tmp_path.joinpath("file").read_text() == "***" * 300_000


def test_bytes_that_are_not_text_are_unchanged(tmp_path: Path) -> None:
    data = bytes(range(256)) * 9000 + "ü".encode() * 600_001
    tmp_path.joinpath("plain").write_bytes(data)
    tmp_path.joinpath("file").write_bytes(data + b"s3cret-01" + data)
    mask_files(tmp_path, Redactor(["s3cret-01"]))
    assert tmp_path.joinpath("plain").read_bytes() == data
    assert tmp_path.joinpath("file").read_bytes() == data + b"***" + data


def test_files_of_others_are_not_touched(tmp_path: Path) -> None:
    theirs, ours = tmp_path / "theirs", tmp_path / "ours"
    theirs.write_text("s3cret-01")
    (ours / "below").mkdir(parents=True)
    (ours / "link").symlink_to(theirs)
    (ours / "same").hardlink_to(theirs)
    (ours / "below" / "file").write_text("s3cret-01")
    mask_files(ours, Redactor(["s3cret-01"]))
    assert theirs.read_text() == "s3cret-01"
    assert (ours / "same").read_text() == (ours / "below" / "file").read_text() == "***"
    assert sorted(path.name for path in ours.iterdir()) == ["below", "link", "same"]


@pytest.mark.slow
def test_memory_stays_flat(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path\nfrom agentv.redact import Redactor\n"
        "from agentv.files.masked_files import mask_files\n"
        "folder = Path(sys.argv[1])\nwith open(folder / 'file', 'w') as file:\n"
        "    for _ in range(int(sys.argv[2])): file.write('x' * 1000 + 's3cret-01')\n"
        "mask_files(folder, Redactor(['s3cret-01']))\n"
    )
    peaks = []
    for count in (1_000, 60_000):
        command = [sys.executable, "-c", code + PRINT_PEAK_KB, str(tmp_path), str(count)]
        peaks.append(int(subprocess.run(command, capture_output=True, text=True, check=True).stdout))
    assert tmp_path.joinpath("file").stat().st_size == 60_000 * 1003
    assert peaks[1] - peaks[0] < 20_000
