"""The frozen records that travel from stage to stage.

They are built by the hundred thousand and never refer back to what holds them, so they are kept out of the cyclic
garbage collector (`gc=False`): that alone halves loading time.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import msgspec

from agentv.errors import AgentvError

Role = Literal["system", "user", "assistant", "tool"]
Severity = Literal["error", "warning"]
Json = dict[str, Any]


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """Something wrong in a file that a person wrote: what, where, and what to do."""

    message: str
    severity: Severity = "error"
    file: Path | None = None
    line: int | None = None
    column: int | None = None
    hint: str = ""

    @classmethod
    def of(cls, error: AgentvError) -> Self:
        """The problem that an exception told of."""
        return cls(message=error.message, file=error.file, line=error.line, column=error.column, hint=error.hint)


class TextBlock(msgspec.Struct, frozen=True, gc=False, tag_field="type", tag="text"):
    """A piece of text in a message."""

    value: str


class FileBlock(msgspec.Struct, frozen=True, gc=False, tag_field="type", tag="file"):
    """A file in a message: `value` is its path, as written in the eval file."""

    value: Annotated[str, msgspec.Meta(min_length=1)]


class ToolCall(msgspec.Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True):
    """One call of a tool by an assistant."""

    tool: str
    input: Any = None
    output: Any = None
    id: str | None = None
    timestamp: str | None = None
    metadata: Json | None = None
    """What else is known of it, such as the thought signature that Gemini wants back."""


class Message(msgspec.Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True):
    """One turn of a conversation. `content` may be left out by an assistant that calls tools."""

    role: Role
    content: str | Json | tuple[TextBlock | FileBlock, ...] | None = None
    name: str | None = None
    tool_calls: tuple[ToolCall, ...] | None = None


class Execution(msgspec.Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True):
    """How a case runs: which target answers it and which evaluators score the answer."""

    target: Annotated[str, msgspec.Meta(min_length=1)] | None = None
    evaluators: tuple[Json, ...] | None = None


class EvalFile(msgspec.Struct, frozen=True, kw_only=True):
    """The eval file that a case stands in; `root` is the repo around it, if there is one."""

    path: Path
    dataset: str
    root: Path | None = None


class EvalCase(msgspec.Struct, frozen=True, gc=False):
    """One thing to ask the agent, complete with the defaults of its file.

    Two cases are equal when they say the same, wherever they stand: `file` and `line` do not count.
    """

    id: str
    expected_outcome: str
    input_messages: tuple[Message, ...]
    expected_messages: tuple[Message, ...] = ()
    conversation_id: str | None = None
    execution: Execution = Execution(target="default", evaluators=())
    rubrics: tuple[str | Json, ...] = ()
    evaluator: str = "llm_judge"
    description: str = ""
    metadata: Mapping[str, Any] | None = None
    file: EvalFile = EvalFile(path=Path(), dataset="")
    line: int = 0

    @property
    def target(self) -> str:
        """The name of the target that answers this case."""
        return self.execution.target or "default"

    @property
    def evaluators(self) -> tuple[Json, ...]:
        """The evaluators configured for this case, or for its file."""
        return self.execution.evaluators or ()

    @property
    def dataset(self) -> str:
        """The name of the dataset that this case belongs to."""
        return self.file.dataset

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, EvalCase):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in _SAYS)

    __hash__ = None  # type: ignore[assignment]  # content and metadata are mappings


_SAYS = tuple(name for name in EvalCase.__struct_fields__ if name not in ("file", "line"))


class TokenUsage(msgspec.Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True):
    """Tokens that a target reported; `input` includes what the cache gave or took, `output` the reasoning."""

    input: int | None = None
    output: int | None = None
    cached: int | None = None
    """Of the input, what was read from the vendor's cache."""
    cache_write: int | None = None
    """Of the input, what was written to the vendor's cache."""
    reasoning: int | None = None
    """Of the output, what the model thought before it answered."""


class ExecutionMetrics(msgspec.Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True):
    """What one answer cost."""

    token_usage: TokenUsage | None = None
    cost_usd: float | None = None
    duration_ms: float | None = None
    ttft_ms: float | None = None
    """The time to the first token, where it is known."""
    batch: bool | None = None
    """Whether it was answered in a batch of the vendor's, at half the price."""
    cached: bool = False
    """Whether the answer came from the cache, or was stored otherwise: then it has cost this run nothing."""


