"""How fast documents are ingested, stage by stage: `python -m benchmarks.ingest [FILE …]`.

Runs the real pipeline on the files, and beside it, in the same run and on the same pages, the bare parser
and the bare embedder. Without files it draws a text document and a scanned one.
"""

from __future__ import annotations

import argparse
import io
import json
import random
import resource
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from ingest.chunking import Chunker
from ingest.formats import detect_media_type
from ingest.page_cache import PageCache
from ingest.parse_child import build_parser
from ingest.pipeline import IngestPipeline
from ingest.reader import SubprocessReader
from kb.adapters.chroma_store import ChromaStore
from kb.adapters.disk_files import DiskFiles
from kb.adapters.fts_lexical import FtsLexicalIndex
from kb.adapters.memory_store import MemoryStore
from kb.adapters.sql_catalog import SqlCatalog
from kb.bootstrap import build_embedder, now_utc
from kb.offline import go_offline
from kb.ports import LexicalEntry, LexicalIndex, PageProgress, VectorRecord, Vectors, VectorStore
from kb.settings import Settings, load_settings
from kb.types import Chunk, DocumentState, ParsedDocument, TextSource

_WORDS = (
    *("pump", "valve", "pressure", "bearing", "lubricate", "inspect", "every", "hours", "replace", "filter"),
    *("motor", "drive", "error", "code", "temperature", "alarm", "reset", "check", "torque", "seal"),
)


class Stopwatch:
    """Adds up seconds by stage; each stage is timed in one thread at a time."""

    def __init__(self) -> None:
        self.seconds: defaultdict[str, float] = defaultdict(float)

    @contextmanager
    def time(self, stage: str) -> Iterator[None]:
        """Add the time inside the block to `stage`."""
        start_s = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[stage] += time.perf_counter() - start_s


class TimedReader:
    """A reader that notes what its documents are made of."""

    def __init__(self, reader: SubprocessReader, watch: Stopwatch) -> None:
        self._reader = reader
        self._watch = watch
        self.pages: defaultdict[str, int] = defaultdict(int)

    def read(
        self,
        path: Path,
        *,
        name: str,
        password: str | None,
        progress: PageProgress,
        is_cancelled: Callable[[], bool],
        should_pause: Callable[[], bool] = lambda: False,  # noqa: ARG002 - nobody waits here
    ) -> ParsedDocument:
        """Read and time; a document is OCR's if most of its pages are."""
        start_s = time.perf_counter()
        parsed = self._reader.read(
            path, name=name, password=password, progress=progress, is_cancelled=is_cancelled
        )
        stage = stage_of(parsed)
        self._watch.seconds[stage] += time.perf_counter() - start_s
        self.pages[stage] += len(parsed.pages)
        return parsed


class TimedChunker(Chunker):
    """A chunker that keeps the texts it made."""

    watch: Stopwatch
    texts: list[str]

    def chunk(self, parsed: ParsedDocument, *, document_id: str, generation: int) -> list[Chunk]:
        """Cut and time."""
        with self.watch.time("chunk"):
            chunks = super().chunk(parsed, document_id=document_id, generation=generation)
        self.texts.extend(chunk.indexed_text for chunk in chunks)
        return chunks


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


def stage_of(parsed: ParsedDocument) -> str:
    """Return `ocr` if most pages were read by OCR, else `parse`."""
    return "ocr" if 2 * sum(p.source is TextSource.OCR for p in parsed.pages) > len(parsed.pages) else "parse"


