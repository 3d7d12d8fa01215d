"""The frozen records that the stages of a run exchange and that results files contain.

The class docstrings of written records are also the descriptions in their JSON Schema (`agentv schema`).
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Self

import msgspec

from agentv.errors import AgentvError
from agentv.hook_settings import Hooks
from agentv.stats.metrics import MetricSpec

Role = Literal["system", "user", "assistant", "tool"]
Severity = Literal["error", "warning"]
Json = dict[str, Any]
Texts = tuple[str, ...]
NonEmptyText = Annotated[str, msgspec.Meta(min_length=1)]
PositiveInt = Annotated[int, msgspec.Meta(ge=1)]
Threshold = Annotated[float, msgspec.Meta(gt=0, le=1)]
PassRule = Literal["all"] | Threshold
"""When a case passes: `all` if every evaluator passes, or the lowest mean score that passes."""
DEFAULT_TARGET = "default"
"""The target of cases that do not name one."""
PASS = 0.8
"""The lowest score that passes, unless a case sets its own."""
BORDERLINE = 0.6
"""The lowest borderline score. Lower scores fail."""


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
        """Return an exception as a problem."""
        return cls(
            message=error.message,
            file=error.file,
            line=error.line,
            column=error.column,
            hint=error.hint,
        )


class Record(msgspec.Struct, frozen=True, gc=False):
    """Base class for records that exist in large numbers. Disabling GC tracking halves the time to load a file."""


class WrittenRecord(Record, frozen=True, omit_defaults=True):
    """Base class for records that are written to files. Fields with their default value are omitted."""


class TextBlock(Record, frozen=True, tag_field="type", tag="text"):
    """A piece of text in a message."""

    value: str


class FileBlock(Record, frozen=True, tag_field="type", tag="file"):
    """A file in a message: `value` is its path, as written in the eval file."""

    value: NonEmptyText


class ToolCall(WrittenRecord, frozen=True, kw_only=True):
    """One call of a tool by an assistant."""

    tool: str
    input: Any = None
    output: Any = None
    id: str | None = None
    timestamp: str | None = None
    metadata: Json | None = None
    """Additional data, such as the thought signature that Gemini expects to be sent back."""


class Message(WrittenRecord, frozen=True, kw_only=True):
    """One turn of a conversation. `content` is optional for an assistant that calls tools."""

    role: Role
    content: str | Json | tuple[TextBlock | FileBlock, ...] | None = None
    name: str | None = None
    tool_calls: tuple[ToolCall, ...] | None = None


class Execution(WrittenRecord, frozen=True, kw_only=True):
    """How a case runs: which target answers it and which evaluators score the answer."""

    target: NonEmptyText | None = None
    evaluators: tuple[Json, ...] | None = None


class CaseFile(msgspec.Struct, frozen=True, kw_only=True):
    """The eval file of a case."""

    path: Path
    dataset: str
    root: Path | None = None
    """The root of the repository that contains the file, if any."""
    metrics: tuple[MetricSpec, ...] = ()
    hooks: Hooks | None = None


class EvalCase(Record, frozen=True):
    """One task for the agent, with the defaults of its file applied.

    Two cases are equal if their content is equal: `file`, `line` and `position` are not compared.
    """

    id: str
    expected_outcome: str
    input_messages: tuple[Message, ...]
    expected_messages: tuple[Message, ...] = ()
    conversation_id: str | None = None
    execution: Execution = Execution(target=DEFAULT_TARGET, evaluators=())
    rubrics: tuple[str | Json, ...] = ()
    evaluator: str = "llm_judge"
    description: str = ""
    metadata: Mapping[str, Any] | None = None
    file: CaseFile = CaseFile(path=Path(), dataset="")
    line: int = 0
    pass_rule: PassRule = PASS
    """When the case passes."""
    vars: Mapping[str, Any] | None = None
    """The variables of the case, including those of its file."""
    tags: Texts = ()
    skip: str = ""
    """Why the case is skipped; empty if it runs."""
    position: int = 0
    """The number of the case within its dataset, starting at 1, or 0 outside of a dataset."""

    @property
    def target(self) -> str:
        """The name of the target that answers this case."""
        return self.execution.target or DEFAULT_TARGET

    @property
    def evaluators(self) -> tuple[Json, ...]:
        """The evaluators configured for this case or for its file."""
        return self.execution.evaluators or ()

    @property
    def dataset(self) -> str:
        """The name of the dataset that contains this case."""
        return self.file.dataset

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, EvalCase):
            return NotImplemented
        for name in self.__struct_fields__:
            if name in ("file", "line", "position"):
                continue
            if getattr(self, name) != getattr(other, name):
                return False
        return True

    __hash__ = None  # type: ignore[assignment]  # content and metadata are mappings


class TokenUsage(WrittenRecord, frozen=True, kw_only=True):
    """Token counts reported by a target. `input` includes cached tokens, `output` includes reasoning tokens."""

    input: int | None = None
    output: int | None = None
    cached: int | None = None
    """The input tokens that were read from the vendor's cache."""
    cache_write: int | None = None
    """The input tokens that were written to the vendor's cache."""
    reasoning: int | None = None
    """The output tokens that were used for reasoning."""


