"""What goes over the wire: the JSON shapes of the API, shared by the server and the client."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

from kb.access import Role
from kb.metadata_conditions import Operator
from kb.presets import DEFAULT_PRESET, PresetName


class _Wire(BaseModel):
    model_config = ConfigDict(extra="forbid")


class ProblemOut(_Wire):
    """An error or a warning: a stable code, a sentence, the next step to take."""

    code: str
    message: str
    next_step: str = ""


class ErrorDetail(_Wire):
    """The one shape of all errors; `type` and `param` are there for OpenAI clients."""

    code: str
    message: str
    next_step: str = ""
    type: str = "invalid_request_error"
    param: str | None = None
    request_id: str = ""
    suggestions: list[str] = Field(
        default_factory=list, description="Values that exist and may have been meant; never an answer."
    )


class ErrorOut(_Wire):
    """Body of every response with a 4xx or 5xx status."""

    error: ErrorDetail


class CollectionIn(_Wire):
    """Request to create a collection."""

    name: str = Field(min_length=1, max_length=64)


class CollectionOut(_Wire):
    """A collection with its counts."""

    id: str
    name: str
    created_at: datetime
    document_count: int
    chunk_count: int
    fingerprint: str


class CollectionsOut(_Wire):
    """All collections, by name."""

    collections: list[CollectionOut]


class DocumentOut(_Wire):
    """A document and where it stands.

    `parent_id` is the document it came attached to; it is null for what was uploaded by itself.
    """

    id: str
    collection: str
    name: str
    title: str
    media_type: str
    size_bytes: int
    sha256: str
    state: str
    stage: str
    pages_done: int
    page_count: int
    chunk_count: int
    attempt: int
    job_id: str
    error: ProblemOut | None
    warnings: list[ProblemOut]
    created_at: datetime
    updated_at: datetime
    finished_at: datetime | None
    parent_id: str | None = None
    tags: list[str] = Field(default_factory=list)


class TagsIn(_Wire):
    """The tags of a document, in place of former ones."""

    tags: list[Annotated[str, Field(min_length=1, max_length=64)]] = Field(max_length=50)


class PageQualityOut(_Wire):
    """The quality ledger of one page."""

    page_number: int
    source: str
    char_count: int
    word_count: int
    table_count: int
    undecodable_share: float
    ocr_confidence: float | None
    warnings: list[str]


class DocumentDetailOut(DocumentOut):
    """A document with the ledger of its pages."""

    pages: list[PageQualityOut]


class DocumentsOut(_Wire):
    """One page of documents; `next_after` is the cursor of the next page."""

    documents: list[DocumentOut]
    next_after: str | None = None


class BoxOut(_Wire):
    """A rectangle in points, origin at the top left corner of the page."""

    x0: float
    y0: float
    x1: float
    y1: float


class LineOut(_Wire):
    """One printed line."""

    text: str
    char_start: int
    char_end: int
    box: BoxOut | None


class TableOut(_Wire):
    """A table's part on this page: one record per row, column name to cell text."""

    table_index: int
    records: list[dict[str, str]]


class PageOut(_Wire):
    """The stored text of one page."""

    document_id: str
    page_number: int
    label: str | None
    text: str
    source: str
    width: float | None
    height: float | None
    quality: PageQualityOut
    lines: list[LineOut]
    tables: list[TableOut]


class UploadResultOut(_Wire):
    """What became of one uploaded file; `error` is set when it was not accepted."""

    name: str
    document: DocumentOut | None
    duplicate: bool
    error: ProblemOut | None


class UploadOut(_Wire):
    """What became of each uploaded file, in the order they were sent."""

    results: list[UploadResultOut]


class AttemptOut(_Wire):
    """One run of a job."""

    number: int
    worker: str
    started_at: datetime
    finished_at: datetime | None
    error: ProblemOut | None


