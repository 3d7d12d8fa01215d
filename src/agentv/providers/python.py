"""A target that is a Python function in agentv's own process. Its parameter names select what it receives."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar

from msgspec import Meta

from agentv.errors import ConfigError, ProviderError, SettingError
from agentv.formats.wire import response_from
from agentv.notices import note_lines
from agentv.protocols import Provider
from agentv.providers.settings import TargetSettings, Text
from agentv.records import ProviderRequest, ProviderResponse, TraceContext
from agentv.system.folders import code_folders
from agentv.system.tracebacks import explain_error
from agentv.system.user_functions import UserFunction, check_function, load_function

PARAMETERS = (
    "question",
    "guidelines",
    "chat_prompt",
    "eval_id",
    "files",
    "request",
)


class PythonSettings(TargetSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A function that takes the question and returns the answer."""

    takes_media: ClassVar[bool] = True

    function: Annotated[
        Text,
        Meta(description="path/to/file.py:name or package.module:name"),
    ]

    def open(self, folder: Path) -> Provider:
        return self.open_for(folder, None)

    def search_folders(self, folder: Path, targets_file: Path | None) -> tuple[Path, ...]:
        return code_folders(folder, targets_file)

    def open_for(self, folder: Path, targets_file: Path | None) -> Provider:
        folders = self.search_folders(folder, targets_file)
        try:
            function = load_function(self.function, folders)
            return PythonFunction(function, apart=True)
        except ConfigError as error:
            raise SettingError(error.message, "function", hint=error.hint) from error

    def check_for(self, folder: Path, targets_file: Path | None) -> None:
        folders = self.search_folders(folder, targets_file)
        try:
            check_function(self.function, folders)
        except ConfigError as error:
            raise SettingError(error.message, "function", hint=error.hint) from error


class PythonFunction:
    """Calls a function for each request. It returns a string, a mapping or a `ProviderResponse`."""

    def __init__(self, function: Callable[..., Any], *, apart: bool = False):
        """Run an async function in the event loop of another thread if `apart` is true."""
        self._function = UserFunction(function, PARAMETERS, "question", apart=apart)

    async def invoke(self, request: ProviderRequest) -> ProviderResponse:
        offered = {
            "question": request.question,
            "guidelines": request.guidelines,
            "chat_prompt": request.chat_prompt,
            "eval_id": request.eval_id,
            "files": request.input_files,
            "request": request,
        }
        try:
            answer = await self._call(offered, request.telemetry)
        except Exception as error:
            explained = explain_error(error)
            note_lines(f"case {request.eval_id!r}: the target failed", explained.details)
            raise ProviderError(
                explained.message,
                may_pass=True,
                details=explained.details,
            ) from error
        return _response(answer)

    async def _call(
        self,
        offered: Mapping[str, Any],
        telemetry: TraceContext | None,
    ) -> Any:
        """Call the function. If the case is traced, its span is the current one during the call."""
        if telemetry is None:
            return await self._function(offered)
        from agentv.telemetry.bridge import current_span  # few runs need it

        with current_span(telemetry):
            return await self._function(offered)


def _response(answer: Any) -> ProviderResponse:
    """Return the response in what a function returned. Raise `ProviderError` for any other type."""
    if isinstance(answer, ProviderResponse):
        return answer
    if isinstance(answer, str):
        return ProviderResponse(text=answer)
    if isinstance(answer, Mapping):
        return response_from(answer)
    raise ProviderError(
        f"the function returned {type(answer).__name__}",
        hint="return a string, a mapping or a ProviderResponse",
    )