class RetryMetrics(WrittenRecord, frozen=True, kw_only=True):
    """The known cost of the failed attempts before the last one."""

    attempts: int
    """The number of these attempts."""
    cost_usd: float | None = None
    token_usage: TokenUsage | None = None


class ExecutionMetrics(WrittenRecord, frozen=True, kw_only=True):
    """The cost of one answer. All fields except `retries` describe the last attempt."""

    token_usage: TokenUsage | None = None
    cost_usd: float | None = None
    duration_ms: float | None = None
    ttft_ms: float | None = None
    """The time to the first token, if known."""
    batch: bool | None = None
    """Whether the answer came from a vendor's batch API, at half the price."""
    cached: bool = False
    """Whether the answer came from the cache or another store, at no cost to this run."""
    retries: RetryMetrics | None = None
    """The failed attempts before the last one, if any."""


class JudgeMetrics(WrittenRecord, frozen=True, kw_only=True):
    """The number and cost of the calls to one judge for an answer. Cached replies do not count as calls."""

    calls: int
    token_usage: TokenUsage | None = None
    cost_usd: float | None = None
    duration_ms: float | None = None


TraceKind = Literal["model_step", "tool_call", "tool_result", "message", "error"]


class TraceEvent(WrittenRecord, frozen=True, kw_only=True):
    """One step of an agent, such as a tool call."""

    type: TraceKind
    timestamp: str | None = None
    id: str | None = None
    name: str | None = None
    input: Any = None
    output: Any = None
    text: str | None = None
    metadata: Json | None = None


class TraceSummary(WrittenRecord, frozen=True, kw_only=True, rename="camel"):
    """A summary of a trace. Fields are camelCase in files."""

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
    question_with_guidelines: str = ""
    """The guidelines followed by the question, for targets that do not take guidelines separately. Otherwise empty."""
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
    """Where to send spans, if traces are collected."""
    fence: str = ""
    """In a request to a judge, the random delimiter around the judged text. Not part of cache keys."""
    vars: Mapping[str, Any] | None = None
    """The variables of the case, for targets whose settings or function name them."""
    metadata: Mapping[str, Any] | None = None
    """The metadata of the case, for targets whose function names it."""
    state: Mapping[str, Any] | None = None
    """What the hooks of this attempt returned. Never written to files, and not part of cache keys."""

    @property
    def prompt(self) -> str:
        """The question as sent to the target, after the guidelines if the target does not take them separately."""
        return self.question_with_guidelines or self.question

    @property
    def messages(self) -> list[Json]:
        """The chat turns as JSON values: the chat prompt, or a single turn with the question."""
        turns = self.chat_prompt
        if not turns:
            turns = (Message(role="user", content=self.question),)
        messages: list[Json] = [msgspec.to_builtins(turn) for turn in turns]
        return messages


