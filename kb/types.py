"""Frozen values that the whole system passes around.

Reading order: Collection, Document, Job, then Page/Block (what a parser found), Chunk (what is
indexed), Passage (a chunk retrieved for a query), Citation and Answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum


class DocumentState(StrEnum):
    """Where a document stands; the value is what the API shows."""

    QUEUED = "queued"
    PARSING = "parsing"
    EMBEDDING = "embedding"
    READY = "ready"
    READY_WITH_WARNINGS = "ready_with_warnings"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def is_terminal(self) -> bool:
        """True when no worker will change this state by itself."""
        return self in _TERMINAL

    @property
    def is_searchable(self) -> bool:
        """True when the document's chunks may be retrieved."""
        return self in (DocumentState.READY, DocumentState.READY_WITH_WARNINGS)


_TERMINAL = frozenset(
    {
        DocumentState.READY,
        DocumentState.READY_WITH_WARNINGS,
        DocumentState.FAILED,
        DocumentState.CANCELLED,
    }
)


class JobState(StrEnum):
    """Where the work on one registered document stands."""

    QUEUED = "queued"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def is_terminal(self) -> bool:
        """True when the job will not run again by itself."""
        return self in (JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED)


class TextSource(StrEnum):
    """How the text of a page was obtained."""

    TEXT = "text"
    REPAIRED = "repaired"
    OCR = "ocr"
    NONE = "none"


class BlockKind(StrEnum):
    """The role of a stretch of page text."""

    HEADING = "heading"
    PARAGRAPH = "paragraph"
    LIST_ITEM = "list_item"
    TABLE_HEADER = "table_header"
    TABLE_ROW = "table_row"
    CODE = "code"
    PAGE_HEADER = "page_header"
    PAGE_FOOTER = "page_footer"

    @property
    def is_furniture(self) -> bool:
        """True for running headers and footers, which are kept but never indexed."""
        return self in (BlockKind.PAGE_HEADER, BlockKind.PAGE_FOOTER)


@dataclass(frozen=True, slots=True)
class Box:
    """A rectangle on a page in points (1/72 inch), origin at the top left corner."""

    x0: float
    y0: float
    x1: float
    y1: float


@dataclass(frozen=True, slots=True)
class Line:
    """One printed line: a slice of `Page.text` and where it stands."""

    char_start: int
    char_end: int
    box: Box | None = None


@dataclass(frozen=True, slots=True)
class Block:
    """A slice of `Page.text` with one role.

    Blocks are in reading order, don't overlap and together hold every word of the page.
    `level` counts from 1 and is set for headings only. `record` maps column name to cell text
    and is set for table rows only; `table_index` numbers the tables of a document from 0, and a
    table that runs over a page break keeps its number.
    """

    kind: BlockKind
    char_start: int
    char_end: int
    level: int = 0
    box: Box | None = None
    record: Mapping[str, str] | None = None
    table_index: int | None = None


@dataclass(frozen=True, slots=True)
class PageQuality:
    """What was measured while a page was read; shares are 0..1 of the page's characters."""

    undecodable_share: float = 0.0
    word_count: int = 0
    table_count: int = 0
    ocr_confidence: float | None = None
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Page:
    """Extracted text of one page; `page_number` counts from 1.

    Formats without pages (HTML, Markdown, text, DOCX) are one page; a spreadsheet has one page
    per sheet.
    """

    page_number: int
    text: str
    source: TextSource = TextSource.TEXT
    label: str | None = None
    width: float | None = None
    height: float | None = None
    blocks: tuple[Block, ...] = ()
    lines: tuple[Line, ...] = ()
    quality: PageQuality = field(default_factory=PageQuality)


@dataclass(frozen=True, slots=True)
class ParsedDocument:
    """What a parser found in one file.

    `warnings` concern the document as a whole. `attachment_count` says how many files are attached to
    it or embedded in it; they are not read with it.
    """

    pages: tuple[Page, ...]
    media_type: str
    title: str | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    attachment_count: int = 0


@dataclass(frozen=True, slots=True)
class Span:
    """A half-open slice of the stored text of one page."""

    page_number: int
    char_start: int
    char_end: int


