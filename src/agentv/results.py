"""EvalResult <-> JSONL and YAML files.

A result is one `write` of one whole line (or YAML document), straight to the file: once it has been
written, a kill of this process cannot undo it. A file is locked while a run writes to it.
"""

import contextlib
import fcntl
import os
import re
import stat
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, Self

import msgspec

from agentv.documents import parse_yaml
from agentv.errors import AgentvError, OutputError
from agentv.records import EvalResult
from agentv.redact import Clean

FORMATS = ("jsonl", "yaml")


class ResultFile:
    """A results file that is being written to."""

    def __init__(self, path: Path, encode: Callable[[EvalResult], bytes], descriptor: int):
        self.path = path
        self._encode, self._descriptor = encode, descriptor
        self._regular = stat.S_ISREG(os.fstat(descriptor).st_mode)
        self._lock = threading.Lock()

    def write(self, result: EvalResult) -> None:
        """Put the result into the file as one whole; if there is no room for it, leave nothing of it behind."""
        data = memoryview(self._encode(result))
        with self._lock:
            written = 0
            try:
                while written < len(data):
                    written += os.write(self._descriptor, data[written:])
            except OSError as error:
                if self._regular and written:
                    with contextlib.suppress(OSError):
                        os.ftruncate(self._descriptor, os.fstat(self._descriptor).st_size - written)
                hint = "what was written before is intact; make room and go on with --resume"
                raise OutputError(f"results cannot be written: {error.strerror}", file=self.path, hint=hint) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._regular:
            with contextlib.suppress(OSError):
                os.fsync(self._descriptor)
        os.close(self._descriptor)


def create(path: Path, form: str, clean: Clean) -> tuple[ResultFile, Path | None]:
    """A new results file. A regular file that is there already is renamed, and its new name is given too."""
    kept = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.is_dir():
            raise OutputError("--out is a folder", file=path, hint=f"name a file in it: {path / 'results.jsonl'}")
        if path.is_file():
            with path.open("rb") as file:
                _lock(file.fileno(), path)
            kept = path.with_name(f"{path.name}.bak")
            path.replace(kept)
        return _opened(path, form, clean, os.O_CREAT), kept
    except OSError as error:
        raise _no_output(error, path) from error