class JobOut(_Wire):
    """The work on one upload.

    `stalled_reason` says why nobody works on it. `eta_s` is how many seconds the present stage will
    still take at the speed measured since it began.
    """

    id: str
    collection: str
    document_id: str
    document_name: str
    state: str
    document_state: str
    stage: str
    pages_done: int
    page_count: int
    cancel_requested: bool
    stalled_reason: str | None
    eta_s: float | None = None
    attempts: list[AttemptOut]
    created_at: datetime
    updated_at: datetime


class JobsOut(_Wire):
    """One page of jobs, newest first."""

    jobs: list[JobOut]
    next_after: str | None = None


class ScopeIn(_Wire):
    """Which passages count; every condition that is given must hold."""

    documents: list[str] = Field(
        default_factory=list, max_length=1000, description="Ids or names of documents, of which one must fit."
    )
    tags: list[str] = Field(
        default_factory=list, max_length=50, description="Tags that a document must have, all of them."
    )
    language: Literal["zh", "en"] | None = Field(
        default=None, description="Only what a reader of this language can read."
    )
    uploaded_from: datetime | None = Field(default=None, description="Documents uploaded then or later.")
    uploaded_before: datetime | None = Field(default=None, description="Documents uploaded earlier.")


SearchMode = Literal["hybrid", "dense", "lexical"]


class SearchIn(_Wire):
    """A search without an answer."""

    query: str = Field(min_length=1, max_length=8000)
    collection: str = "default"
    top_k: int | None = Field(default=None, ge=1, le=50)
    mode: SearchMode = Field(
        default="hybrid",
        description="hybrid is how answers are found; dense (cosines of vectors) and lexical (BM25) are one "
        "index alone, to see which of them finds or loses a passage.",
    )
    scope: ScopeIn = Field(default_factory=ScopeIn)


class SpanOut(_Wire):
    """A slice of a stored page text."""

    page_number: int
    char_start: int
    char_end: int


class PassageOut(_Wire):
    """A retrieved chunk with the scores of each stage."""

    rank: int
    score: float
    scores: dict[str, float]
    chunk_id: str
    document_id: str
    document_name: str
    page_start: int
    page_end: int
    spans: list[SpanOut]
    heading_path: list[str]
    text: str
    records: list[dict[str, str]]


class SearchOut(_Wire):
    """Passages, best first; an answer needs `evidence` (0..1) of at least `threshold`.

    Both are null unless the mode is `hybrid`: one index alone doesn't judge. `unknown_codes` are codes of
    the query that no document has: then there is no answer either. `calibration_stale` says that the
    collection's own threshold is left aside, as embedder, reranker or chunker have changed.
    """

    query: str
    collection: str
    passages: list[PassageOut]
    evidence: float | None
    threshold: float | None = None
    unknown_codes: list[str] = Field(default_factory=list)
    calibration_stale: bool = False