@dataclass(frozen=True, slots=True)
class Chunk:
    """The piece of a document that is embedded and stored.

    `text` is what stands in the document: the slices `spans`, joined by newlines. `context` is
    the heading path and, for table rows, the table's header: it is embedded and shown to the
    generator before `text`, and never cited. `records` are the table rows in `text`.
    `generation` tells versions of the same document apart, so that old and new chunks can lie
    side by side until the catalog switches.
    """

    id: str
    document_id: str
    generation: int
    index: int
    text: str
    spans: tuple[Span, ...]
    context: str = ""
    heading_path: tuple[str, ...] = ()
    records: tuple[Mapping[str, str], ...] = ()
    language: str = "en"
    token_count: int = 0

    @property
    def indexed_text(self) -> str:
        """The text that is embedded and searched: context, then the chunk itself."""
        return f"{self.context}\n{self.text}" if self.context else self.text

    @property
    def page_start(self) -> int:
        """First page, from 1."""
        return self.spans[0].page_number

    @property
    def page_end(self) -> int:
        """Last page, from 1, inclusive."""
        return self.spans[-1].page_number


@dataclass(frozen=True, slots=True)
class IndexParts:
    """Fingerprints of what evidence depends on; an empty one means that there is no such part."""

    embedder: str
    reranker: str
    chunker: str


@dataclass(frozen=True, slots=True)
class Calibration:
    """The evidence that an answer from a collection needs, and what it was set by.

    Shares are 0..1: `target_false_answers` was asked for, `false_answers` of the unanswerable and
    `false_refusals` of the answerable questions were measured.
    """

    threshold: float
    target_false_answers: float
    false_answers: float
    false_refusals: float
    answerable: int
    unanswerable: int
    parts: IndexParts
    measured_at: datetime


@dataclass(frozen=True, slots=True)
class Scope:
    """Which passages count; each condition that is set must hold.

    `documents` are ids or names, of which one must fit; `tags` are all needed. `language` is `zh` or
    `en`: what its reader can read. Uploads count from `uploaded_from` up to, not including,
    `uploaded_before`.
    """

    documents: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    language: str = ""
    uploaded_from: datetime | None = None
    uploaded_before: datetime | None = None

    @property
    def selects_documents(self) -> bool:
        """True when some documents may be left out as a whole."""
        return bool(self.documents or self.tags or self.uploaded_from or self.uploaded_before)


@dataclass(frozen=True, slots=True)
class Collection:
    """Documents that share one vector space. `fingerprint` is empty until the first index write.

    `generation` counts up with every upload and retry.
    """

    id: str
    name: str
    created_at: datetime
    fingerprint: str = ""
    dimension: int = 0
    document_count: int = 0
    chunk_count: int = 0
    calibration: Calibration | None = None
    generation: int = 0


@dataclass(frozen=True, slots=True)
class Problem:
    """Why something failed or what a reader should know: a stable code, a sentence, a way out."""

    code: str
    message: str
    next_step: str = ""


@dataclass(frozen=True, slots=True)
class Document:
    """One source file as registered in a collection.

    `parent_id` is the document it came attached to; None for what was uploaded by itself, even if it
    is attached to others as well.
    """

    id: str
    collection_id: str
    name: str
    sha256: str
    size_bytes: int
    generation: int
    state: DocumentState
    created_at: datetime
    updated_at: datetime
    media_type: str = ""
    title: str = ""
    stage: str = ""
    pages_done: int = 0
    page_count: int = 0
    chunk_count: int = 0
    attempt: int = 0
    job_id: str = ""
    error: Problem | None = None
    warnings: tuple[Problem, ...] = ()
    finished_at: datetime | None = None
    parent_id: str | None = None
    tags: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """Names this generation of the document in the vector store and the lexical index."""
        return f"{self.id}-g{self.generation}"


@dataclass(frozen=True, slots=True)
class Attempt:
    """One run of a job by one worker.

    `rest_s` is how many seconds its present stage will still take, told at the job's last change by the
    speed measured until then; None before there is a speed.
    """

    number: int
    worker: str
    started_at: datetime
    finished_at: datetime | None = None
    error: Problem | None = None
    rest_s: float | None = None


