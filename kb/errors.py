"""Every error raised on purpose.

KbError
├── CallerError                    the request is wrong                  -> 4xx, never retried
│   ├── CollectionNotFoundError
│   ├── CollectionExistsError
│   ├── DocumentNotFoundError
│   ├── PageNotFoundError
│   ├── CodeUnknownError
│   ├── NothingInScopeError
│   ├── NotCalibratedError
│   ├── AnswerNotFoundError
│   ├── JobNotFoundError
│   ├── JobStateError
│   ├── InvalidNameError
│   ├── UploadTooLargeError
│   ├── QuestionTooLongError
│   ├── TextTooLongError
│   ├── InvalidApiKeyError
│   ├── AccessDeniedError
│   ├── KeyNotFoundError
│   └── LastAdminKeyError
├── DocumentError                  this file cannot be ingested          -> marked failed, never retried
│   ├── PasswordProtectedError
│   ├── NoTextFoundError
│   ├── GarbledTextError
│   ├── DamagedFileError
│   ├── UnsupportedFormatError
│   ├── EmptyFileError
│   ├── TooManyPagesError
│   ├── ParseTimeoutError
│   └── ParseMemoryError
├── BackendError                   a dependency failed this time         -> 503, the worker retries
│   ├── CatalogUnavailableError
│   ├── VectorStoreUnavailableError
│   ├── LexicalIndexUnavailableError
│   ├── QueueUnavailableError
│   └── GeneratorUnavailableError
├── JobCancelledError              somebody asked the job to stop        -> marked cancelled
├── JobPausedError                 the job lets others go first          -> goes on later
└── ConfigurationError             the installation is wrong             -> refuse to start, or 500
    ├── SettingsError
    ├── ModelMissingError
    ├── ModelCorruptError
    ├── IndexMismatchError
    └── PasswordsUnavailableError

Each has a stable `code`, a message that says what was wrong, and a `next_step`.
"""

from __future__ import annotations

from collections.abc import Sequence

from kb.types import Problem


