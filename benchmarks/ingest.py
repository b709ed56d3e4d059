"""How fast documents are ingested, stage by stage: `python -m benchmarks.ingest [FILE …]`.

Runs the real pipeline on the files, and beside it, in the same run and on the same pages, the bare parser
and the bare embedder. Without files it draws a text document and a scan, and measures each by itself.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

import psutil

from benchmarks.drawing import draw_pdf
from ingest.attachments import AttachmentIntake
from ingest.chunking import Chunker
from ingest.formats import detect_media_type
from ingest.page_cache import PageCache
from ingest.parse_child import build_parser
from ingest.pipeline import IngestPipeline
from ingest.reader import SubprocessReader
from kb.adapters.chroma_store import ChromaStore
from kb.adapters.disk_files import DiskFiles
from kb.adapters.fts_lexical import FtsLexicalIndex
from kb.adapters.memory_passwords import MemoryPasswords
from kb.adapters.memory_queue import MemoryIngestQueue
from kb.adapters.memory_store import MemoryStore
from kb.adapters.sql_catalog import SqlCatalog
from kb.bootstrap import build_embedder, now_utc
from kb.offline import go_offline
from kb.ports import (
    AttachmentLimits,
    Embedder,
    FoundAttachments,
    LexicalEntry,
    LexicalIndex,
    ReadRequest,
    VectorRecord,
    Vectors,
    VectorStore,
)
from kb.settings import Settings, load_settings
from kb.types import Chunk, DocumentState, ParsedDocument, TextSource

AnyChunker = TypeVar("AnyChunker", bound=Chunker)


class Stopwatch:
    """Adds up seconds, and seconds of CPU, by stage; each stage is timed in one thread at a time."""

    def __init__(self) -> None:
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self.cpu_seconds: defaultdict[str, float] = defaultdict(float)

    @contextmanager
    def time(self, stage: str | Callable[[], str]) -> Iterator[None]:
        """Add the time inside the block to `stage`, which may be known at its end only."""
        start_s, start_cpu_s = time.perf_counter(), cpu_seconds()
        try:
            yield
        finally:
            name = stage if isinstance(stage, str) else stage()
            self.seconds[name] += time.perf_counter() - start_s
            self.cpu_seconds[name] += cpu_seconds() - start_cpu_s


def cpu_seconds() -> float:
    """Return the CPU time of this process, all its threads, and of its children that have ended."""
    return sum(os.times()[:4])


class TimedReader:
    """A reader that notes what its documents are made of."""

    def __init__(self, reader: SubprocessReader, watch: Stopwatch) -> None:
        self._reader = reader
        self._watch = watch
        self.pages: defaultdict[str, int] = defaultdict(int)

    def read(self, request: ReadRequest) -> ParsedDocument:
        """Read and time; a document is OCR's if most of its pages are."""
        with self._watch.time(lambda: stage_of(parsed)):
            parsed = self._reader.read(request)
        self.pages[stage_of(parsed)] += len(parsed.pages)
        return parsed

    def read_attachments(
        self, request: ReadRequest, *, limits: AttachmentLimits, folder: Path
    ) -> FoundAttachments:
        """Take attachments out, untimed."""
        return self._reader.read_attachments(request, limits=limits, folder=folder)


class TimedChunker(Chunker):
    """A chunker that is timed."""

    watch: Stopwatch

    def chunk(self, parsed: ParsedDocument, *, document_id: str, generation: int) -> list[Chunk]:
        """Cut and time."""
        with self.watch.time("chunk"):
            return super().chunk(parsed, document_id=document_id, generation=generation)


class TimedWrites:
    """Both indexes, of which only `upsert` is timed."""

    def __init__(self, part: Any, watch: Stopwatch) -> None:
        self._part = part
        self._watch = watch

    def upsert(self, collection_id: str, rows: Sequence[VectorRecord] | Sequence[LexicalEntry]) -> None:
        """Write and time."""
        with self._watch.time("write"):
            self._part.upsert(collection_id, rows)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._part, name)


class TimedEmbedder:
    """An embedder of which only `embed_passages` is timed."""

    def __init__(self, embedder: Any, watch: Stopwatch) -> None:
        self._embedder = embedder
        self._watch = watch

    def embed_passages(self, texts: Sequence[str]) -> Vectors:
        """Embed and time."""
        with self._watch.time("embed"):
            rows: Vectors = self._embedder.embed_passages(texts)
        return rows

    def __getattr__(self, name: str) -> Any:
        return getattr(self._embedder, name)


def _ignore(done: int, total: int) -> None:
    """Hear of progress."""