class JudgeMetrics(msgspec.Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True):
    """How often one judge was asked about an answer, and what that cost; what the cache gave is no call."""

    calls: int
    token_usage: TokenUsage | None = None
    cost_usd: float | None = None
    duration_ms: float | None = None


TraceKind = Literal["model_step", "tool_call", "tool_result", "message", "error"]


class TraceEvent(msgspec.Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True):
    """One step of an agent on its way to the answer."""

    type: TraceKind
    timestamp: str | None = None
    id: str | None = None
    name: str | None = None
    input: Any = None
    output: Any = None
    text: str | None = None
    metadata: Json | None = None


class TraceSummary(msgspec.Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True, rename="camel"):
    """A trace in a few figures; camelCase in files, as its readers know it."""

    event_count: int
    tool_names: tuple[str, ...]
    tool_calls_by_name: dict[str, int]
    error_count: int
    token_usage: TokenUsage | None = None
    cost_usd: float | None = None
    duration_ms: float | None = None
    tool_durations: dict[str, list[float]] | None = None


class Media(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """An image or a PDF that a message attaches."""

    value: str
    """Its path, as written in the eval file."""
    path: Path
    type: str
    """What it is, by its content: `image/png`, `image/jpeg`, `image/gif`, `image/webp` or `application/pdf`."""


class TraceContext(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Where the OpenTelemetry spans of one attempt at a case go, and which span they are part of."""

    trace_id: str
    """Of the trace: 32 hexadecimal digits."""
    span_id: str
    """Of the case's span: 16 hexadecimal digits."""
    endpoint: str
    """The attempt's own OTLP endpoint, over HTTP: what arrives there is its own, whatever its trace."""
    collector: str
    """The endpoint of all attempts, where spans are told apart by their trace."""
    resource: str = ""
    """What is known of the case, as `OTEL_RESOURCE_ATTRIBUTES` has it."""

    @property
    def traceparent(self) -> str:
        """The case's span, as W3C Trace Context has it."""
        return f"00-{self.trace_id}-{self.span_id}-01"


class ProviderRequest(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What is sent to a target for one case."""

    eval_id: str
    question: str
    dataset: str = ""
    """Where the case belongs: answers that were stored are found by it. It is not sent."""
    guidelines: str = ""
    chat_prompt: tuple[Message, ...] = ()
    input_files: tuple[Path, ...] = ()
    guideline_files: tuple[Path, ...] = ()
    media: tuple[Media, ...] = ()
    """Of the input files, the images and PDFs; file blocks in `chat_prompt` have their `value`."""
    attempt: int = 1
    trial: int = 1
    response_schema: Json | None = None
    """The JSON Schema of the answer, for language models that can be held to one."""
    workspace: Path | None = None
    """The fresh folder that an agent is to work in, if one was made for it."""
    telemetry: TraceContext | None = None
    """Where its spans go, if they are collected."""
    fence: str = ""
    """In a request to a judge, the random mark around what is judged; cache keys leave it out."""


class ProviderResponse(msgspec.Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True, rename="camel"):
    """What a target answered; camelCase in JSON."""

    text: str
    output_messages: tuple[Message, ...] | None = None
    trace: tuple[TraceEvent, ...] | None = None
    token_usage: TokenUsage | None = None
    cost_usd: float | None = None
    duration_ms: float | None = None
    ttft_ms: float | None = None
    stop_reason: str | None = None
    """Why a language model stopped: `stop`, `length`, `tool_calls`, `refusal` or `other`."""
    note: str | None = None
    """What a reader of the answer must know."""
    file_changes: str | None = None
    """What the agent changed in its workspace, as a unified diff; None if it had none."""
    batch: bool | None = None
    """Whether it was answered in a batch of the vendor's, at half the price."""
    trace_complete: bool | None = None
    """False if there was more to the trace than is known: nothing can then be said of what the agent did."""


class Exchange(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What an evaluator judges: the case, what was sent for it, and what came back."""

    case: EvalCase
    request: ProviderRequest
    response: ProviderResponse
    workspace: Path | None = None
    """The folder that the agent has worked in, as long as it is there."""


Verdict = Literal["pass", "borderline", "fail"]


class Score(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What one evaluator made of one answer: 0 is worthless, 1 perfect.

    `failed` says that it is no judgement at all: the evaluator broke, or its judge gave no answer.
    """

    score: float
    hits: tuple[str, ...] = ()
    misses: tuple[str, ...] = ()
    reasoning: str = ""
    details: Any = None
    evaluator_provider_request: Any = None
    failed: bool = False
    verdict: Verdict | None = None
    """Where the score alone does not tell it."""
    missing_data: bool = False
    """Whether what it judges by was not there, such as a trace: the score is 0, and `negate` makes no pass of it."""


Fraction = Annotated[float, msgspec.Meta(ge=0, le=1)]
Weight = Annotated[float, msgspec.Meta(ge=0)]


def _no_points() -> tuple[str, ...]:
    """Return no hits or misses. As the result of a function, they are written to files, though they are a default."""
    return ()


class EvaluatorResult(msgspec.Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True):
    """What one evaluator made of one answer."""

    name: str
    type: str
    score: Fraction
    weight: Weight
    verdict: Verdict
    hits: tuple[str, ...] = msgspec.field(default_factory=_no_points)
    misses: tuple[str, ...] = msgspec.field(default_factory=_no_points)
    reasoning: str | None = None
    details: Any = None
    evaluator_provider_request: Any = None
    failed: bool = False
    missing_data: bool = False
    """Whether what it judges by was not there, such as a trace."""
    error_details: str | None = None
    """The traceback of the user's own code."""


class Digests(msgspec.Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True):
    """Short fingerprints of what produced a result, to tell a better agent from a changed question."""

    case: str
    target: str
    evaluators: str
    """How the answer is scored: all that is set up for it, and who judges with which prompts and scripts."""
    judges: str = ""
    """Of those, the targets that judge."""
    prompts: str = ""
    """Of those, what the prompts and scripts say."""
    agentv: str
    scoring: int = 1
    """The version of scoring, which grows when agentv itself changes scores."""


class ShardPlan(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What a shard is a part of: stands in each of its results, so that a merge can tell whether it has all."""

    digest: str
    """Stands for all cases, targets and evaluators of the run; the same in all its shards."""
    cases: int
    """How many results all shards together should have."""
    shard_cases: int
    """How many results this one should have."""


Failure = Literal["target", "timeout", "judge"]


class GradedFrom(msgspec.Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True):
    """The result whose answer was scored again."""

    run_id: str | None = None
    score: Fraction
    evaluators: str | None = None
    """The digest of how it was scored."""


class EvalResult(msgspec.Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True):
    """What became of one case: one line of a results file."""

    timestamp: str
    run_id: str | None = None
    """The run that gave this result."""
    shard: str | None = None
    """Which part of a run that is divided this is of: `2/4` is the second of four."""
    plan: ShardPlan | None = None
    """What the shard is a part of."""
    eval_id: str
    dataset: str
    file: str | None = None
    """Where the case is written: from the root of the repo, or from the folder that the run was started in."""
    line: int | None = None
    conversation_id: str | None = None
    target: str
    attempt: Annotated[int, msgspec.Meta(ge=1)]
    trial: Annotated[int, msgspec.Meta(ge=1)] | None = None
    """Which run of the case this is, when each is run several times."""
    score: Fraction
    verdict: Verdict
    hits: tuple[str, ...] = msgspec.field(default_factory=_no_points)
    misses: tuple[str, ...] = msgspec.field(default_factory=_no_points)
    reasoning: str | None = None
    question: str | None = None
    """What was sent to the target."""
    expected_outcome: str | None = None
    reference_answer: str | None = None
    candidate_answer: str
    stop_reason: str | None = None
    note: str | None = None
    file_changes: str | None = None
    """What the agent changed in its workspace, as a unified diff."""
    workspace_path: str | None = None
    """Where its workspace is kept, from the folder that the run was started in."""
    evaluator_results: tuple[EvaluatorResult, ...] = ()
    trace_summary: TraceSummary | None = None
    execution_metrics: ExecutionMetrics | None = None
    judge_metrics: Mapping[str, JudgeMetrics] | None = None
    """What the judges of the answer took, by their names."""
    error: str | None = None
    error_details: str | None = None
    failure: Failure | None = None
    dry_run: bool | None = None
    """Whether a mock answered in the place of the target."""
    trace: tuple[TraceEvent, ...] | None = None
    trace_complete: bool | None = None
    """False if there was more to the trace than is known."""
    trace_id: str | None = None
    """The OpenTelemetry trace of the case, if there is one."""
    answered_at: str | None = None
    """When the target had answered, and scoring began; known where results are sent as traces."""
    description: str | None = None
    metadata: Mapping[str, Any] | None = None
    digests: Digests | None = None
    graded_from: GradedFrom | None = None
    """What `agentv grade` made this result of."""