class ExplainIn(_Wire):
    """A question, and the document or page that should have answered it."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"question": "回油滤芯多久更换一次？", "document": "press_manual_zh.pdf", "page": 9}]
        }
    )

    question: str = Field(min_length=1, max_length=8000)
    document: str = Field(min_length=1, max_length=500, description="Its name or its id.")
    page: int | None = Field(default=None, ge=1, description="Counts from 1; the whole document if left out.")
    top_k: int | None = Field(default=None, ge=1, le=50)
    scope: ScopeIn = Field(default_factory=ScopeIn)


class ExplainedChunkOut(_Wire):
    """What became of one chunk of the expected place. Ranks count from 0; null: that stage did not have it.

    `alone` are its ranks in each index alone, far beyond the candidates; `ranks` are those after fusion
    (`fused`), after codes and reranker (`ranked`) and among the passages (`result`).
    """

    chunk_id: str
    page_start: int
    page_end: int
    text: str
    fate: str
    alone: dict[str, int | None]
    ranks: dict[str, int | None]
    scores: dict[str, float]
    repeated_by: str | None


class ExplainOut(_Wire):
    """At which stage the expected place was lost.

    `fate` is that of its best chunk: `not_searchable` (the document is not ready), `no_text` (the page holds
    nothing to search), `candidates` (no index found it), `fusion` (others ranked better), `reranking` (codes
    or the reranker put others ahead), `repeated` (a better chunk says the same), `gate` (too little evidence,
    or an unknown code: no answer), `language` (the evidence is in the other language), `budget` (no room in
    the prompt), or `used`.
    """

    question: str
    collection: str
    document_id: str
    document_name: str
    document_state: str
    fate: str
    evidence: float
    threshold: float
    unknown_codes: list[str]
    chunks: list[ExplainedChunkOut]


class CalibrationIn(_Wire):
    """A threshold and the rates that were measured with it; shares are 0..1."""

    threshold: float = Field(ge=0, le=1)
    target_false_answers: float = Field(ge=0, le=1)
    false_answers: float = Field(ge=0, le=1)
    false_refusals: float = Field(ge=0, le=1)
    answerable: int = Field(ge=0)
    unanswerable: int = Field(ge=0)


class CalibrationOut(CalibrationIn):
    """The calibration of a collection, with the fingerprints of what it was measured with.

    `changed` names those of `embedder`, `reranker` and `chunker` that are others now: then the calibration
    is left aside until it is measured anew.
    """

    collection: str
    embedder: str
    reranker: str
    chunker: str
    measured_at: datetime
    changed: list[str]


_FAULT_EXAMPLE: dict[str, Any] = {
    "kind": "row",
    "code": "E-0471",
    "description": "蓄能器压力低，充液阀动作缓慢",
    "cause": "皮囊漏气，氮气预充压力低于 4.5 MPa",
    "remedy": "停机，断电挂牌上锁，补充氮气到 5.5 MPa",
    "record": {
        "故障代码": "E-0471",
        "故障现象": "蓄能器压力低，充液阀动作缓慢",
        "可能原因": "皮囊漏气，氮气预充压力低于 4.5 MPa",
        "处理措施": "停机，断电挂牌上锁，补充氮气到 5.5 MPa",
    },
    "document_id": "doc_985e07ca9544ba28a1c27821",
    "document_name": "press_manual_zh.pdf",
    "page_number": 12,
    "box": {"x0": 62.4, "y0": 381.2, "x1": 538.6, "y1": 463.2},
    "quote": "E-0471 | 蓄能器压力低，充液阀动作缓慢 | 皮囊漏气，氮气预充压力低于 4.5 MPa | 停机，断电挂牌上锁，补充氮气到 5.5 MPa",
    "char_start": 658,
    "char_end": 731,
    "chunk_id": "doc_985e07ca9544ba28a1c27821-g1-00063",
    "heading_path": ["7 故障处理", "7.2 故障代码"],
    "score": None,
}


class FaultOut(_Wire):
    """A table row or a section that says what a fault is, why it occurs and what to do.

    `kind` is `row` (a row headed by the code), `section`, or `mention` (the code only occurs there).
    `code` to `remedy` are empty where no column or label of that name was recognised; `record` holds
    every column as it stands. `score` (0..1) is set for a search by symptom.
    """

    model_config = ConfigDict(json_schema_extra={"examples": [_FAULT_EXAMPLE]})

    kind: Literal["row", "section", "mention"]
    code: str
    description: str = Field(description="Name or symptom of the fault.")
    cause: str
    remedy: str
    record: dict[str, str] = Field(description="Column or label to text, all of them, as they stand.")
    document_id: str
    document_name: str
    page_number: int = Field(description="Counts from 1.")
    box: BoxOut | None = Field(description="Where it stands on the page, if the page has a layout.")
    quote: str = Field(description="The slice `char_start:char_end` of the stored text of the page.")
    char_start: int
    char_end: int
    chunk_id: str
    heading_path: list[str]
    score: float | None = None


class FaultLookUpOut(_Wire):
    """Everything that the documents say of one code, best first; `total` counts beyond the limit, too."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"code": "e0471", "collection": "default", "total": 1, "faults": [_FAULT_EXAMPLE]},
            ]
        }
    )

    code: str
    collection: str
    total: int
    faults: list[FaultOut]