def measure(
    files: Sequence[Path], *, settings: Settings, folder: Path, chroma_url: str | None
) -> dict[str, Any]:
    """Ingest the files and return the figures; pages/s unless a name says otherwise."""
    watch = Stopwatch()
    embedder = build_embedder(settings)
    embedder.embed_query("warm")
    bare_s: defaultdict[str, float] = defaultdict(float)
    for path in files:
        parser = build_parser(
            detect_media_type(path, path.name), max_pages=settings.max_pages, ocr=settings.ocr
        )
        start_s = time.perf_counter()
        parsed = parser.parse(path, name=path.name, password=None, progress=_ignore)
        bare_s[stage_of(parsed)] += time.perf_counter() - start_s
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
    chunker = TimedChunker(
        count_tokens=embedder.count_tokens,
        max_tokens=min(settings.chunk_tokens, embedder.max_tokens),
        overlap_tokens=settings.chunk_overlap_tokens,
    )
    chunker.watch, chunker.texts = watch, []
    vectors: VectorStore = ChromaStore(chroma_url) if chroma_url else MemoryStore()
    lexical: LexicalIndex = FtsLexicalIndex(folder / "lexical.sqlite")
    pipeline = IngestPipeline(
        catalog=catalog,
        files=store,
        reader=reader,
        embedder=TimedEmbedder(embedder, watch),
        vectors=TimedWrites(vectors, watch),
        lexical=TimedWrites(lexical, watch),
        chunker=chunker,
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
    with watch.time("bare embedder"):
        embedder.embed_passages(chunker.texts)
    pages = sum(reader.pages.values())
    stages = {
        stage: {"pages": reader.pages.get(stage, pages), "seconds": watch.seconds[stage]}
        for stage in ("parse", "ocr", "chunk", "embed", "write", "pipeline", "bare embedder")
        if watch.seconds[stage]
    }
    for stage, seconds in bare_s.items():
        stages[f"bare {stage}"] = {"pages": reader.pages[stage], "seconds": seconds}
    slower_s = max(sum(bare_s.values()), watch.seconds["bare embedder"])
    return {
        "files": len(files),
        "failed": [document.name for document in failed],
        "pages": pages,
        "chunks": len(chunker.texts),
        "stages": {
            name: row | {"pages_per_s": row["pages"] / row["seconds"]} for name, row in stages.items()
        },
        "share_of_slower_stage": slower_s / watch.seconds["pipeline"],
        "peak_memory_mib": {
            "worker": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
            "reader": resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024,
        },
    }


def draw_document(path: Path, *, pages: int, scanned: bool) -> None:
    """Write a PDF of made-up maintenance prose, the same for the same arguments."""
    from PIL import Image, ImageDraw, ImageFont
    from reportlab.lib.utils import ImageReader
    from reportlab.pdfgen.canvas import Canvas

    chance = random.Random(7)  # noqa: S311 - no secret
    canvas = Canvas(str(path), pagesize=(595, 842), invariant=1)
    for number in range(pages):
        lines = [f"{' '.join(chance.choices(_WORDS, k=9))} E-{number:03d}{line:02d}." for line in range(32)]
        if scanned:
            picture = Image.new("L", (1240, 1754), 255)
            pen, font = ImageDraw.Draw(picture), ImageFont.load_default(size=28)
            for line, text in enumerate(lines):
                pen.text((100, 100 + 48 * line), text, 0, font)
            jpeg = io.BytesIO()
            picture.save(jpeg, "JPEG", quality=60)
            canvas.drawImage(ImageReader(jpeg), 0, 0, 595, 842)
        else:
            for line, text in enumerate(lines):
                canvas.drawString(60, 780 - 22 * line, text)
        canvas.showPage()
    canvas.save()


def render(result: dict[str, Any]) -> str:
    """Return the figures as a table."""
    lines = [
        f"{result['files']} files, {result['pages']} pages, {result['chunks']} chunks",
        "",
        "| stage | pages | seconds | pages/s |",
        "| --- | ---: | ---: | ---: |",
    ]
    for name, row in result["stages"].items():
        lines.append(f"| {name} | {row['pages']} | {row['seconds']:.2f} | {row['pages_per_s']:.2f} |")
    memory = result["peak_memory_mib"]
    lines += [
        "",
        f"pipeline / slower bare stage: {result['share_of_slower_stage']:.0%}",
        f"peak memory: worker {memory['worker']:.0f} MiB, reader's process {memory['reader']:.0f} MiB",
    ]
    if result["failed"]:
        lines.append(f"failed: {', '.join(result['failed'])}")
    return "\n".join(lines)


def main() -> int:
    """Run from the command line; returns the exit status, 1 if a document failed."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    arguments.add_argument("files", nargs="*", type=Path, help="documents; default: two that are drawn")
    arguments.add_argument("--pages", type=int, default=60, help="pages of the drawn text document")
    arguments.add_argument("--scans", type=int, default=4, help="pages of the drawn scan; 0 for none")
    arguments.add_argument("--chroma", metavar="URL", help="a running Chroma server; default: in memory")
    arguments.add_argument("--json", action="store_true", help="print JSON instead of a table")
    given = arguments.parse_args()
    go_offline()
    with tempfile.TemporaryDirectory(prefix="kb-benchmark-") as name:
        folder = Path(name)
        files: list[Path] = given.files
        if not files:
            drawn = {"text.pdf": (given.pages, False), "scan.pdf": (given.scans, True)}
            files = [folder / name for name, (pages, _) in drawn.items() if pages]
            for path in files:
                pages, scanned = drawn[path.name]
                draw_document(path, pages=pages, scanned=scanned)
        result = measure(files, settings=load_settings(), folder=folder, chroma_url=given.chroma)
    print(json.dumps(result, indent=2) if given.json else render(result))
    return 1 if result["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
