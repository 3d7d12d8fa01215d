"""The frozen records that pass between the stages of a run, and that results files consist of.

The class docstrings of records in files are also the descriptions in their JSON Schema (`agentv schema`).
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Self

import msgspec

from agentv.errors import AgentvError

Role = Literal["system", "user", "assistant", "tool"]
Severity = Literal["error", "warning"]
Json = dict[str, Any]
Texts = tuple[str, ...]
NonEmptyText = Annotated[str, msgspec.Meta(min_length=1)]
PositiveInt = Annotated[int, msgspec.Meta(ge=1)]


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """A problem in a file written by the user: what is wrong, where, and how to fix it."""

    message: str
    severity: Severity = "error"
    file: Path | None = None
    line: int | None = None
    column: int | None = None
    hint: str = ""

    @classmethod
    def of(cls, error: AgentvError) -> Self:
        """Return the problem that an exception reports."""
        return cls(
            message=error.message,
            file=error.file,
            line=error.line,
            column=error.column,
            hint=error.hint,
        )


class Record(msgspec.Struct, frozen=True, gc=False):
    """Base of records that exist in large numbers.

    There may be hundreds of thousands in memory, without reference cycles, so the garbage collector does not track
    them (`gc=False`). This alone halves the time to load a file.
    """


class FileRecord(Record, frozen=True, omit_defaults=True):
    """Base of records that are written to files. Fields that have their default value are omitted."""


class TextBlock(Record, frozen=True, tag_field="type", tag="text"):
    """A piece of text in a message."""

    value: str


class FileBlock(Record, frozen=True, tag_field="type", tag="file"):
    """A file in a message: `value` is its path, as written in the eval file."""

    value: NonEmptyText


class ToolCall(FileRecord, frozen=True, kw_only=True):
    """One call of a tool by an assistant."""

    tool: str
    input: Any = None
    output: Any = None
    id: str | None = None
    timestamp: str | None = None
    metadata: Json | None = None
    """Additional data, such as the thought signature that Gemini expects to be sent back."""


class Message(FileRecord, frozen=True, kw_only=True):
    """One turn of a conversation. `content` may be left out by an assistant that calls tools."""

    role: Role
    content: str | Json | tuple[TextBlock | FileBlock, ...] | None = None
    name: str | None = None
    tool_calls: tuple[ToolCall, ...] | None = None


class Execution(FileRecord, frozen=True, kw_only=True):
    """How a case runs: which target answers it and which evaluators score the answer."""

    target: NonEmptyText | None = None
    evaluators: tuple[Json, ...] | None = None


class EvalFile(msgspec.Struct, frozen=True, kw_only=True):
    """The eval file of a case."""

    path: Path
    dataset: str
    root: Path | None = None
    """The root of the repository that the file is in, if there is one."""


class EvalCase(Record, frozen=True):
    """One task for the agent, with the defaults of its file applied.

    Two cases are equal if their content is equal: `file` and `line` are not compared.
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
        """The evaluators configured for this case or for its file."""
        return self.execution.evaluators or ()

    @property
    def dataset(self) -> str:
        """The name of the dataset that this case belongs to."""
        return self.file.dataset

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, EvalCase):
            return NotImplemented
        for name in self.__struct_fields__:
            if name in ("file", "line"):
                continue
            if getattr(self, name) != getattr(other, name):
                return False
        return True

    __hash__ = None  # type: ignore[assignment]  # content and metadata are mappings


class TokenUsage(FileRecord, frozen=True, kw_only=True):
    """Tokens that a target reported; `input` includes what the cache gave or took, `output` the reasoning."""

    input: int | None = None
    output: int | None = None
    cached: int | None = None
    """The part of the input that was read from the vendor's cache."""
    cache_write: int | None = None
    """The part of the input that was written to the vendor's cache."""
    reasoning: int | None = None
    """The part of the output that is reasoning."""


class ExecutionMetrics(FileRecord, frozen=True, kw_only=True):
    """What one answer cost."""

    token_usage: TokenUsage | None = None
    cost_usd: float | None = None
    duration_ms: float | None = None
    ttft_ms: float | None = None
    """The time to the first token, if known."""
    batch: bool | None = None
    """Whether the answer came from a vendor's batch API, at half the price."""
    cached: bool = False
    """Whether the answer came from the cache or another store, at no cost to this run."""


class JudgeMetrics(FileRecord, frozen=True, kw_only=True):
    """How often one judge was asked about an answer, and what that cost; what the cache gave is no call."""

    calls: int
    token_usage: TokenUsage | None = None
    cost_usd: float | None = None
    duration_ms: float | None = None


