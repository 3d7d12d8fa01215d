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
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any, NamedTuple, Self, TypeVar

import msgspec

from agentv.errors import AgentvError, OutputError
from agentv.formats.yaml import parse_yaml
from agentv.records import EvalResult
from agentv.redact import Redactor

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


def create(path: Path, form: str, clean: Redactor) -> tuple[ResultFile, Path | None]:
    """A new results file. A regular file that is there already is renamed, and its new name is given too."""
    kept = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.is_dir():
            raise OutputError("--out is a folder", file=path, hint=f"name a file in it: {path / 'results.jsonl'}")
        if path.is_file():
            kept = path.with_name(f"{path.name}.bak")
            with path.open("rb") as file:
                _lock(file.fileno(), path)
                path.replace(kept)
        return _opened(path, form, clean, os.O_CREAT), kept
    except OSError as error:
        raise _no_output(error, path) from error


def create_new(folder: Path, stem: str, form: str, clean: Redactor) -> ResultFile:
    """A new results file under a name that no other run has."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for number in range(1, 10_000):
            name = f"{stem}.{form}" if number == 1 else f"{stem}_{number}.{form}"
            with contextlib.suppress(FileExistsError):
                return _opened(folder / name, form, clean, os.O_CREAT | os.O_EXCL)
    except OSError as error:
        raise _no_output(error, folder) from error
    raise OutputError("no free name for a results file", file=folder, hint="name one with --out")


class EarlierFile:
    """The results file of an earlier run, locked, to be read and then gone on with."""

    def __init__(self, path: Path, form: str, clean: Redactor):
        self.path, self._clean = path, clean
        try:
            self._descriptor = os.open(path, os.O_RDWR | os.O_APPEND)
        except OSError as error:
            raise _no_output(error, path) from error
        try:
            _lock(self._descriptor, path)
            start = os.pread(self._descriptor, 3, 0)
            self.form = "yaml" if start == b"---" else "jsonl" if start else form
        except BaseException:
            os.close(self._descriptor)
            raise

    def results(self) -> Iterator["Earlier"]:
        """Its whole results; one at the end that was torn by a kill is passed over."""
        with self.path.open("rb") as file:
            for number, raw in enumerate(documents(file) if self.form == "yaml" else file, 1):
                if not raw.strip() or is_torn(raw, self.form):
                    continue
                found = _skim(raw, self.path, self.form)
                if found is None:
                    what = "document" if self.form == "yaml" else "line"
                    hint = "--resume takes a results file of agentv; name another --out"
                    raise OutputError(f"{what} {number} is no result of agentv", file=self.path, hint=hint)
                yield Earlier(found, raw)

    def close(self) -> None:
        os.close(self._descriptor)

    def go_on(self, keep: Callable[["Earlier"], bool]) -> ResultFile:
        """The file with only the results that `keep` says yes to, open for more.

        It becomes that in one step: at any moment it is either the old file or the new one, and locked.
        """
        real = Path(os.path.realpath(self.path))
        beside = real.with_name(f"{real.name}.resuming")
        try:
            descriptor = os.open(beside, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_TRUNC, 0o600)
            try:
                _lock(descriptor, beside)
                os.fchmod(descriptor, stat.S_IMODE(os.fstat(self._descriptor).st_mode))
                with os.fdopen(os.dup(descriptor), "ab") as file:
                    file.writelines(earlier.raw for earlier in self.results() if keep(earlier))
                os.fsync(descriptor)
                beside.replace(real)
            except BaseException:
                os.close(descriptor)
                beside.unlink(missing_ok=True)
                raise
        except OSError as error:
            raise _no_output(error, self.path) from error
        finally:
            os.close(self._descriptor)
        return ResultFile(self.path, encoder(self.form, self._clean), descriptor)


def _opened(path: Path, form: str, clean: Redactor, flags: int) -> ResultFile:
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


def encoder(form: str, clean: Redactor) -> Callable[[EvalResult], bytes]:
    """How a result becomes bytes: a line of JSON, or a YAML document between `---` and `...`."""
    encode = msgspec.json.Encoder(enc_hook=str).encode

    def line(result: EvalResult) -> bytes:
        raw = encode(result)
        text = raw.decode()
        if clean(text) != text:
            raw = encode(clean.values(msgspec.json.decode(raw)))
        return raw + b"\n"

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


_ODD_BREAKS = re.compile("[\x85\u2028\u2029]")
"""Line breaks to readers of YAML 1.1 and text to readers of 1.2, unless they are escaped."""


def _dumper() -> Any:
    """Writes YAML that readers of 1.1 and of 1.2 take for the same."""
    import yaml

    class Dumper(getattr(yaml, "CSafeDumper", yaml.SafeDumper)):  # type: ignore[misc]
        pass

    def text(dumper: Any, value: str) -> Any:
        style = '"' if _ODD_BREAKS.search(value) else "|" if "\n" in value else None
        return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)

    Dumper.add_representer(str, text)
    Dumper.add_implicit_resolver("tag:yaml.org,2002:float", _NUMBER_IN_YAML_1_2, None)
    return Dumper


class Earlier(NamedTuple):
    """What a resumed run needs to know of a result that is there already."""

    result: "Skimmed"
    raw: bytes

    @property
    def case(self) -> tuple[str, str]:
        """Names the case."""
        return self.result.dataset, self.result.eval_id

    @property
    def key(self) -> tuple[str, str, int]:
        """Names the run of the case."""
        return (*self.case, self.result.trial)

    @property
    def asked(self) -> tuple[str, str, str]:
        """Stands for the case as it was when it was run."""
        return (*self.case, self.result.digests.get("case", ""))

    @property
    def failed(self) -> bool:
        return self.result.error is not None


class Skimmed(msgspec.Struct, frozen=True):
    """The part of a result that is read again. One without a trial is the first."""

    eval_id: str
    score: float
    dataset: str = ""
    trial: Annotated[int, msgspec.Meta(ge=1)] = 1
    verdict: str = ""
    error: str | None = None
    failure: str | None = None
    digests: dict[str, str] = {}


_SKIM = msgspec.json.Decoder(Skimmed)


_BEGINS = {"jsonl": b'{"timestamp":"', "yaml": b"---\ntimestamp: "}
_ENDS = {"jsonl": b"\n", "yaml": b"\n...\n"}


T = TypeVar("T")


def read_as(path: Path, type_: type[T]) -> Iterator[T]:
    """The results of a file that we have written, as far as somebody wants to know of them."""
    decode = msgspec.json.Decoder(type_).decode
    with path.open("rb") as file:
        form = "yaml" if file.peek(3).startswith(b"---") else "jsonl"
        for raw in documents(file) if form == "yaml" else file:
            if not raw.strip() or is_torn(raw, form):
                continue
            if form == "jsonl":
                yield decode(raw)
            else:
                yield msgspec.convert(parse_yaml(raw.decode(), path, OutputError, max_depth=900).value, type_)


def is_torn(raw: bytes, form: str) -> bool:
    """Whether this is the beginning of a result whose end a kill has kept from being written."""
    begin = _BEGINS[form]
    return not raw.endswith(_ENDS[form]) and (raw.startswith(begin) or begin.startswith(raw))


def documents(file: Iterable[bytes]) -> Iterator[bytes]:
    """The YAML documents of a file, whole or torn."""
    lines: list[bytes] = []
    for line in file:
        if line.startswith(b"---") and lines:
            yield b"".join(lines)
            lines = []
        lines.append(line)
        if line == b"...\n":
            yield b"".join(lines)
            lines = []
    if lines:
        yield b"".join(lines)


def _skim(raw: bytes, path: Path, form: str) -> Skimmed | None:
    try:
        if form == "yaml":
            return msgspec.convert(parse_yaml(raw.decode(), path, OutputError, max_depth=900).value, Skimmed)
        return _SKIM.decode(raw)
    except (msgspec.MsgspecError, AgentvError, UnicodeDecodeError):
        return None


def _lock(descriptor: int, path: Path) -> None:
    """Keep other runs out, or say that one is there already."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise _busy(path) from None
    if os.fstat(descriptor).st_ino != path.stat().st_ino:  # another run has just put a new file in its place
        raise _busy(path)


def _busy(path: Path) -> OutputError:
    hint = "give this run an --out of its own"
    return OutputError("another run is writing to this file", file=path, hint=hint)