class KbError(Exception):
    """Root of all errors raised on purpose."""

    code = "internal_error"
    next_step = ""
    suggestions: tuple[str, ...] = ()

    def __init__(self, message: str, *, next_step: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        if next_step is not None:
            self.next_step = next_step

    def to_problem(self) -> Problem:
        """Return the error as a value that can be stored and shown."""
        return Problem(code=self.code, message=self.message, next_step=self.next_step)


class CallerError(KbError):
    """The request is wrong; repeating it gives the same result."""

    code = "invalid_request"


class CollectionNotFoundError(CallerError):
    """No collection has this name."""

    code = "collection_not_found"

    def __init__(self, name: str) -> None:
        super().__init__(
            f"no collection is named {name!r}",
            next_step="List the collections with `kb collections list`, or create it.",
        )
        self.name = name


class NotCalibratedError(CallerError):
    """The collection has no threshold of its own."""

    code = "not_calibrated"

    def __init__(self, collection: str) -> None:
        super().__init__(
            f"{collection!r} has no threshold of its own; that of the settings holds",
            next_step="Set one with `kb calibrate`.",
        )
        self.collection = collection


class NothingInScopeError(CallerError):
    """No document of the collection fits the filters of a search."""

    code = "nothing_in_scope"

    def __init__(self, collection: str) -> None:
        super().__init__(
            f"no searchable document of {collection!r} fits the filters",
            next_step="Check names, tags and dates against `kb documents list`.",
        )
        self.collection = collection


class AnswerNotFoundError(CallerError):
    """No receipt of an answer has this id."""

    code = "answer_not_found"

    def __init__(self, answer_id: str) -> None:
        super().__init__(
            f"no receipt is kept of an answer {answer_id!r}",
            next_step="Check the id. Receipts are deleted after KB_RECEIPT_DAYS, and none is kept if "
            "KB_RECEIPTS is off.",
        )
        self.answer_id = answer_id


class CollectionExistsError(CallerError):
    """A collection of this name is already there."""

    code = "collection_exists"

    def __init__(self, name: str) -> None:
        super().__init__(f"a collection named {name!r} already exists")
        self.name = name


class DocumentNotFoundError(CallerError):
    """No document has this id in this collection."""

    code = "document_not_found"

    def __init__(self, document_id: str) -> None:
        super().__init__(
            f"no document has the id {document_id!r}",
            next_step="List the documents with `kb documents list`.",
        )
        self.document_id = document_id


class PageNotFoundError(CallerError):
    """The document has no such page."""

    code = "page_not_found"

    def __init__(self, document_id: str, page_number: int) -> None:
        super().__init__(f"document {document_id!r} has no page {page_number}")
        self.document_id = document_id
        self.page_number = page_number


class CodeUnknownError(CallerError):
    """No document of the collection has this code."""

    code = "code_unknown"

    def __init__(self, fault_code: str, *, collection: str, near: Sequence[str] = ()) -> None:
        super().__init__(
            f"no document in the collection {collection!r} has the code {fault_code!r}",
            next_step=f"Check the code. Other codes that exist: {', '.join(near)}."
            if near
            else "Check the code, or ingest the document that lists it.",
        )
        self.fault_code = fault_code
        self.suggestions = tuple(near)


class JobNotFoundError(CallerError):
    """No job has this id."""

    code = "job_not_found"

    def __init__(self, job_id: str) -> None:
        super().__init__(f"no job has the id {job_id!r}", next_step="List the jobs with `kb jobs list`.")
        self.job_id = job_id


class JobStateError(CallerError):
    """The job is not in a state that allows what was asked."""

    code = "job_state_conflict"


class InvalidNameError(CallerError):
    """A collection or document name cannot be used."""

    code = "invalid_name"


class UploadTooLargeError(CallerError):
    """The upload exceeds the size limit."""

    code = "too_large"

    def __init__(self, name: str, *, limit_bytes: int) -> None:
        super().__init__(
            f"{name!r} is larger than the limit of {limit_bytes} bytes",
            next_step="Split the file, or raise KB_MAX_UPLOAD_BYTES.",
        )
        self.limit_bytes = limit_bytes


class QuestionTooLongError(CallerError):
    """The question alone does not fit the generator's context."""

    code = "context_length_exceeded"

    def __init__(self, *, tokens: int, limit_tokens: int) -> None:
        super().__init__(
            f"the question needs {tokens} tokens, the limit is {limit_tokens}",
            next_step="Shorten the question.",
        )
        self.tokens = tokens
        self.limit_tokens = limit_tokens


class TextTooLongError(CallerError):
    """A text to embed is longer than the embedder reads."""

    code = "context_length_exceeded"

    def __init__(self, position: int, *, tokens: int, limit_tokens: int) -> None:
        super().__init__(
            f"text {position} has {tokens} tokens, the embedder reads {limit_tokens}",
            next_step="Cut it into shorter texts.",
        )


class InvalidApiKeyError(CallerError):
    """The request carries no key, or a wrong one."""

    code = "invalid_api_key"
    next_step = "Send the key as `Authorization: Bearer KEY` or `X-API-Key: KEY`."


class AccessDeniedError(CallerError):
    """The key is valid, but does not open this."""

    code = "access_denied"


class KeyNotFoundError(CallerError):
    """No API key has this id."""

    code = "key_not_found"

    def __init__(self, key_id: str) -> None:
        super().__init__(f"no key has the id {key_id!r}", next_step="List the keys with `kb keys list`.")
        self.key_id = key_id


class LastAdminKeyError(CallerError):
    """Without this administrator's key nobody could manage keys."""

    code = "last_admin_key"


class DocumentError(KbError):
    """This file cannot be ingested; trying again gives the same result."""

    code = "document_error"


class PasswordProtectedError(DocumentError):
    """The file is encrypted and no working password was given."""

    code = "password_protected"
    next_step = "Upload it again with its password, or save a copy without one."


class NoTextFoundError(DocumentError):
    """Nothing readable was found on any page."""

    code = "no_text_found"
    next_step = "Check that the file shows text; scan it again at 300 dpi if it is a picture."


class GarbledTextError(DocumentError):
    """The text layer is undecodable and reading the pictures did not help."""

    code = "garbled_text"
    next_step = "Export the file again with embedded fonts, or print it to PDF and scan it."


class DamagedFileError(DocumentError):
    """The file is broken or cut off."""

    code = "damaged_file"
    next_step = "Open it in its own program, save it again and upload that copy."


class UnsupportedFormatError(DocumentError):
    """No parser reads this format."""

    code = "unsupported_format"
    next_step = "Save it as PDF, DOCX, XLSX, PPTX, HTML, Markdown, CSV or plain text."


class EmptyFileError(DocumentError):
    """The file has no bytes or no content."""

    code = "empty_file"
    next_step = "Check the file and upload it again."


class TooManyPagesError(DocumentError):
    """The document exceeds the page or output limit."""

    code = "too_large"
    next_step = "Split the document, or raise KB_MAX_PAGES."


class ParseTimeoutError(DocumentError):
    """Parsing did not end within its time limit."""

    code = "timeout"
    next_step = "Split the document, or raise KB_PARSE_TIMEOUT_S."


class ParseMemoryError(DocumentError):
    """Parsing needed more memory than its limit."""

    code = "memory_limit"
    next_step = "Split the document, or raise KB_PARSE_MEMORY_BYTES."


class BackendError(KbError):
    """A dependency failed this time; the same call may succeed later."""

    code = "backend_unavailable"
    next_step = "Try again in a minute; `kb status` names what is down."


class CatalogUnavailableError(BackendError):
    """The catalog's database does not answer."""

    code = "catalog_unavailable"


class VectorStoreUnavailableError(BackendError):
    """The vector store does not answer."""

    code = "vector_store_unavailable"


class LexicalIndexUnavailableError(BackendError):
    """The lexical index cannot be read or written."""

    code = "lexical_index_unavailable"


class QueueUnavailableError(BackendError):
    """The job queue does not answer."""

    code = "queue_unavailable"


class GeneratorUnavailableError(BackendError):
    """The generator's runtime does not answer."""

    code = "runtime_unavailable"


class JobCancelledError(KbError):
    """Somebody asked this job to stop."""

    code = "cancelled"


class JobPausedError(KbError):
    """The job lets others go first; what is done so far is kept."""

    code = "paused"


class ConfigurationError(KbError):
    """The installation is wrong; somebody has to change it."""

    code = "configuration_error"


class SettingsError(ConfigurationError):
    """A setting is unknown or has a wrong value."""

    code = "settings_error"


class ModelMissingError(ConfigurationError):
    """A model folder is absent or incomplete."""

    code = "model_missing"
    next_step = "Run `kb models pull`, or point the setting at a model folder."


class ModelCorruptError(ConfigurationError):
    """A model file does not have the expected hash or content."""

    code = "model_corrupt"
    next_step = "Delete the file and run `kb models pull` again."


class IndexMismatchError(ConfigurationError):
    """The collection was indexed with another embedder."""

    code = "index_mismatch"

    def __init__(self, collection: str, *, expected: str, actual: str) -> None:
        super().__init__(
            f"collection {collection!r} was indexed with {expected!r}, the embedder is {actual!r}",
            next_step="Use the former embedder, or create a new collection and ingest again.",
        )
        self.expected = expected
        self.actual = actual


class PasswordsUnavailableError(ConfigurationError):
    """There is no memory in which a password can wait for the worker without touching a disk."""

    code = "passwords_unavailable"
    next_step = (
        "Set KB_SECRETS_DIR to a private folder on a tmpfs that API and workers share, "
        "or upload a copy without a password."
    )
