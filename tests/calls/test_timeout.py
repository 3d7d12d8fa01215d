"""Calls that time out: complete answers count, and partial data is kept."""

import asyncio

import pytest

from agentv.calls.caller import Caller, CallPolicy
from agentv.calls.retry import FailedCall
from agentv.calls.timeout import within
from agentv.errors import ProviderError
from agentv.protocols import attach_outcome
from agentv.providers.mock import Mock, MockSettings
from agentv.records import ProviderRequest, ProviderResponse

PARTIAL = ProviderResponse(text="half", cost_usd=0.5)


async def wait_for_ever(outcome: ProviderResponse | ProviderError | None) -> ProviderResponse:
    """Wait until cancelled, and say then how it would have ended."""
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError as error:
        if outcome is not None:
            attach_outcome(error, outcome)
        raise
    return ProviderResponse(text="never")


@pytest.mark.parametrize(
    ("outcome", "expected"),
    [
        (None, FailedCall("timed out after 0.01 s", "timeout", may_pass=True)),
        (ProviderResponse(text="Paris"), ProviderResponse(text="Paris")),
        (
            ProviderError("still at it", may_pass=True, partial=PARTIAL),
            FailedCall("timed out after 0.01 s: still at it", "timeout", may_pass=True, partial=PARTIAL),
        ),
        (
            ProviderError("401", status=401),
            FailedCall("timed out after 0.01 s: 401", "timeout", may_pass=False, status=401),
        ),
        (
            ProviderError("", may_pass=True, partial=PARTIAL),
            FailedCall("timed out after 0.01 s", "timeout", may_pass=True, partial=PARTIAL),
        ),
    ],
)
def test_a_call_that_times_out_reports_its_limit(
    outcome: ProviderResponse | ProviderError | None, expected: ProviderResponse | FailedCall
) -> None:
    assert asyncio.run(within(0.01, wait_for_ever(outcome))) == expected


def test_an_external_cancellation_is_not_a_timeout() -> None:
    async def cancel() -> None:
        task = asyncio.create_task(within(600, wait_for_ever(ProviderResponse(text="Paris"))))
        await asyncio.sleep(0.01)
        task.cancel()
        await task

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(cancel())


def test_a_failure_keeps_known_data() -> None:
    async def fail() -> ProviderResponse:
        raise ProviderError("broken", partial=PARTIAL)

    assert asyncio.run(within(600, fail())) == FailedCall("broken", partial=PARTIAL)


class Slow:
    """Answers after a moment. `waits` says whether it admits to that."""

    def __init__(self, *, waits: bool):
        self.waits = waits

    async def invoke(self, request: ProviderRequest) -> ProviderResponse:
        await asyncio.sleep(0.02)
        return ProviderResponse(text="Paris")


@pytest.mark.parametrize(("waits", "error"), [(True, "timed out after 0.001 s"), (False, None)])
def test_only_a_provider_that_waits_has_a_time_limit(waits: bool, error: str | None) -> None:
    request = ProviderRequest(eval_id="a", question="Which city?")
    outcome = asyncio.run(Caller(seconds=0.001).ask(Slow(waits=waits), CallPolicy(), request, 1))
    assert getattr(outcome, "error", None) == error


@pytest.mark.parametrize(("delay_ms", "waits"), [(None, False), (0, False), (5, True)])
def test_a_mock_waits_only_with_a_delay(delay_ms: int | None, waits: bool) -> None:
    assert Mock(MockSettings(name="m", provider="mock", delay_ms=delay_ms)).waits is waits


def test_a_call_without_a_limit_that_fails_is_a_failed_call() -> None:
    async def fail() -> ProviderResponse:
        raise ValueError("bad")

    async def cancel_itself() -> ProviderResponse:
        raise asyncio.CancelledError

    assert asyncio.run(within(None, fail())) == FailedCall("ValueError: bad")
    assert asyncio.run(within(None, cancel_itself())) == FailedCall("the target cancelled itself", may_pass=True)