class FaultSearchIn(_Wire):
    """A symptom in words."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"symptom": "油温过高", "top_k": 3}]})

    symptom: str = Field(min_length=1, max_length=8000)
    top_k: int | None = Field(default=None, ge=1, le=50)


class FaultSearchOut(_Wire):
    """Faults that fit a symptom, best first; an empty list when none does.

    `evidence` (0..1) is what the refusal threshold is compared with. `unknown_codes` are codes in the
    symptom that no document has: then nothing is returned, as a neighbour must not answer.
    """

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "symptom": "充液阀动作很慢",
                    "collection": "default",
                    "faults": [{**_FAULT_EXAMPLE, "score": 0.82}],
                    "evidence": 0.86,
                    "unknown_codes": [],
                }
            ]
        }
    )

    symptom: str
    collection: str
    faults: list[FaultOut]
    evidence: float
    unknown_codes: list[str]


class MessageIn(_Wire):
    """A former turn of the conversation."""

    role: Literal["user", "assistant"]
    content: str = Field(max_length=32000)


class AskIn(_Wire):
    """A question to the documents of a collection."""

    question: str = Field(min_length=1, max_length=32000)
    collection: str = "default"
    history: list[MessageIn] = Field(default_factory=list, max_length=100)
    top_k: int | None = Field(default=None, ge=1, le=50)
    max_tokens: int | None = Field(default=None, ge=1, le=8192)
    preset: PresetName = Field(
        default=DEFAULT_PRESET, description="Instructions and sampling for a kind of task."
    )
    think: bool = Field(
        default=False, description="Let a model that can think step by step before it answers; not shown."
    )
    stream: bool = False
    scope: ScopeIn = Field(default_factory=ScopeIn)


class CitationOut(_Wire):
    """A marker `[number]` of the answer, resolved to words on a page."""

    number: int
    document_id: str
    document_name: str
    page_number: int
    quote: str
    char_start: int
    char_end: int
    chunk_id: str
    heading_path: list[str]


class ConflictingValueOut(_Wire):
    """What one of several documents that disagree has in this place."""

    value: str
    citation: int = Field(description="Number of the citation that shows it.")


class RefusalOut(_Wire):
    """Why the documents don't say, and what was nearest."""

    reason: str
    nearest: list[PassageOut]


class UsageOut(_Wire):
    """Tokens as the generator counts them."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


class AnswerOut(_Wire):
    """An answer or a refusal."""

    id: str
    question: str
    query: str = Field(
        default="", description="The question as it was searched for: completed from the history."
    )
    collection: str
    answer: str
    refused: bool
    refusal: RefusalOut | None
    mode: str
    language: str
    citations: list[CitationOut]
    passages: list[PassageOut]
    notices: list[str]
    conflict: list[ConflictingValueOut] = Field(
        default_factory=list,
        description="Two values or more where documents disagree on what was asked; empty if none do.",
    )
    unsupported: list[str] = Field(
        default_factory=list, description="Sentences of the model that no passage supports."
    )
    flags: list[str] = Field(
        default_factory=list, description="What a reader should be wary of: `conflict`, `unsupported`."
    )
    model: str
    finish_reason: str
    usage: UsageOut


class PassageMarkOut(_Wire):
    """What identifies a passage later; `sha256` is that of its indexed text."""

    chunk_id: str
    sha256: str
    document_id: str
    document_name: str
    generation: int
    page_number: int
    score: float


class SamplingOut(_Wire):
    """How tokens were drawn."""

    max_tokens: int
    temperature: float
    top_p: float
    repetition_penalty: float
    stop: list[str]
    seed: int | None


class TurnOut(_Wire):
    """An earlier turn of the conversation."""

    role: str
    content: str


class ReceiptOut(_Wire):
    """What an answer was made from; its id is the answer's."""

    id: str
    collection: str
    created_at: datetime
    question: str
    query: str = Field(description="The question as it was searched for.")
    language: str
    history: list[TurnOut]
    system: str
    top_k: int
    preset: str
    think: bool
    sampling: SamplingOut
    retrieved: list[PassageMarkOut] = Field(description="What was found, best first.")
    prompt_chunks: list[str] = Field(description="Ids of the chunks that stood in the prompt.")
    prompt_sha256: str = Field(description="Empty if there was no prompt.")
    evidence: float
    evidence_threshold: float
    index_fingerprint: str
    index_generation: int = Field(description="Counts the changes of the collection's documents.")
    model: str
    model_fingerprint: str
    mode: str
    text: str
    refusal: str | None
    citations: list[CitationOut]
    timings_ms: dict[str, float]