@dataclass(frozen=True, slots=True)
class Job:
    """The work on one generation of one document."""

    id: str
    collection_id: str
    document_id: str
    generation: int
    state: JobState
    created_at: datetime
    updated_at: datetime
    attempts: tuple[Attempt, ...] = ()
    cancel_requested: bool = False


@dataclass(frozen=True, slots=True)
class Registration:
    """Outcome of an upload. `duplicate` means that the same bytes were already there."""

    document: Document
    job: Job | None
    duplicate: bool


@dataclass(frozen=True, slots=True)
class ScoredId:
    """A chunk id with the score of one index; higher is better."""

    chunk_id: str
    score: float


@dataclass(frozen=True, slots=True)
class Passage:
    """A chunk retrieved for a query.

    `rank` counts from 0. `score` is the fused score, higher is better. `scores` keeps what each
    stage said: `dense` (cosine, -1..1), `lexical` (BM25, ≥ 0), `dense_rank`, `lexical_rank` (from 0),
    `exact` (1.0 when a code of the query stands in the chunk), `fused` (what both amount to),
    `rerank` (if there is a reranker); a stage that did not find the chunk has no entry.
    """

    chunk: Chunk
    document_name: str
    score: float
    rank: int
    scores: Mapping[str, float] = field(default_factory=dict)


class FaultKind(StrEnum):
    """How a fault stands in a document: as a table row, as a section, or only mentioned elsewhere."""

    ROW = "row"
    SECTION = "section"
    MENTION = "mention"


@dataclass(frozen=True, slots=True)
class Fault:
    """A row or section of a document that says what a fault is, why it occurs and what to do.

    `code`, `description`, `cause` and `remedy` are empty where no column or label of that name was
    recognised. `record` maps the columns of a row, or the labels of a section, to their text as it
    stands. `quote` is the slice `char_start:char_end` of the stored text of page `page_number`, `box`
    its place there if the page has one. `score` is 0..1 for a search by symptom, None for a look-up.
    """

    kind: FaultKind
    code: str
    description: str
    cause: str
    remedy: str
    record: Mapping[str, str]
    document_id: str
    document_name: str
    page_number: int
    quote: str
    char_start: int
    char_end: int
    chunk_id: str
    heading_path: tuple[str, ...] = ()
    box: Box | None = None
    score: float | None = None


@dataclass(frozen=True, slots=True)
class Message:
    """One turn of a conversation; `role` is system, user or assistant."""

    role: str
    content: str


@dataclass(frozen=True, slots=True)
class Sampling:
    """How tokens are drawn; `temperature` 0 is greedy."""

    max_tokens: int = 512
    temperature: float = 0.0
    top_p: float = 1.0
    repetition_penalty: float = 1.05
    stop: tuple[str, ...] = ()
    seed: int | None = None


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """What a generator needs for one answer.

    `messages` is the packed prompt; `question`, `passages` and `language` are the same request
    in parts, for a generator that quotes instead of writing. `codes` are the canonical codes in the
    question that name a fault or a part, not a whole machine; None if nobody looked. With `think` a
    model that can may reason before it answers; what it reasons is no part of the text.
    `adapter` names one of its LoRA adapters.
    """

    messages: tuple[Message, ...]
    question: str
    passages: tuple[Passage, ...]
    language: str
    sampling: Sampling = field(default_factory=Sampling)
    codes: tuple[str, ...] | None = None
    think: bool = False
    adapter: str = ""


@dataclass(frozen=True, slots=True)
class GenerationDelta:
    """The next piece of generated text."""

    text: str


@dataclass(frozen=True, slots=True)
class GenerationEnd:
    """Last event of a generation; `finish_reason` is stop or length.

    `looped`: it was cut because the model wrote the same again and again; `finish_reason` is length
    then. `reasoning` is what the model thought before it answered; it is no part of the answer.
    `cached_tokens` of the prompt had been read before.
    """

    finish_reason: str
    prompt_tokens: int
    completion_tokens: int
    looped: bool = False
    reasoning: str = ""
    cached_tokens: int = 0


GenerationEvent = GenerationDelta | GenerationEnd