DroppedKind = Literal["tool_calls", "trace_events", "messages", "content", "figures", "metadata", "fields"]


class Dropped(WrittenRecord, frozen=True, kw_only=True):
    """Parts of an answer that could not be read."""

    kind: DroppedKind
    """The kind of the parts, such as tool calls without a readable name or negative figures."""
    count: PositiveInt
    example: str
    """The first of these parts, as JSON."""


class ProviderResponse(WrittenRecord, frozen=True, kw_only=True, rename="camel"):
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
    """False if parts of the trace are missing, so that it cannot prove that the agent did not call a tool."""
    metadata: Json | None = None
    """Additional data from the target, such as retrieved documents, for evaluators."""
    case_metadata: Mapping[str, Any] | None = None
    """The case's metadata at the time of a stored answer. Evaluators receive it instead of the current metadata."""
    dropped: tuple[Dropped, ...] | None = None
    """Parts of the answer that could not be read."""


class Exchange(Record, frozen=True, kw_only=True):
    """The input of an evaluator: the case, the request sent for it, and the response."""

    case: EvalCase
    request: ProviderRequest
    response: ProviderResponse
    workspace: Path | None = None
    """The agent's workspace, if it still exists."""

    @property
    def state(self) -> Mapping[str, Any]:
        """What the hooks of the attempt returned."""
        return self.request.state or {}


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
    """Whether the evaluator crashed or its judge did not answer. The score is then meaningless."""
    verdict: Verdict | None = None
    """The explicit verdict, if the evaluator does not derive it from the score."""
    missing_data: bool = False
    """Whether data such as a trace was missing. The score is then 0, and `negate` does not turn it into a pass."""
    applicable: bool = True
    """False if the evaluator does not apply to the case. The score is then ignored."""
    off_scale: float | None = None
    """A score outside the range from 0 to 1, which is the reason why the evaluator failed."""


Fraction = Annotated[float, msgspec.Meta(ge=0, le=1)]
Weight = Annotated[float, msgspec.Meta(ge=0)]


def _no_points() -> Texts:
    """Return no hits or misses. `omit_defaults` omits default values, but not what a factory such as this returns."""
    return ()


class EvaluatorResult(WrittenRecord, frozen=True, kw_only=True):
    """The result of one evaluator for one answer."""

    name: str
    type: str
    score: Fraction | None
    """Null if the evaluator does not apply to the case."""
    weight: Weight
    verdict: Verdict | None
    """The explicit verdict of the evaluator, or the verdict of its score. Null if it does not apply."""
    explicit_verdict: bool = False
    """Whether the evaluator set the verdict explicitly."""
    required: bool | Threshold = False
    """Whether the answer must pass this evaluator, or the minimum score that it must reach."""
    applicable: bool = True
    hits: Texts = msgspec.field(default_factory=_no_points)
    misses: Texts = msgspec.field(default_factory=_no_points)
    reasoning: str | None = None
    details: Any = None
    evaluator_provider_request: Any = None
    failed: bool = False
    missing_data: bool = False
    """Whether data that the evaluator needs, such as a trace, was missing."""
    off_scale: float | None = None
    """A score outside the range from 0 to 1, which is the reason why the evaluator failed."""
    error_details: str | None = None
    """The traceback of the user's own code."""

    @property
    def counts(self) -> bool:
        """Whether the evaluator affects the score or verdict: it applies, and has a weight or is required."""
        return self.applicable and (self.weight > 0 or self.required is not False)


class Digests(WrittenRecord, frozen=True, kw_only=True):
    """Digests of everything that determined a result. They distinguish a better agent from a changed case."""

    case: str
    """The question and the expectations."""
    request: str = ""
    """What the target received."""
    target: str
    """The version of the target."""
    settings: str = ""
    """The settings of the target alone."""
    files: str = ""
    """The files and variables that the version of the target covers."""
    evaluators: str
    """The whole scoring configuration: settings, judges, prompts and scripts."""
    judges: str = ""
    """The targets that judge."""
    prompts: str = ""
    """The content of prompts and scripts."""
    agentv: str
    """The build that wrote the result. It is never compared."""
    scoring: int = 1
    """The scoring version, which increases when a change in agentv affects scores."""
    format: int = 1
    """The format of these digests, which increases when a change in agentv affects what they cover."""


