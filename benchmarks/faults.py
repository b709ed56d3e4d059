"""How fast a fault code is looked up: `python -m benchmarks.faults [--chunks N] [--json]`.

Fills a catalog and a lexical index with drawn fault tables, five rows a chunk, and looks known and unknown
codes up. No embedder and no server take part.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import cast

from kb.adapters.fts_lexical import FtsLexicalIndex
from kb.adapters.hashing_embedder import HashingEmbedder
from kb.adapters.sql_catalog import SqlCatalog
from kb.bootstrap import now_utc
from kb.errors import CodeUnknownError
from kb.faults import FaultFinder
from kb.ports import LexicalEntry, StoredFile
from kb.retrieval import PassageRetriever
from kb.types import Block, BlockKind, Box, Chunk, Collection, Page, ParsedDocument, Span

_COLUMNS = ("代码", "现象", "原因", "处理")
_ROWS = 5
_CHUNKS_A_PAGE = 4
_PAGES_A_DOCUMENT = 250
_WORDS = (
    "pump",
    "阀",
    "pressure",
    "油温",
    "bearing",
    "滤芯",
    "motor",
    "电缆",
    "seal",
    "传感器",
    "drive",
    "冷却",
)


def main() -> None:
    """Run the benchmark and print its figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--chunks", type=int, default=20_000, help="chunks of five rows in the collection")
    parser.add_argument("--look-ups", type=int, default=300, help="look-ups of each kind")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        figures = _measure(Path(folder), chunk_count=options.chunks, look_ups=options.look_ups)
    if options.json:
        print(json.dumps(figures, indent=2))
        return
    for name, value in figures.items():
        print(f"{name:<28}{value:>12,.2f}")


def _measure(folder: Path, *, chunk_count: int, look_ups: int) -> dict[str, float]:
    catalog = SqlCatalog(f"sqlite:///{folder / 'catalog.sqlite'}")
    catalog.migrate()
    lexical = FtsLexicalIndex(folder / "lexical.sqlite")
    collection = catalog.create_collection("faults", now=now_utc())
    codes = _fill(catalog, lexical, collection, chunk_count=chunk_count)
    finder = FaultFinder(
        retriever=cast("PassageRetriever", None),  # a code needs none
        embedder=HashingEmbedder(),
        lexical=lexical,
        catalog=catalog,
    )
    rng = random.Random(7)  # noqa: S311 - drawn codes
    known = rng.sample(codes, look_ups)
    unknown = [f"{code[:-1]}O" for code in rng.sample(codes, min(look_ups, 50))]

    def look_up(code: str) -> None:
        try:
            finder.look_up(collection, code, limit=20)
        except CodeUnknownError:
            if code in codes:
                raise

    figures = {"chunks": float(chunk_count), "codes": float(len(codes))}
    for name, asked in (("known", known), ("unknown", unknown)):
        times, cpu_ms = _time(look_up, asked)
        figures[f"{name}_p50_ms"] = statistics.median(times)
        figures[f"{name}_p95_ms"] = times[int(len(times) * 0.95)]
        figures[f"{name}_cpu_ms"] = cpu_ms
    lexical.close()
    return figures


def _fill(
    catalog: SqlCatalog, lexical: FtsLexicalIndex, collection: Collection, *, chunk_count: int
) -> list[str]:
    """Store documents of many pages with a layout; return their codes."""
    rng = random.Random(1)  # noqa: S311 - drawn words
    codes = [f"E-{number:06d}" for number in range(chunk_count * _ROWS)]
    waiting = iter(codes)
    per_document = _CHUNKS_A_PAGE * _PAGES_A_DOCUMENT
    for first in range(0, chunk_count, per_document):
        name = f"manual-{first}.pdf"
        job = catalog.register_document(
            collection.id,
            name=name,
            stored=StoredFile(f"{first:064d}", 1),
            media_type="application/pdf",
            now=now_utc(),
        ).job
        assert job is not None
        catalog.start_attempt(job.id, worker="benchmark", lease_s=600, max_attempts=1, now=now_utc())
        pages: list[Page] = []
        chunks: list[Chunk] = []
        here = min(per_document, chunk_count - first)
        for page_number in range(1, -(-here // _CHUNKS_A_PAGE) + 1):
            left = min(_CHUNKS_A_PAGE, here - len(chunks))
            rows = [_draw_row(next(waiting), rng) for _ in range(left * _ROWS)]
            page = _draw_page(page_number, rows)
            for start in range(0, len(rows), _ROWS):
                blocks = page.blocks[start : start + _ROWS]
                span = Span(page_number, blocks[0].char_start, blocks[-1].char_end)
                chunks.append(
                    Chunk(
                        f"{job.document_id}-g{job.generation}-{len(chunks):05d}",
                        job.document_id,
                        job.generation,
                        len(chunks),
                        page.text[span.char_start : span.char_end],
                        (span,),
                        context=" | ".join(_COLUMNS),
                        records=tuple(rows[start : start + _ROWS]),
                        language="zh",
                    )
                )
            pages.append(page)
        catalog.save_parsed(job.id, ParsedDocument(tuple(pages), "application/pdf"), now=now_utc())
        catalog.save_chunks(job.id, chunks)
        key = f"{job.document_id}-g{job.generation}"
        lexical.upsert(collection.id, [LexicalEntry(chunk.id, key, chunk.indexed_text) for chunk in chunks])
        catalog.activate(job.id, warnings=(), now=now_utc())
    return codes


def _draw_row(code: str, rng: random.Random) -> dict[str, str]:
    cells = (" ".join(rng.choices(_WORDS, k=8)) for _ in _COLUMNS[1:])
    return dict(zip(_COLUMNS, (code, *cells), strict=True))


def _draw_page(page_number: int, rows: Sequence[dict[str, str]]) -> Page:
    text, blocks = "", list[Block]()
    for number, row in enumerate(rows):
        line = " | ".join(row.values())
        box = Box(60.0, 80.0 + number * 20, 540.0, 100.0 + number * 20)
        blocks.append(
            Block(BlockKind.TABLE_ROW, len(text), len(text) + len(line), box=box, record=row, table_index=0)
        )
        text += f"{line}\n"
    return Page(page_number, text, width=595.0, height=842.0, blocks=tuple(blocks))


def _time(call: Callable[[str], None], codes: Sequence[str]) -> tuple[list[float], float]:
    """Return the milliseconds of each call, shortest first, and the CPU milliseconds of one on average.

    The first call warms up and is left out.
    """
    call(codes[0])
    times: list[float] = []
    cpu_started = time.process_time()
    for code in codes:
        started = time.perf_counter()
        call(code)
        times.append((time.perf_counter() - started) * 1000)
    return sorted(times), (time.process_time() - cpu_started) * 1000 / len(codes)


if __name__ == "__main__":
    main()