def list_texts(documents: Sequence[ParsedDocument], embedder: Embedder, settings: Settings) -> list[str]:
    """Return the texts that the pipeline embeds of these documents."""
    chunker = build_chunker(Chunker, embedder, settings)
    return [
        chunk.indexed_text
        for parsed in documents
        for chunk in chunker.chunk(parsed, document_id="doc", generation=1)
    ]


def build_chunker(kind: type[AnyChunker], embedder: Embedder, settings: Settings) -> AnyChunker:
    """Return a chunker set as a worker's is."""
    return kind(
        count_tokens=embedder.count_tokens,
        max_tokens=min(settings.chunk_tokens, embedder.max_tokens),
        overlap_tokens=settings.chunk_overlap_tokens,
    )


@contextmanager
def watch_memory() -> Iterator[list[int]]:
    """Yield a list whose one entry grows to the most bytes that this process and its children had at once."""
    peak_bytes, ended = [0], threading.Event()
    own = psutil.Process()

    def look() -> None:
        while not ended.wait(0.2):
            total = 0
            for process in (own, *own.children(recursive=True)):
                with suppress(psutil.NoSuchProcess):
                    total += process.memory_info().rss
            peak_bytes[0] = max(peak_bytes[0], total)

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield peak_bytes
    finally:
        ended.set()
        thread.join()


def stage_of(parsed: ParsedDocument) -> str:
    """Return `ocr` if most pages were read by OCR, else `parse`."""
    return "ocr" if 2 * sum(p.source is TextSource.OCR for p in parsed.pages) > len(parsed.pages) else "parse"


def measure_bare(
    files: Sequence[Path], watch: Stopwatch, *, embedder: Embedder, settings: Settings
) -> list[str]:
    """Time the parsers in this process and the embedder, both without a pipeline; return what was embedded."""
    documents: list[ParsedDocument] = []
    for path in files:
        parser = build_parser(
            detect_media_type(path, path.name), max_pages=settings.max_pages, ocr=settings.ocr
        )
        with watch.time(lambda: f"bare {stage_of(parsed)}"):  # noqa: B023 - called at the end of the block
            parsed = parser.parse(path, name=path.name, password=None, progress=_ignore)
        documents.append(parsed)
    texts = list_texts(documents, embedder, settings)
    with watch.time("bare embedder"):
        embedder.embed_passages(texts)
    return texts


def measure_pipeline(
    files: Sequence[Path],
    watch: Stopwatch,
    *,
    embedder: Embedder,
    settings: Settings,
    folder: Path,
    chroma_url: str | None,
) -> tuple[dict[str, int], list[str]]:
    """Time the pipeline, whose folder must be empty; return pages by stage, and the names of what failed."""
    catalog = SqlCatalog(f"sqlite:///{folder / 'catalog.sqlite'}")
    catalog.migrate()
    store = DiskFiles(folder / "files")
    reader = TimedReader(
        SubprocessReader(
            timeout_s=settings.parse_timeout_s,
            memory_bytes=settings.parse_memory_bytes,
            max_pages=settings.max_pages,
            ocr=settings.ocr,
            cache=PageCache(folder / "parsed", max_bytes=settings.parse_cache_bytes),
        ),
        watch,
    )
    chunker = build_chunker(TimedChunker, embedder, settings)
    chunker.watch = watch
    vectors: VectorStore = ChromaStore(chroma_url) if chroma_url else MemoryStore()
    lexical: LexicalIndex = FtsLexicalIndex(folder / "lexical.sqlite")
    limits = AttachmentLimits(0, 0, 0)
    pipeline = IngestPipeline(
        catalog=catalog,
        files=store,
        reader=reader,
        embedder=TimedEmbedder(embedder, watch),
        vectors=TimedWrites(vectors, watch),
        lexical=TimedWrites(lexical, watch),
        chunker=chunker,
        intake=AttachmentIntake(catalog=catalog, files=store, reader=reader, limits=limits, max_depth=0),
        queue=MemoryIngestQueue(),
        passwords=MemoryPasswords(),
        lease_s=settings.job_lease_s,
        max_attempts=1,
        batch_size=settings.embedder_batch_size,
        clock=now_utc,
    )
    with closing(catalog):
        collection = catalog.create_collection("benchmark", now=now_utc())
        with watch.time("pipeline"):
            for path in files:
                with path.open("rb") as stream:
                    stored = store.save(stream, max_bytes=settings.max_upload_bytes)
                job = catalog.register_document(
                    collection.id, name=path.name, stored=stored, media_type="", now=now_utc()
                ).job
                if job is not None:
                    pipeline.run(job.id, worker="benchmark")
        failed = catalog.list_documents(collection.id, state=DocumentState.FAILED)
    return reader.pages, [document.name for document in failed]