class ReplayOut(_Wire):
    """The same question asked again: both receipts, and what differs."""

    before: ReceiptOut
    after: ReceiptOut
    added: list[str] = Field(description="Chunks that are found only now.")
    removed: list[str] = Field(description="Chunks that are found no more.")
    changed: list[str] = Field(description="Chunks whose text changed.")
    reordered: bool
    differences: list[str] = Field(description="Fields of the receipts that differ.")


class PurgedOut(_Wire):
    """How many receipts were deleted."""

    deleted: int


class DependencyOut(_Wire):
    """One dependency and whether it answers."""

    name: str
    ok: bool
    required: bool
    detail: str


class ReadyOut(_Wire):
    """Readiness: `ready` is true when every required dependency answers."""

    ready: bool
    dependencies: list[DependencyOut]


class LiveOut(_Wire):
    """Liveness: the process answers."""

    status: Literal["ok"] = "ok"
    version: str


class ChatMessageIn(BaseModel):
    """A message in OpenAI shape; content is a string or a list of text parts."""

    model_config = ConfigDict(extra="ignore")

    role: Literal["system", "developer", "user", "assistant"]
    content: str | list[dict[str, Any]] | None = None


class StreamOptionsIn(BaseModel):
    """Options of an OpenAI stream."""

    model_config = ConfigDict(extra="ignore")

    include_usage: bool = False


class ChatCompletionIn(BaseModel):
    """OpenAI chat completion request; unknown fields are ignored.

    `model` names a collection, with a preset behind a colon if need be (`manuals:fault`).
    `chat_template_kwargs` with `enable_thinking` lets the model think first.
    """

    model_config = ConfigDict(extra="ignore")

    model: str
    messages: list[ChatMessageIn] = Field(min_length=1)
    stream: bool = False
    stream_options: StreamOptionsIn | None = None
    max_tokens: int | None = Field(default=None, ge=1)
    max_completion_tokens: int | None = Field(default=None, ge=1)
    temperature: float | None = Field(default=None, ge=0, le=2)
    top_p: float | None = Field(default=None, gt=0, le=1)
    repetition_penalty: float | None = Field(default=None, gt=0, le=2)
    n: int | None = None
    seed: int | None = None
    chat_template_kwargs: dict[str, Any] = Field(default_factory=dict)
    stop: str | list[str] | None = None


class ModelOut(_Wire):
    """A collection in the shape of an OpenAI model."""

    id: str
    object: Literal["model"] = "model"
    created: int
    owned_by: str = "kb"


class ModelsOut(_Wire):
    """All collections in the shape of OpenAI models."""

    object: Literal["list"] = "list"
    data: list[ModelOut]


class ChatMessageOut(_Wire):
    """The assistant's message; `citations` is a vendor field."""

    role: Literal["assistant"] = "assistant"
    content: str
    citations: list[CitationOut]


class ChatChoiceOut(_Wire):
    """The one choice of a chat completion."""

    index: int = 0
    message: ChatMessageOut
    finish_reason: Literal["stop", "length"]


class ChatCompletionOut(_Wire):
    """OpenAI chat completion; the fields after `usage` are vendor fields."""

    id: str
    object: Literal["chat.completion"] = "chat.completion"
    created: int
    model: str
    choices: list[ChatChoiceOut]
    usage: UsageOut
    citations: list[CitationOut]
    refused: bool
    refusal_reason: str | None
    mode: str
    notices: list[str]
    conflict: list[ConflictingValueOut] = Field(default_factory=list)
    answer_id: str = Field(default="", description="Id under which `GET /v1/answers/{id}` tells more.")
    query: str = ""
    unsupported: list[str] = Field(default_factory=list)
    flags: list[str] = Field(default_factory=list)