TraceKind = Literal["model_step", "tool_call", "tool_result", "message", "error"]


class TraceEvent(FileRecord, frozen=True, kw_only=True):
    """One step of an agent on its way to the answer."""

    type: TraceKind
    timestamp: str | None = None
    id: str | None = None
    name: str | None = None
    input: Any = None
    output: Any = None
    text: str | None = None
    metadata: Json | None = None


class TraceSummary(FileRecord, frozen=True, kw_only=True, rename="camel"):
    """A trace in a few figures; camelCase in files, as its readers know it."""

    event_count: int
    tool_names: Texts
    tool_calls_by_name: dict[str, int]
    error_count: int
    token_usage: TokenUsage | None = None
    cost_usd: float | None = None
    duration_ms: float | None = None
    tool_durations: dict[str, list[float]] | None = None


class Media(Record, frozen=True, kw_only=True):
    """An image or a PDF attached to a message."""

    value: str
    """Its path as written in the eval file."""
    path: Path
    type: str
    """Detected from the content: `image/png`, `image/jpeg`, `image/gif`, `image/webp` or `application/pdf`."""


class TraceContext(Record, frozen=True, kw_only=True):
    """Where one attempt at a case sends its OpenTelemetry spans, and their parent span."""

    trace_id: str
    """The id of the trace: 32 hexadecimal digits."""
    span_id: str
    """The id of the case's span: 16 hexadecimal digits."""
    endpoint: str
    """The OTLP/HTTP endpoint of this attempt. All spans received there belong to it, regardless of their trace."""
    collector: str
    """The endpoint shared by all attempts, which assigns spans by their trace."""
    resource: str = ""
    """Attributes of the case in the format of `OTEL_RESOURCE_ATTRIBUTES`."""

    @property
    def traceparent(self) -> str:
        """The case's span as a `traceparent` header (W3C Trace Context)."""
        return f"00-{self.trace_id}-{self.span_id}-01"


class ProviderRequest(Record, frozen=True, kw_only=True):
    """What is sent to a target for one case."""

    eval_id: str
    question: str
    dataset: str = ""
    """The dataset of the case, used to look up stored answers. It is not sent."""
    guidelines: str = ""
    chat_prompt: tuple[Message, ...] = ()
    input_files: tuple[Path, ...] = ()
    guideline_files: tuple[Path, ...] = ()
    media: tuple[Media, ...] = ()
    """The images and PDFs among the input files. File blocks in `chat_prompt` refer to them by `value`."""
    attempt: int = 1
    trial: int = 1
    response_schema: Json | None = None
    """The JSON Schema of the answer, for language models that support structured output."""
    workspace: Path | None = None
    """A fresh folder for the agent to work in, if one was created."""
    telemetry: TraceContext | None = None
    """Where to send spans, if they are collected."""
    fence: str = ""
    """In a request to a judge, the random delimiter around the judged text. Not part of cache keys."""


class ProviderResponse(FileRecord, frozen=True, kw_only=True, rename="camel"):
    """The answer of a target. Fields are camelCase in JSON."""

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
    """A remark for readers of the answer."""
    file_changes: str | None = None
    """The agent's changes in its workspace as a unified diff. None if it had no workspace."""
    batch: bool | None = None
    """Whether the answer came from a vendor's batch API, at half the price."""
    trace_complete: bool | None = None
    """False if parts of the trace are missing, so that it cannot show that the agent did not do something."""


class Exchange(Record, frozen=True, kw_only=True):
    """The input of an evaluator: the case, the request sent for it, and the response."""

    case: EvalCase
    request: ProviderRequest
    response: ProviderResponse
    workspace: Path | None = None
    """The folder that the agent worked in, while it exists."""


Verdict = Literal["pass", "borderline", "fail"]


class Score(Record, frozen=True, kw_only=True):
    """The score that one evaluator gives to one answer: 0 is the worst, 1 the best."""

    score: float
    hits: Texts = ()
    misses: Texts = ()
    reasoning: str = ""
    details: Any = None
    evaluator_provider_request: Any = None
    failed: bool = False
    """Whether the evaluator crashed or its judge gave no answer. Then the score is not a judgement."""
    verdict: Verdict | None = None
    """The verdict, if it does not follow from the score."""
    missing_data: bool = False
    """Whether data such as a trace was missing. The score is then 0, and `negate` does not turn it into a pass."""


Fraction = Annotated[float, msgspec.Meta(ge=0, le=1)]
Weight = Annotated[float, msgspec.Meta(ge=0)]


