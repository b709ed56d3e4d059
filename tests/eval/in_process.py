"""Real parser, chunker, embedder, catalog and lexical index in this process: a library without servers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ingest.attachments import AttachmentIntake
from ingest.chunking import Chunker
from ingest.pipeline import IngestPipeline
from ingest.reader import SubprocessReader
from kb.adapters.disk_files import DiskFiles
from kb.adapters.extractive_generator import ExtractiveGenerator
from kb.adapters.fts_lexical import FtsLexicalIndex
from kb.adapters.memory_passwords import MemoryPasswords
from kb.adapters.memory_queue import MemoryIngestQueue
from kb.adapters.memory_store import MemoryStore
from kb.adapters.plain_prompt_counter import PlainPromptCounter
from kb.adapters.sql_catalog import SqlCatalog
from kb.adapters.st_embedder import SentenceTransformersEmbedder
from kb.answering import Answerer
from kb.errors import JobPausedError
from kb.library import Library
from kb.ports import AttachmentLimits, Embedder, Generator, PromptCounter, VectorStore
from kb.retrieval import Retriever
from kb.settings import Settings
from kb.types import Citation, Collection


def get_default(name: str) -> Any:
    """Return a setting's default."""
    return Settings.model_fields[name].default


def load_embedder(models: Path) -> SentenceTransformersEmbedder:
    """Return the starter embedder."""
    return SentenceTransformersEmbedder(path=models / "embedder", device="cpu", batch_size=16)


@dataclass(frozen=True, slots=True)
class Workbench:
    """Parts of a knowledge base over one folder, with the settings' defaults."""

    catalog: SqlCatalog
    lexical: FtsLexicalIndex
    vectors: VectorStore
    embedder: Embedder
    retriever: Retriever
    library: Library
    queue: MemoryIngestQueue
    pipeline: IngestPipeline

    def ingest(self, paths: Sequence[Path], *, collection: str) -> Collection:
        """Upload the files and work on their jobs; fails where one does."""
        if collection not in [known.name for known in self.catalog.list_collections()]:
            self.library.create_collection(collection)
        for path in paths:
            with path.open("rb") as stream:
                self.library.upload(collection, name=path.name, stream=stream)
        while (job_id := self.queue.take()) is not None:
            try:
                self.pipeline.run(job_id, worker="test")
            except JobPausedError:
                self.queue.submit(job_id)
                continue
            job = self.catalog.get_job(job_id)
            assert job.state == "succeeded", job
        return self.catalog.get_collection(collection)

    def make_answerer(
        self,
        generator: Generator | None = None,
        *,
        counter: PromptCounter | None = None,
        context_tokens: int = 8192,
    ) -> Answerer:
        """Return an answerer; without a generator it quotes."""
        return Answerer(
            retriever=self.retriever,
            generator=generator or ExtractiveGenerator(),
            fallback=ExtractiveGenerator() if generator else None,
            counter=counter or PlainPromptCounter(),
            context_tokens=context_tokens,
            answer_tokens=get_default("answer_tokens"),
            top_k=get_default("top_k"),
        )

    def is_exact(self, citation: Citation) -> bool:
        """Return whether the quote is the very slice of its page."""
        number = citation.page_number
        (page,) = self.catalog.get_pages(citation.document_id, first=number, last=number)
        return page.text[citation.char_start : citation.char_end] == citation.quote


def open_workbench(folder: Path, *, embedder: Embedder, vectors: VectorStore | None = None) -> Workbench:
    """Return the parts over `folder`; vectors live in memory unless a store is given."""
    catalog = SqlCatalog(f"sqlite:///{folder / 'catalog.sqlite'}")
    catalog.migrate()
    files = DiskFiles(folder / "files")
    lexical = FtsLexicalIndex(folder / "lexical.sqlite")
    vectors = vectors or MemoryStore()
    queue = MemoryIngestQueue(live_workers=1)
    passwords = MemoryPasswords()
    reader = SubprocessReader(
        timeout_s=300,
        memory_bytes=get_default("parse_memory_bytes"),
        max_pages=get_default("max_pages"),
        ocr=True,
    )
    return Workbench(
        catalog=catalog,
        lexical=lexical,
        vectors=vectors,
        embedder=embedder,
        retriever=Retriever(
            embedder=embedder,
            vectors=vectors,
            lexical=lexical,
            catalog=catalog,
            candidates=get_default("retrieval_candidates"),
            evidence_threshold=get_default("evidence_threshold"),
        ),
        library=Library(
            catalog=catalog,
            files=files,
            queue=queue,
            vectors=vectors,
            lexical=lexical,
            passwords=passwords,
            max_upload_bytes=get_default("max_upload_bytes"),
            clock=_now,
        ),
        queue=queue,
        pipeline=IngestPipeline(
            catalog=catalog,
            files=files,
            reader=reader,
            embedder=embedder,
            vectors=vectors,
            lexical=lexical,
            chunker=Chunker(
                count_tokens=embedder.count_tokens,
                max_tokens=min(get_default("chunk_tokens"), embedder.max_tokens),
                overlap_tokens=get_default("chunk_overlap_tokens"),
            ),
            intake=AttachmentIntake(
                catalog=catalog,
                files=files,
                reader=reader,
                limits=AttachmentLimits(
                    get_default("max_attachments"),
                    get_default("max_attachment_bytes"),
                    get_default("max_attachments_bytes"),
                ),
                max_depth=get_default("attachment_depth"),
            ),
            queue=queue,
            passwords=passwords,
            lease_s=60,
            max_attempts=1,
            batch_size=16,
            clock=_now,
        ),
    )


def _now() -> datetime:
    return datetime.now(UTC)
