"""A case with images or PDFs, and a target -> why the target cannot take them, told before anything runs."""

from collections.abc import Iterator
from contextlib import suppress

from agentv.cases.attachments import find_attachment, media_type
from agentv.errors import AttachmentError
from agentv.providers.models.settings import LanguageModelSettings
from agentv.providers.settings import TargetSettings
from agentv.records import EvalCase, FileBlock, Media, Problem, Role


def has_files(case: EvalCase) -> bool:
    """Return whether the case may attach files; most do not."""
    for message in case.input_messages:  # noqa: SIM110  # a generator costs more than all else here
        if type(message.content) is tuple:
            return True
    return False


def media_problem(case: EvalCase, settings: TargetSettings) -> Problem | None:
    """Return why a target cannot take the images and PDFs of a case; None if it can, or there are none."""
    found = list(_media(case))
    if not found:
        return None
    misplaced = next((media for role, media in found if role != "user"), None)
    if misplaced is not None and isinstance(settings, LanguageModelSettings):
        message = f"{misplaced.value}: language models take images and PDFs in messages of the user only"
        return _problem(case, message, "move it to a message whose role is user")
    misfit = settings.check_media([media for _, media in found])
    return None if misfit is None else _problem(case, misfit.message, misfit.hint)


def _problem(case: EvalCase, message: str, hint: str) -> Problem:
    return Problem(message=f"case {case.id!r}: {message}", file=case.file.path, line=case.line, column=1, hint=hint)


def _media(case: EvalCase) -> Iterator[tuple[Role, Media]]:
    """Yield the images and PDFs of a case, each once; a file that cannot be found is an error of the case, later."""
    seen: set[tuple[Role, str]] = set()
    for message in case.input_messages:
        for block in message.content if isinstance(message.content, tuple) else ():
            if isinstance(block, FileBlock) and (message.role, block.value) not in seen:
                seen.add((message.role, block.value))
                with suppress(AttachmentError):
                    path = find_attachment(block.value, case.file)
                    if (kind := media_type(block.value, path)) is not None:
                        yield message.role, Media(value=block.value, path=path, type=kind)
