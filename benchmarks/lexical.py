"""How fast words are searched: `python -m benchmarks.lexical [--chunks N] [--queries N] [--json]`.

Fills a lexical index with drawn Chinese and English chunks, words as frequent as in real text, and asks it
questions of rare and of common words. In the same run each question is put to the same table as a bare FTS5
query, which reads no catalog of entries and chooses no terms.
"""

from __future__ import annotations

import argparse
import json
import random
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from itertools import accumulate
from pathlib import Path

from kb.adapters.fts_lexical import FtsLexicalIndex
from kb.lexemes import list_query_terms
from kb.ports import LexicalEntry

_COLLECTION = "drawn"
_CHUNKS_A_DOCUMENT = 400
_BATCH = 5_000
_TOP_K = 40
_WORDS_OF_A_CHUNK = 110
_WORDS_OF_A_QUESTION = 7
_VOCABULARY = 20_000
_SYLLABLES = ("ba", "tor", "lin", "ve", "pum", "ka", "ser", "mo", "dri", "ent", "sol", "gra", "vi", "net")
_FIRST_CHARACTER, _CHARACTERS = 0x4E00, 3_000


def main() -> None:
    """Run the benchmark and print its figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--chunks", type=int, default=100_000, help="chunks in the collection")
    parser.add_argument("--queries", type=int, default=200, help="questions that are put")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        figures = _measure(Path(folder), chunk_count=options.chunks, query_count=options.queries)
    if options.json:
        print(json.dumps(figures, indent=2))
        return
    for name, value in figures.items():
        print(f"{name:<28} {value:>12,.2f}")


def _measure(folder: Path, *, chunk_count: int, query_count: int) -> dict[str, float]:
    draw = _Writer(random.Random(7))  # noqa: S311 - no secret
    path = folder / "lexical.sqlite"
    with closing(FtsLexicalIndex(path)) as index:
        started_s = time.perf_counter()
        for begin in range(0, chunk_count, _BATCH):
            count = min(_BATCH, chunk_count - begin)
            index.upsert(_COLLECTION, [_make_entry(begin + number, draw) for number in range(count)])
        filled_s = time.perf_counter() - started_s
        size_bytes = path.stat().st_size
        questions = [draw.write(_WORDS_OF_A_QUESTION) for _ in range(query_count)]
        first = _time(questions, lambda text: index.query(_COLLECTION, text, top_k=_TOP_K))
        ours = _time(questions, lambda text: index.query(_COLLECTION, text, top_k=_TOP_K))
        keys = [f"doc{number}-g1" for number in range(3)]
        limited = _time(
            questions, lambda text: index.query(_COLLECTION, text, top_k=_TOP_K, document_keys=keys)
        )
        unchanged = path.stat().st_size == size_bytes
    with closing(sqlite3.connect(path)) as connection:
        bare = _time(questions, lambda text: _query_bare(connection, text))
    return {
        "chunks": float(chunk_count),
        "filled, chunks/s": chunk_count / filled_s,
        "index, MB": size_bytes / 1e6,
        "first query p95, ms": _p95(first),
        "query median, ms": statistics.median(ours),
        "query p95, ms": _p95(ours),
        "query of 3 documents p95, ms": _p95(limited),
        "bare FTS5 median, ms": statistics.median(bare),
        "bare FTS5 p95, ms": _p95(bare),
        "p95 / bare p95": _p95(ours) / _p95(bare),
        "index unchanged by queries": float(unchanged),
    }


class _Writer:
    """Draws text: half in Chinese, half in English, words by rank as Zipf found them (1949)."""

    def __init__(self, randomness: random.Random) -> None:
        self._random = randomness
        self._weights = list(accumulate(1 / (rank + 2.7) for rank in range(_VOCABULARY)))
        self._english = [self._make_word() for _ in range(_VOCABULARY)]
        self._chinese = [self._make_characters() for _ in range(_VOCABULARY)]

    def write(self, count: int) -> str:
        """Return that many words in one of both languages."""
        is_english = self._random.random() < 0.5
        words = self._english if is_english else self._chinese
        chosen = self._random.choices(words, cum_weights=self._weights, k=count)
        return (" " if is_english else "").join(chosen)

    def _make_word(self) -> str:
        return "".join(self._random.choices(_SYLLABLES, k=self._random.randint(1, 4)))

    def _make_characters(self) -> str:
        count = self._random.randint(1, 3)
        return "".join(
            chr(_FIRST_CHARACTER + min(int(self._random.paretovariate(0.6)), _CHARACTERS))
            for _ in range(count)
        )


def _make_entry(number: int, draw: _Writer) -> LexicalEntry:
    text = f"{draw.write(_WORDS_OF_A_CHUNK)} E-{number:05d}"
    return LexicalEntry(f"c{number}", f"doc{number // _CHUNKS_A_DOCUMENT}-g1", text)


def _query_bare(connection: sqlite3.Connection, text: str) -> None:
    match = " OR ".join(f'"{term}"' for term in list_query_terms(text))
    table = f'"terms_{_COLLECTION}"'
    connection.execute(
        f"SELECT rowid, rank FROM {table} WHERE terms MATCH ? ORDER BY rank LIMIT ?",  # noqa: S608 - a constant
        (match, _TOP_K),
    ).fetchall()


def _time(questions: Sequence[str], ask: Callable[[str], object]) -> list[float]:
    """Return the milliseconds of CPU of each question: what an idle machine takes by the clock."""
    taken = []
    for question in questions:
        started_s = time.thread_time()
        ask(question)
        taken.append((time.thread_time() - started_s) * 1000)
    return taken


def _p95(values: Sequence[float]) -> float:
    return statistics.quantiles(values, n=20, method="inclusive")[18]


if __name__ == "__main__":
    main()
