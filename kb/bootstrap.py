"""The only place that picks concrete classes: settings in, a working knowledge base out."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from kb.adapters.chroma_store import ChromaStore
from kb.adapters.disk_files import DiskFiles
from kb.adapters.fts_lexical import FtsLexicalIndex
from kb.adapters.sql_access import SqlAccessStore
from kb.adapters.sql_catalog import SqlCatalog
from kb.adapters.tmpfs_passwords import TmpfsPasswords
from kb.answering import Answerer
from kb.errors import ConfigurationError, ModelMissingError
from kb.explaining import Explainer
from kb.faults import FaultFinder
from kb.keyring import KeyRing
from kb.knowledge import KnowledgeBase
from kb.library import Library
from kb.measured import MeasuredGenerator, MeasuredRetriever
from kb.metrics import Metrics
from kb.model_files import fingerprint_file
from kb.ports import AttachmentLimits, Embedder, Generator, PromptCounter, Reranker
from kb.receipts import ReceiptBook
from kb.retrieval import Retriever
from kb.types import IndexParts

if TYPE_CHECKING:
    from ingest.pipeline import IngestPipeline
    from kb.settings import Settings

LOCAL_CONTEXT_TOKENS = 1024
HTTP_CONTEXT_TOKENS = 8192
THINKING_OFF: Mapping[str, object] = {"enable_thinking": False}


def now_utc() -> datetime:
    """Return the current time, aware, in UTC."""
    return datetime.now(UTC)


def build(
    settings: Settings, *, embedder: Embedder | None = None, generator: Generator | None = None
) -> KnowledgeBase:
    """Wire the knowledge base for a process that answers; a part given here replaces the configured one.

    Migrates the catalog. Raises `ConfigurationError` when a setting or a model is missing.
    """
    from kb.adapters.celery_queue import CeleryIngestQueue
    from kb.adapters.extractive_generator import ExtractiveGenerator

    settings.data_dir.mkdir(parents=True, exist_ok=True)
    catalog = SqlCatalog(settings.resolved_database_url)
    catalog.migrate()
    access = SqlAccessStore(settings.resolved_database_url)
    files = _build_files(settings)
    vectors = ChromaStore(_require(settings.chroma_url, "KB_CHROMA_URL"))
    lexical = FtsLexicalIndex(settings.data_dir / "lexical.sqlite")
    queue = CeleryIngestQueue(redis_url=_require(settings.redis_url, "KB_REDIS_URL"))
    embedder = embedder or build_embedder(settings)
    reranker = build_reranker(settings)
    get_index_parts = partial(_describe_parts, settings, embedder, reranker)
    metrics = Metrics()
    generator = MeasuredGenerator(generator or build_generator(settings), metrics=metrics)
    retriever = MeasuredRetriever(
        Retriever(
            embedder=embedder,
            vectors=vectors,
            lexical=lexical,
            catalog=catalog,
            candidates=settings.retrieval_candidates,
            reranker=reranker,
            evidence_threshold=settings.evidence_threshold,
            get_parts=get_index_parts,
        ),
        metrics=metrics,
    )
    receipts = ReceiptBook(catalog, enabled=settings.receipts, keep_days=settings.receipt_days, clock=now_utc)
    answerer = Answerer(
        retriever=retriever,
        generator=generator,
        fallback=None if generator.mode == "extractive" else ExtractiveGenerator(),
        counter=build_prompt_counter(settings, mode=generator.mode),
        context_tokens=_context_tokens(settings),
        answer_tokens=settings.answer_tokens,
        top_k=settings.top_k,
        on_unsupported=settings.on_unsupported,
        receipts=receipts if settings.receipts else None,
        fingerprint_model=build_model_fingerprint(settings),
    )
    faults = FaultFinder(
        retriever=retriever,
        embedder=embedder,
        lexical=lexical,
        catalog=catalog,
    )
    library = Library(
        catalog=catalog,
        files=files,
        queue=queue,
        vectors=vectors,
        lexical=lexical,
        passwords=TmpfsPasswords(settings.resolved_secrets_dir),
        max_upload_bytes=settings.max_upload_bytes,
        clock=now_utc,
    )
    return KnowledgeBase(
        catalog=catalog,
        files=files,
        vectors=vectors,
        lexical=lexical,
        queue=queue,
        embedder=embedder,
        generator=generator,
        retriever=retriever,
        answerer=answerer,
        faults=faults,
        explainer=Explainer(retriever=retriever, catalog=catalog, list_read=answerer.list_read),
        library=library,
        keys=KeyRing(access, clock=now_utc, static_key=settings.api_key),
        audit=access,
        clock=now_utc,
        get_index_parts=get_index_parts,
        receipts=receipts,
        metrics=metrics,
    )


def build_pipeline(settings: Settings, *, embedder: Embedder | None = None) -> IngestPipeline:
    """Wire the ingest pipeline for a worker process; call it after the fork."""
    from ingest.attachments import AttachmentIntake
    from ingest.chunking import Chunker
    from ingest.page_cache import PageCache
    from ingest.pipeline import IngestPipeline
    from ingest.reader import SubprocessReader
    from ingest.short_text import ShortTextReader
    from kb.adapters.celery_queue import CeleryIngestQueue

    settings.data_dir.mkdir(parents=True, exist_ok=True)
    catalog = SqlCatalog(settings.resolved_database_url)
    catalog.migrate()
    embedder = embedder or build_embedder(settings)
    files = _build_files(settings)
    reader = SubprocessReader(
        timeout_s=settings.parse_timeout_s,
        memory_bytes=settings.parse_memory_bytes,
        max_pages=settings.max_pages,
        ocr=settings.ocr,
        page_timeout_s=settings.page_timeout_s,
        max_text_bytes=settings.max_text_bytes,
        cache=PageCache(_parsed_dir(settings), max_bytes=settings.parse_cache_bytes),
    )
    return IngestPipeline(
        catalog=catalog,
        files=files,
        reader=ShortTextReader(reader),
        embedder=embedder,
        vectors=ChromaStore(_require(settings.chroma_url, "KB_CHROMA_URL")),
        lexical=FtsLexicalIndex(settings.data_dir / "lexical.sqlite"),
        chunker=Chunker(
            count_tokens=embedder.count_tokens,
            max_tokens=min(settings.chunk_tokens, embedder.max_tokens),
            overlap_tokens=settings.chunk_overlap_tokens,
        ),
        intake=AttachmentIntake(
            catalog=catalog,
            files=files,
            reader=reader,
            limits=AttachmentLimits(
                settings.max_attachments, settings.max_attachment_bytes, settings.max_attachments_bytes
            ),
            max_depth=settings.attachment_depth,
        ),
        queue=CeleryIngestQueue(redis_url=_require(settings.redis_url, "KB_REDIS_URL")),
        passwords=TmpfsPasswords(settings.resolved_secrets_dir),
        lease_s=settings.job_lease_s,
        max_attempts=settings.job_max_attempts,
        batch_size=settings.embedder_batch_size,
        clock=now_utc,
    )


def _build_files(settings: Settings) -> DiskFiles:
    return DiskFiles(settings.data_dir / "files", derived=_parsed_dir(settings))


def _parsed_dir(settings: Settings) -> Path:
    return settings.data_dir / "parsed"


def build_embedder(settings: Settings) -> Embedder:
    """Return the configured embedder; its weights load at first use."""
    from kb.adapters.st_embedder import SentenceTransformersEmbedder

    path = settings.embedder_path or settings.resolved_models_dir / "embedder"
    if not path.is_dir():
        raise ModelMissingError(f"the embedder's folder {str(path)!r} does not exist")
    return SentenceTransformersEmbedder(
        path=path, device=settings.embedder_device, batch_size=settings.embedder_batch_size
    )


def build_reranker(settings: Settings) -> Reranker | None:
    """Return the configured reranker, None if there is none; its weights load at first use."""
    if settings.reranker is None:
        return None
    from kb.adapters.st_reranker import SentenceTransformersReranker

    if not settings.reranker.is_dir():
        raise ModelMissingError(f"the reranker's folder {str(settings.reranker)!r} does not exist")
    return SentenceTransformersReranker(path=settings.reranker, device=settings.embedder_device)


def _describe_parts(settings: Settings, embedder: Embedder, reranker: Reranker | None) -> IndexParts:
    from ingest.chunking import CHUNKER_VERSION

    sizes = f"{min(settings.chunk_tokens, embedder.max_tokens)}-{settings.chunk_overlap_tokens}"
    return IndexParts(
        embedder=embedder.fingerprint,
        reranker="" if reranker is None else reranker.fingerprint,
        chunker=f"{CHUNKER_VERSION}-{sizes}",
    )


def resolve_generator(settings: Settings) -> str:
    """Return `http`, `local` or `extractive`: what the setting `generator` amounts to here."""
    if settings.generator != "auto":
        return settings.generator
    if settings.generator_url:
        return "http"
    return "local" if (_local_generator_path(settings) / "model.bin").is_file() else "extractive"


def build_generator(settings: Settings) -> Generator:
    """Return the configured generator; raises `ConfigurationError` when it cannot work."""
    match resolve_generator(settings):
        case "http":
            from kb.adapters.openai_generator import OpenAiGenerator

            return OpenAiGenerator(
                base_url=_require(settings.generator_url, "KB_GENERATOR_URL"),
                model=settings.generator_model,
                api_key=settings.generator_api_key,
                timeout_s=settings.generator_timeout_s,
            )
        case "local":
            from kb.adapters.ct2_generator import Ct2Generator

            path = _local_generator_path(settings)
            if not (path / "model.bin").is_file():
                raise ModelMissingError(f"the generator's folder {str(path)!r} holds no model.bin")
            return Ct2Generator(
                path=path,
                tokenizer_path=settings.generator_tokenizer_path,
                threads=settings.generator_threads or os.cpu_count() or 1,
                context_tokens=settings.context_tokens or LOCAL_CONTEXT_TOKENS,
            )
        case _:
            from kb.adapters.extractive_generator import ExtractiveGenerator

            return ExtractiveGenerator()


def build_prompt_counter(settings: Settings, *, mode: str) -> PromptCounter:
    """Return the counter that belongs to the generator: its own tokenizer, or an estimate for quotes."""
    if mode == "extractive":
        from kb.adapters.plain_prompt_counter import PlainPromptCounter

        return PlainPromptCounter()
    from kb.adapters.hf_prompt_counter import HfPromptCounter

    path = settings.generator_tokenizer_path or _local_generator_path(settings)
    if not (path / "tokenizer.json").is_file():
        raise ModelMissingError(
            f"{str(path)!r} holds no tokenizer.json, so prompts can't be counted",
            next_step="Set KB_GENERATOR_TOKENIZER_PATH to the folder of the model that the runtime serves.",
        )
    return HfPromptCounter(path=path, template_options=THINKING_OFF)


def build_model_fingerprint(settings: Settings) -> Callable[[], str]:
    """Return what names the files of the generator's model; a runtime elsewhere tells only its name."""
    path = _local_generator_path(settings) / "model.bin"
    if resolve_generator(settings) == "local" and path.is_file():
        return partial(fingerprint_file, path)
    return partial(str, settings.generator_model or settings.generator_url or "")


def _local_generator_path(settings: Settings) -> Path:
    return settings.generator_path or settings.resolved_models_dir / "generator"


def _context_tokens(settings: Settings) -> int:
    if settings.context_tokens:
        return settings.context_tokens
    return LOCAL_CONTEXT_TOKENS if resolve_generator(settings) == "local" else HTTP_CONTEXT_TOKENS


def _require(value: str | None, name: str) -> str:
    if value is None:
        raise ConfigurationError(
            f"{name} is not set",
            next_step="Start everything with `kb up`, or set it for a process that you start by itself.",
        )
    return value
