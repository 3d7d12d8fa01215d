"""Check before a run whether a target accepts the images and PDFs of a case."""

from collections.abc import Iterator

from agentv.cases.attachments import find_attachment, media_type
from agentv.cases.origin import case_problem
from agentv.errors import AttachmentError
from agentv.providers.models.settings import LanguageModelSettings
from agentv.providers.settings import TargetSettings
from agentv.records import EvalCase, FileBlock, Media, Problem, Role


def has_files(case: EvalCase) -> bool:
    """Return whether the case may attach files; most do not."""
    for message in case.input_messages:  # noqa: SIM110  # runs per case: a generator would dominate the cost
        if type(message.content) is tuple:
            return True
    return False


def media_problem(case: EvalCase, settings: TargetSettings) -> Problem | None:
    """Return why a target does not accept the images and PDFs of a case, or None if it does or there are none."""
    found = list(_find_media(case))
    if not found:
        return None
    if isinstance(settings, LanguageModelSettings):
        for role, media in found:
            if role != "user":
                message = f"{media.value}: language models accept images and PDFs only in user messages"
                return case_problem(case, message, "move it to a message whose role is user")
    attached = [media for _, media in found]
    misfit = settings.check_media(attached)
    if misfit is None:
        return None
    return case_problem(case, misfit.message, misfit.hint)


def _find_media(case: EvalCase) -> Iterator[tuple[Role, Media]]:
    """Yield each image and PDF of a case once, with the role of its message.

    Files that cannot be found are skipped here; they become an error for the case when it runs.
    """
    for role, value in _attached_files(case):
        try:
            path = find_attachment(value, case.file)
            type_ = media_type(value, path)
        except AttachmentError:
            continue
        if type_ is not None:
            yield role, Media(value=value, path=path, type=type_)


def _attached_files(case: EvalCase) -> dict[tuple[Role, str], None]:
    """Return the role and path of each file block, without duplicates and in the order of the messages."""
    found: dict[tuple[Role, str], None] = {}
    for message in case.input_messages:
        if not isinstance(message.content, tuple):
            continue
        for block in message.content:
            if isinstance(block, FileBlock):
                found[message.role, block.value] = None
    return found