class KeyIn(_Wire):
    """Request to create an API key; without `collections` it opens all of them, later ones too."""

    name: str = Field(min_length=1, max_length=100, description="Who or what will use it.")
    role: Role = Role.READER
    collections: list[str] | None = Field(default=None, min_length=1, max_length=1000)
    expires_at: AwareDatetime | None = None


class RotateKeyIn(_Wire):
    """Request to replace an API key."""

    grace_s: int = Field(default=0, ge=0, le=30 * 86_400, description="Seconds the old key stays valid.")


class KeyOut(_Wire):
    """An API key without its secret; `hint` is how the secret begins."""

    id: str
    name: str
    role: Role
    collections: list[str] | None
    hint: str
    active: bool
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None


class KeysOut(_Wire):
    """All API keys, oldest first."""

    keys: list[KeyOut]


class NewKeyOut(_Wire):
    """A new API key; `secret` is what clients send, and can't be read again."""

    key: KeyOut
    secret: str


class AuditEventOut(_Wire):
    """Who did what to which thing, when and from where."""

    sequence: int
    at: datetime
    caller_id: str
    caller_name: str
    action: str
    collection: str
    target: str
    address: str
    request_id: str
    detail: dict[str, str]


class AuditOut(_Wire):
    """A page of the audit log, oldest first; `next_after` is null on the last one."""

    events: list[AuditEventOut]
    next_after: int | None


class EmbeddingsIn(BaseModel):
    """OpenAI embeddings request; unknown fields are ignored, `input_type` is a vendor field."""

    model_config = ConfigDict(extra="ignore")

    model: str = Field(default="", max_length=200)
    input: str | list[str] = Field(min_length=1, max_length=1_000_000)
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: int | None = None
    input_type: Literal["passage", "query"] = "passage"


class EmbeddingOut(_Wire):
    """One vector, as numbers or as base64 of little-endian float32."""

    object: Literal["embedding"] = "embedding"
    index: int
    embedding: list[float] | str


class EmbeddingsUsageOut(_Wire):
    """Tokens of the texts as the embedder counts them."""

    prompt_tokens: int
    total_tokens: int


class EmbeddingsOut(_Wire):
    """OpenAI list of embeddings, in the order of the texts."""

    object: Literal["list"] = "list"
    data: list[EmbeddingOut]
    model: str
    usage: EmbeddingsUsageOut


class _Dify(BaseModel):
    model_config = ConfigDict(extra="ignore")


class DifyRetrievalSettingIn(_Dify):
    """How much Dify wants; null means the service's own default."""

    top_k: int | None = Field(default=None, ge=1, le=100)
    score_threshold: float | None = Field(default=None, ge=0, le=1)


class DifyConditionIn(_Dify):
    """One condition on a field of the metadata."""

    name: str = Field(max_length=200)
    comparison_operator: Operator
    value: str | int | float | list[str | int | float] | None = None


class DifyConditionsIn(_Dify):
    """Conditions that are joined."""

    logical_operator: Literal["and", "or"] | None = "and"
    conditions: list[DifyConditionIn] | None = Field(default=None, max_length=100)


class DifyRetrievalIn(_Dify):
    """A retrieval request of Dify; unknown fields are ignored."""

    knowledge_id: str = Field(default="", max_length=200)
    query: str = Field(default="", max_length=20_000)
    retrieval_setting: DifyRetrievalSettingIn = Field(default_factory=DifyRetrievalSettingIn)
    metadata_condition: DifyConditionsIn | None = None


class DifyRecordOut(_Wire):
    """A passage as Dify reads it."""

    content: str
    score: float
    title: str
    metadata: dict[str, Any]


class DifyRetrievalOut(_Wire):
    """Passages, best first."""

    records: list[DifyRecordOut]


class DifyErrorOut(_Wire):
    """An error as Dify reads it."""

    error_code: int
    error_msg: str