def create_new(folder: Path, stem: str, form: str, clean: Clean) -> ResultFile:
    """A new results file under a name that no other run has."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for number in range(1, 10_000):
            name = f"{stem}.{form}" if number == 1 else f"{stem}_{number}.{form}"
            with contextlib.suppress(FileExistsError):
                return _opened(folder / name, form, clean, os.O_CREAT | os.O_EXCL)
    except OSError as error:
        raise _no_output(error, folder) from error
    raise OutputError("no free name for a results file", file=folder)


def reopen(path: Path, form: str, clean: Clean) -> ResultFile:
    """An earlier results file, to go on writing at its end."""
    try:
        return _opened(path, form, clean, 0)
    except OSError as error:
        raise _no_output(error, path) from error


def _opened(path: Path, form: str, clean: Clean, flags: int) -> ResultFile:
    descriptor = os.open(path, os.O_RDWR | os.O_APPEND | flags if not _is_pipe(path) else os.O_WRONLY, 0o644)
    try:
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            _lock(descriptor, path)
    except OutputError:
        os.close(descriptor)
        raise
    return ResultFile(path, encoder(form, clean), descriptor)


def _is_pipe(path: Path) -> bool:
    return path.exists() and not path.is_file()


def _no_output(error: OSError, path: Path) -> OutputError:
    return OutputError(f"results cannot be written there: {error.strerror or error}", file=path)


def encoder(form: str, clean: Clean) -> Callable[[EvalResult], bytes]:
    """How a result becomes bytes: a line of JSON, or a YAML document between `---` and `...`."""
    encode = msgspec.json.Encoder(enc_hook=str).encode

    def line(result: EvalResult) -> bytes:
        return clean(encode(result).decode()).encode() + b"\n"

    def document(result: EvalResult) -> bytes:
        return dump_yaml(msgspec.json.decode(line(result)))

    return document if form == "yaml" else line


def dump_yaml(value: Any) -> bytes:
    """A YAML document, closed by `...`; texts of several lines are block scalars."""
    import yaml

    dumper = _dumper()
    text: str = yaml.dump(
        value, Dumper=dumper, allow_unicode=True, sort_keys=False, explicit_start=True, explicit_end=True, width=2**20
    )
    return text.encode()


_NUMBER_IN_YAML_1_2 = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?$|0o[0-7]+$|0x[0-9a-fA-F]+$")


def _dumper() -> Any:
    """Writes YAML that readers of 1.1 and of 1.2 take for the same."""
    import yaml

    class Dumper(getattr(yaml, "CSafeDumper", yaml.SafeDumper)):  # type: ignore[misc]
        pass

    def text(dumper: Any, value: str) -> Any:
        style = "|" if "\n" in value else None
        return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)

    Dumper.add_representer(str, text)
    Dumper.add_implicit_resolver("tag:yaml.org,2002:float", _NUMBER_IN_YAML_1_2, None)
    return Dumper


class Earlier(NamedTuple):
    """What a resumed run needs to know of a result that is there already."""

    key: tuple[str, str]
    digest: str
    score: float
    failed: bool
    raw: bytes


class _Skimmed(msgspec.Struct, frozen=True):
    eval_id: str
    score: float
    dataset: str = ""
    error: str | None = None
    digests: dict[str, str] = {}


_SKIM = msgspec.json.Decoder(_Skimmed)


def earlier_results(path: Path, form: str) -> Iterator[Earlier]:
    """The whole results of a file; what is torn or no result is passed over."""
    try:
        with path.open("rb") as file:
            for raw in _yaml_documents(file) if form == "yaml" else _json_lines(file):
                found = _skim(raw, path, form)
                if found is not None:
                    key = found.dataset, found.eval_id
                    yield Earlier(key, found.digests.get("case", ""), found.score, found.error is not None, raw)
    except OSError as error:
        raise _no_output(error, path) from error


def _json_lines(file: Any) -> Iterator[bytes]:
    """The lines that have an end: one without was torn by a kill."""
    return (line for line in file if line.endswith(b"\n") and line.strip())


def _yaml_documents(file: Any) -> Iterator[bytes]:
    lines: list[bytes] = []
    for line in file:
        if line.startswith(b"---"):
            lines = []  # one that was never closed is torn
        lines.append(line)
        if line.rstrip() == b"...":
            yield b"".join(lines)
            lines = []


def _skim(raw: bytes, path: Path, form: str) -> _Skimmed | None:
    try:
        if form == "yaml":
            return msgspec.convert(parse_yaml(raw.decode(), path, OutputError).value, _Skimmed)
        return _SKIM.decode(raw)
    except (msgspec.MsgspecError, AgentvError, UnicodeDecodeError):
        return None


def rewrite(path: Path, form: str, keep: Callable[[Earlier], bool]) -> None:
    """Leave only the results that `keep` says yes to, in one step: the file is either the old or the new one."""
    beside = path.with_name(f"{path.name}.resuming")
    try:
        with path.open("rb") as locked, beside.open("wb") as file:
            _lock(locked.fileno(), path)
            file.writelines(earlier.raw for earlier in earlier_results(path, form) if keep(earlier))
            file.flush()
            os.fsync(file.fileno())
            beside.replace(path)
    except OSError as error:
        beside.unlink(missing_ok=True)
        raise _no_output(error, path) from error


def _lock(descriptor: int, path: Path) -> None:
    """Keep other runs out, or say that one is there already."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        hint = "give this run an --out of its own"
        raise OutputError("another run is writing to this file", file=path, hint=hint) from None