def _no_points() -> Texts:
    """Return no hits or misses.

    `omit_defaults` omits default values but not the results of default factories: with this factory, empty hits and
    misses are written to files.
    """
    return ()


class EvaluatorResult(FileRecord, frozen=True, kw_only=True):
    """What one evaluator made of one answer."""

    name: str
    type: str
    score: Fraction
    weight: Weight
    verdict: Verdict
    hits: Texts = msgspec.field(default_factory=_no_points)
    misses: Texts = msgspec.field(default_factory=_no_points)
    reasoning: str | None = None
    details: Any = None
    evaluator_provider_request: Any = None
    failed: bool = False
    missing_data: bool = False
    """Whether data that the evaluator needs, such as a trace, was missing."""
    error_details: str | None = None
    """The traceback of the user's own code."""


class Digests(FileRecord, frozen=True, kw_only=True):
    """Short fingerprints of what produced a result, to tell a better agent from a changed question."""

    case: str
    target: str
    evaluators: str
    """The whole scoring configuration: settings, judges, prompts and scripts."""
    judges: str = ""
    """The targets that judge."""
    prompts: str = ""
    """The content of prompts and scripts."""
    agentv: str
    scoring: int = 1
    """The scoring version, which increases when a change of agentv changes scores."""


class ShardPlan(Record, frozen=True, kw_only=True):
    """What a shard is a part of: stands in each of its results, so that a merge can tell whether it has all."""

    digest: str
    """Identifies all cases, targets and evaluators of the run. The same in all shards."""
    cases: int
    """The expected number of results in all shards together."""
    shard_cases: int
    """The expected number of results in this shard."""


Failure = Literal["target", "timeout", "judge"]


class GradedFrom(FileRecord, frozen=True, kw_only=True):
    """The result whose answer was scored again."""

    run_id: str | None = None
    score: Fraction
    evaluators: str | None = None
    """The digest of the scoring configuration at that time."""


class ResultKey(NamedTuple):
    """What identifies a result within a run. The only trial of a case has the number 1."""

    dataset: str
    eval_id: str
    target: str
    trial: int


class EvalResult(FileRecord, frozen=True, kw_only=True):
    """What became of one case: one line of a results file."""

    timestamp: str
    run_id: str | None = None
    """The id of the run that produced this result."""
    shard: str | None = None
    """The shard of a divided run: `2/4` is the second of four."""
    plan: ShardPlan | None = None
    """The run that the shard belongs to."""
    eval_id: str
    dataset: str
    file: str | None = None
    """The file of the case, relative to the root of the repository or to the folder where the run was started."""
    line: int | None = None
    conversation_id: str | None = None
    target: str
    attempt: PositiveInt
    trial: PositiveInt | None = None
    """The number of the trial, if cases run several times."""
    score: Fraction
    verdict: Verdict
    hits: Texts = msgspec.field(default_factory=_no_points)
    misses: Texts = msgspec.field(default_factory=_no_points)
    reasoning: str | None = None
    question: str | None = None
    """The text sent to the target."""
    expected_outcome: str | None = None
    reference_answer: str | None = None
    candidate_answer: str
    stop_reason: str | None = None
    note: str | None = None
    file_changes: str | None = None
    """The agent's changes in its workspace as a unified diff."""
    workspace_path: str | None = None
    """The path of the kept workspace, relative to the folder where the run was started."""
    evaluator_results: tuple[EvaluatorResult, ...] = ()
    trace_summary: TraceSummary | None = None
    execution_metrics: ExecutionMetrics | None = None
    judge_metrics: Mapping[str, JudgeMetrics] | None = None
    """The metrics of each judge, by name."""
    error: str | None = None
    error_details: str | None = None
    failure: Failure | None = None
    dry_run: bool | None = None
    """Whether a mock answered instead of the target."""
    trace: tuple[TraceEvent, ...] | None = None
    trace_complete: bool | None = None
    """False if parts of the trace are missing."""
    trace_id: str | None = None
    """The id of the case's OpenTelemetry trace, if there is one."""
    answered_at: str | None = None
    """When the target answered and scoring began. Set only if results are exported as traces."""
    description: str | None = None
    metadata: Mapping[str, Any] | None = None
    digests: Digests | None = None
    graded_from: GradedFrom | None = None
    """The original result, if `agentv grade` produced this one."""

    @property
    def key(self) -> ResultKey:
        return ResultKey(self.dataset, self.eval_id, self.target, self.trial or 1)
