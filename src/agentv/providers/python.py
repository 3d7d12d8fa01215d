"""A target that is a Python function in agentv's own process. Its parameter names select what it receives."""

import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar

import msgspec
from msgspec import Meta

from agentv.errors import ConfigError, ProviderError, SettingError
from agentv.files.folders import code_folders
from agentv.files.plain import plain_mapping
from agentv.files.wire import checked_response, response_from, vendor_fields
from agentv.log import debug_lines
from agentv.protocols import Provider
from agentv.providers.settings import SECRET_NAMES, TargetSettings, Text
from agentv.providers.trace_context import current_span
from agentv.providers.tracebacks import explain_error
from agentv.providers.user_functions import UserFunction, check_function, copy_mapping, load_function, path_or_none
from agentv.records import ProviderRequest, ProviderResponse, TraceContext
from agentv.text import has_surrogates, replace_surrogates

PARAMETERS = (
    "question",
    "guidelines",
    "chat_prompt",
    "messages",
    "eval_id",
    "files",
    "request",
    "config",
    "vars",
    "metadata",
    "trial",
    "attempt",
    "session",
    "state",
    "workspace_path",
)


WITH_GUIDELINES = {"guidelines", "chat_prompt", "messages", "request"}
"""The parameters whose values contain the guidelines."""
CASE_DATA = {"vars", "metadata", "state"}
"""The parameters that get data of the case. Requests contain it only for functions that have them."""


class PythonSettings(TargetSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A function that takes the question and returns the answer."""

    takes_media: ClassVar[bool] = True

    function: Annotated[
        Text,
        Meta(description="path/to/file.py:name or package.module:name"),
    ]
    config: Annotated[
        dict[str, Any] | None,
        Meta(description="Your own settings for the function, which it gets as its parameter 'config'."),
        SECRET_NAMES,
    ] = None

    def open(self, folder: Path) -> Provider:
        return self.open_for(folder, None)

    def search_folders(self, folder: Path, targets_file: Path | None) -> tuple[Path, ...]:
        return code_folders(folder, targets_file)

    def takes_guidelines(self, folder: Path, targets_file: Path | None) -> bool:
        return self.open_for(folder, targets_file).takes_guidelines

    def uses(self, folder: Path, targets_file: Path | None) -> frozenset[str]:
        return self.open_for(folder, targets_file).uses

    def open_for(self, folder: Path, targets_file: Path | None) -> "PythonFunction":
        folders = self.search_folders(folder, targets_file)
        try:
            function = load_function(self.function, folders)
            return PythonFunction(function, apart=True, config=self.config)
        except ConfigError as error:
            raise SettingError(error.message, "function", hint=error.hint) from error

    def check_for(self, folder: Path, targets_file: Path | None) -> None:
        folders = self.search_folders(folder, targets_file)
        try:
            check_function(self.function, folders, PARAMETERS, takes_any=True)
        except ConfigError as error:
            raise SettingError(error.message, "function", hint=error.hint) from error


class PythonFunction:
    """Calls a function for each request. It returns a string, a mapping or a `ProviderResponse`."""

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        apart: bool = False,
        config: Mapping[str, Any] | None = None,
    ):
        """Run an async function in the event loop of another thread if `apart` is true."""
        self.function = function
        self._config = dict(config or {})
        self._function = UserFunction(function, PARAMETERS, "question", apart=apart)

    @property
    def takes_guidelines(self) -> bool:
        """Whether a parameter of the function gets the guidelines. If not, the question starts with them."""
        return not self._function.names.isdisjoint(WITH_GUIDELINES)

    @property
    def uses(self) -> frozenset[str]:
        """The data of a case that the function has a parameter for."""
        return self._function.names & CASE_DATA

    async def invoke(self, request: ProviderRequest) -> ProviderResponse:
        offered = {
            "question": request.prompt,
            "guidelines": request.guidelines,
            "chat_prompt": request.chat_prompt,
            "messages": request.messages,
            "eval_id": request.eval_id,
            "files": request.input_files,
            "request": request,
            "config": copy_mapping(self._config),
            "vars": copy_mapping(request.vars),
            "metadata": copy_mapping(request.metadata),
            "trial": request.trial,
            "attempt": request.attempt,
            "session": uuid.uuid4().hex,
            "state": dict(request.state or {}),
            "workspace_path": path_or_none(request.workspace),
        }
        try:
            answer = await self._call(offered, request.telemetry)
        except Exception as error:
            explained = explain_error(error)
            debug_lines(f"case {request.eval_id!r}: the target failed", explained.details)
            raise ProviderError(
                explained.message,
                may_pass=True,
                details=explained.details,
            ) from error
        response = _response(answer)
        if not has_surrogates(response.text):
            return response
        # Half a surrogate pair, which remains of a text that was cut in a character, cannot be written to a file.
        return msgspec.structs.replace(response, text=replace_surrogates(response.text))

    async def _call(
        self,
        offered: Mapping[str, Any],
        telemetry: TraceContext | None,
    ) -> Any:
        """Call the function. If the case is traced, its span is the current one during the call."""
        with current_span(telemetry):
            return await self._function(offered)


def _response(answer: Any) -> ProviderResponse:
    """Convert the return value of a function to a response. Raise `ProviderError` for any other type."""
    if isinstance(answer, ProviderResponse):
        if not isinstance(answer.text, str):
            raise ProviderError(f"the function returned a ProviderResponse whose text is {type(answer.text).__name__}")
        return checked_response(answer)
    if isinstance(answer, str):
        return ProviderResponse(text=answer)
    if isinstance(answer, Mapping):
        return response_from(answer, counts_unknown=True)
    vendor_answer = vendor_fields(plain_mapping(answer))
    if vendor_answer is not None:
        return response_from(vendor_answer)
    raise ProviderError(
        f"the function returned {type(answer).__name__}",
        hint="return a string, a mapping or a ProviderResponse",
    )