def measure(
    files: Sequence[Path], *, embedder: Embedder, settings: Settings, rounds: int, chroma_url: str | None
) -> dict[str, Any]:
    """Ingest the files; return the fastest of each stage's rounds."""
    watches: list[Stopwatch] = []
    with watch_memory() as peak_bytes:
        for _ in range(rounds):
            watch = Stopwatch()
            texts = measure_bare(files, watch, embedder=embedder, settings=settings)
            with tempfile.TemporaryDirectory(prefix="kb-benchmark-") as folder:
                pages_of, failed = measure_pipeline(
                    files,
                    watch,
                    embedder=embedder,
                    settings=settings,
                    folder=Path(folder),
                    chroma_url=chroma_url,
                )
            watches.append(watch)
    pages = sum(pages_of.values())
    stages: dict[str, dict[str, float]] = {}
    for stage in sorted(watches[0].seconds):
        seconds = min(watch.seconds[stage] for watch in watches)
        count = pages_of.get(stage.removeprefix("bare "), pages)
        stages[stage] = {
            "pages": count,
            "seconds": seconds,
            "cpu_seconds": min(watch.cpu_seconds[stage] for watch in watches),
            "pages_per_s": count / seconds,
        }
    bare = {name: row for name, row in stages.items() if name.startswith("bare ")}
    read_s = sum(row["seconds"] for name, row in bare.items() if name != "bare embedder")
    slower_s = max(read_s, bare["bare embedder"]["seconds"])
    return {
        "files": [path.name for path in files],
        "failed": failed,
        "pages": pages,
        "chunks": len(texts),
        "stages": stages,
        "share_of_slower_stage": slower_s / stages["pipeline"]["seconds"],
        "cpu_share_of_bare_stages": sum(row["cpu_seconds"] for row in bare.values())
        / stages["pipeline"]["cpu_seconds"],
        "peak_memory_mib": peak_bytes[0] / 1024**2,
    }


def render(result: dict[str, Any]) -> str:
    """Return the figures of one measurement as a table."""
    lines = [
        f"{', '.join(result['files'])}: {result['pages']} pages, {result['chunks']} chunks",
        "",
        "| stage | pages | seconds | CPU seconds | pages/s |",
        "| --- | ---: | ---: | ---: | ---: |",
    ]
    for name, row in result["stages"].items():
        figures = f"{row['seconds']:.2f} | {row['cpu_seconds']:.2f} | {row['pages_per_s']:.2f}"
        lines.append(f"| {name} | {row['pages']} | {figures} |")
    lines += [
        "",
        f"pipeline / slower bare stage, by the clock: {result['share_of_slower_stage']:.0%}",
        f"bare stages / pipeline, by CPU time: {result['cpu_share_of_bare_stages']:.0%}",
        f"peak memory of all processes: {result['peak_memory_mib']:.0f} MiB",
    ]
    if result["failed"]:
        lines.append(f"failed: {', '.join(result['failed'])}")
    return "\n".join([*lines, ""])


def main() -> int:
    """Run from the command line; returns the exit status, 1 if a document failed."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    arguments.add_argument("files", nargs="*", type=Path, help="documents; default: two that are drawn")
    arguments.add_argument("--pages", type=int, default=40, help="pages of the drawn text document")
    arguments.add_argument("--scans", type=int, default=3, help="pages of the drawn scan; 0 for none")
    arguments.add_argument("--rounds", type=int, default=2, help="the fastest of so many is shown")
    arguments.add_argument("--chroma", metavar="URL", help="a running Chroma server; default: in memory")
    arguments.add_argument("--json", action="store_true", help="print JSON instead of tables")
    given = arguments.parse_args()
    go_offline()
    settings = load_settings()
    embedder = build_embedder(settings)
    embedder.embed_query("warm")
    with tempfile.TemporaryDirectory(prefix="kb-benchmark-") as name:
        groups: list[list[Path]] = [given.files]
        if not given.files:
            drawn = {"text.pdf": (given.pages, False), "scan.pdf": (given.scans, True)}
            groups = [[Path(name) / file] for file, (pages, _) in drawn.items() if pages]
            for (path,) in groups:
                pages, scanned = drawn[path.name]
                draw_pdf(path, pages=pages, scanned=scanned)
        results = [
            measure(group, embedder=embedder, settings=settings, rounds=given.rounds, chroma_url=given.chroma)
            for group in groups
        ]
    print(json.dumps(results, indent=2) if given.json else "\n".join(map(render, results)))
    return 1 if any(result["failed"] for result in results) else 0


if __name__ == "__main__":
    sys.exit(main())