class ShardPlan(Record, frozen=True, kw_only=True):
    """The run that a shard belongs to, stored in each of its results, so that a merge can detect missing results."""

    digest: str
    """Identifies all cases, targets and evaluators of the run. All shards have the same digest."""
    cases: int
    """The expected total number of results in all shards."""
    shard_cases: int
    """The expected number of results in this shard."""


Failure = Literal["target", "timeout", "judge", "machine"]


class GradedFrom(WrittenRecord, frozen=True, kw_only=True):
    """The original result of an answer that was re-scored."""

    run_id: str | None = None
    score: Fraction
    evaluators: str | None = None
    """The digest of the scoring configuration at that time."""


class CaseKey(NamedTuple):
    """Identifies a case within a run."""

    dataset: str
    eval_id: str


class ResultKey(NamedTuple):
    """Identifies a result within a run. If cases run once, the trial is 1."""

    dataset: str
    eval_id: str
    target: str
    trial: int

    @classmethod
    def of_any_target(cls, dataset: str, eval_id: str, trial: int) -> Self:
        """Return a key without a target, for readers that do not distinguish targets."""
        return cls(dataset, eval_id, "", trial)


class EvalResult(WrittenRecord, frozen=True, kw_only=True):
    """The result of one case: one line of a results file."""

    timestamp: str
    run_id: str | None = None
    """The id of the run that produced this result."""
    commit: str | None = None
    """The Git commit of the eval files, if they are in a repository."""
    shard: str | None = None
    """The shard, if the run was sharded: `2/4` is the second of four."""
    plan: ShardPlan | None = None
    """The run that the shard belongs to."""
    eval_id: str
    dataset: str
    file: str | None = None
    """The file of the case, relative to the root of the repository or to the folder where the run was started."""
    line: int | None = None
    position: PositiveInt | None = None
    """The number of the case within its dataset."""
    conversation_id: str | None = None
    target: str
    attempt: PositiveInt
    trial: PositiveInt | None = None
    """The number of the trial, if cases run more than once."""
    score: Fraction
    verdict: Verdict
    failed_required: Texts = ()
    """The names of the required evaluators that the answer failed."""
    hits: Texts = msgspec.field(default_factory=_no_points)
    misses: Texts = msgspec.field(default_factory=_no_points)
    reasoning: str | None = None
    question: str | None = None
    """The text sent to the target."""
    expected_outcome: str | None = None
    reference_answer: str | None = None
    candidate_answer: str
    answer_digest: str | None = None
    """Identifies the answer for labels: its text, tool calls, conversation and file changes."""
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
    """Whether the answer comes from a mock instead of the target."""
    trace: tuple[TraceEvent, ...] | None = None
    trace_complete: bool | None = None
    """False if parts of the trace are missing."""
    output_messages: tuple[Message, ...] | None = None
    """The messages of the agent. Long texts are truncated unless the trace is included."""
    response_metadata: Json | None = None
    """The metadata that the target returned."""
    dropped: tuple[Dropped, ...] | None = None
    """Parts of the answer that could not be read."""
    trace_id: str | None = None
    """The id of the case's OpenTelemetry trace, if there is one."""
    answered_at: str | None = None
    """The time at which the target answered and scoring began. Set only if results are exported as traces."""
    description: str | None = None
    masked: Texts = ()
    """The variables and target settings whose values are masked in the answer, the metadata or the case's text."""
    tags: Texts = ()
    vars: Mapping[str, Any] | None = None
    """The variables of the case."""
    metadata: Mapping[str, Any] | None = None
    digests: Digests | None = None
    graded_from: GradedFrom | None = None
    """The original result, if `agentv grade` produced this one."""

    @property
    def key(self) -> ResultKey:
        return ResultKey(self.dataset, self.eval_id, self.target, self.trial or 1)