@dataclass(frozen=True, slots=True)
class Citation:
    """A marker `[number]` in an answer, resolved.

    `quote` is the slice `char_start:char_end` of the stored text of page `page_number`.
    """

    number: int
    document_id: str
    document_name: str
    page_number: int
    quote: str
    char_start: int
    char_end: int
    chunk_id: str
    heading_path: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ConflictingValue:
    """What one of several documents that disagree has in this place; `citation` is a citation's number."""

    value: str
    citation: int


class RefusalReason(StrEnum):
    """Why the service says that the documents don't say."""

    EMPTY_COLLECTION = "empty_collection"
    CODE_UNKNOWN = "code_unknown"
    BELOW_THRESHOLD = "below_threshold"
    NOT_STATED = "not_stated"
    UNSUPPORTED = "unsupported"


@dataclass(frozen=True, slots=True)
class Refusal:
    """A refusal; `nearest` are the best passages found, shown but not used as an answer."""

    reason: RefusalReason
    nearest: tuple[Passage, ...] = ()


@dataclass(frozen=True, slots=True)
class Answer:
    """The reply with its citations, or a refusal.

    `mode` is `generated`, `extractive` or `refused`. `text` holds `[n]` markers that resolve in
    `citations`. `query` is the question as it was searched for: completed
    from earlier turns if it leans on them. `notices` are sentences for the reader (a fallback was used, a sentence was
    dropped). `conflict` holds two values or more where documents disagree on what was asked; the text
    then shows each with its document. `unsupported` are sentences of the model that no passage
    supports: left out of the text, marked in it, or why all of it was refused.
    """

    id: str
    question: str
    text: str
    mode: str
    language: str
    query: str = ""
    citations: tuple[Citation, ...] = ()
    passages: tuple[Passage, ...] = ()
    refusal: Refusal | None = None
    notices: tuple[str, ...] = ()
    conflict: tuple[ConflictingValue, ...] = ()
    unsupported: tuple[str, ...] = ()
    model: str = ""
    finish_reason: str = "stop"
    prompt_tokens: int = 0
    completion_tokens: int = 0

    @property
    def flags(self) -> tuple[str, ...]:
        """What a reader should be wary of: `conflict`, `unsupported`."""
        return tuple(
            name for name, holds in (("conflict", self.conflict), ("unsupported", self.unsupported)) if holds
        )

    @property
    def refused(self) -> bool:
        """True when the documents don't say."""
        return self.refusal is not None


@dataclass(frozen=True, slots=True)
class PassageMark:
    """What identifies a passage later; `sha256` is that of its indexed text."""

    chunk_id: str
    sha256: str
    document_id: str
    document_name: str
    generation: int
    page_number: int
    score: float


@dataclass(frozen=True, slots=True)
class Receipt:
    """What an answer was made from. Its id is the answer's.

    `query` is the question as it was searched for. `retrieved` is what was found, best first, and
    `prompt_chunks` what of it stood in the prompt; without a prompt `prompt_sha256` is empty.
    `index_generation` counts the changes of the collection's documents. `timings_ms` holds `retrieval`
    and `total`, and `first_text` if text was sent.
    """

    id: str
    collection_id: str
    collection: str
    created_at: datetime
    question: str
    query: str
    language: str
    history: tuple[Message, ...]
    system: str
    top_k: int
    preset: str
    think: bool
    sampling: Sampling
    retrieved: tuple[PassageMark, ...]
    prompt_chunks: tuple[str, ...]
    prompt_sha256: str
    evidence: float
    evidence_threshold: float
    index_fingerprint: str
    index_generation: int
    model: str
    model_fingerprint: str
    mode: str
    text: str
    refusal: str | None
    citations: tuple[Citation, ...]
    timings_ms: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class AnswerDelta:
    """The next piece of an answer's text; all pieces joined equal `Answer.text`."""

    text: str


@dataclass(frozen=True, slots=True)
class AnswerFinished:
    """Last event of an answer."""

    answer: Answer


AnswerEvent = AnswerDelta | AnswerFinished


@dataclass(frozen=True, slots=True)
class DependencyStatus:
    """Whether one dependency answers right now; `detail` says what is wrong or which version it is."""

    name: str
    ok: bool
    detail: str = ""
    required: bool = True
