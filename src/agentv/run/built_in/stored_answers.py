"""Score stored answers instead of calling any target, for `agentv grade`."""

from agentv.errors import ProviderError
from agentv.protocols import AnswersToGrade
from agentv.records import EvalResult, ProviderRequest
from agentv.run.extensions import Extension
from agentv.run.jobs import Job
from agentv.run.outcome import Outcome, exchange_of
from agentv.run.run import Run


class StoredAnswersExtension(Extension):
    """Supplies the stored answers, completes their results, and keeps the results that are not graded."""

    def __init__(self, stored: AnswersToGrade):
        self._stored = stored

    def known_outcome(self, job: Job, request: ProviderRequest) -> Outcome:
        # Nothing to wait for, limit, retry or cache.
        try:
            response = self._stored.answer(request)
        except ProviderError as error:
            return Outcome(1, error=error.message)
        self._stored.compare_metadata(job.case, response)
        return Outcome(1, exchange_of(job, response))

    def finish(self, result: EvalResult) -> EvalResult:
        return self._stored.finish(result)

    async def end(self, run: Run) -> None:
        for result, is_planned in self._stored.untouched():
            run.results.keep(result, is_planned=is_planned)
        run.results.count_missing(self._stored.missing, self._stored.without_case)
