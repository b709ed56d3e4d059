from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ingest.lines import PageContent, PlacedTable, TextLine, Word
from ingest.page_cache import PageCache, code_version, hash_file
from ingest.page_store import PageStore
from ingest.paged import damaged_page
from ingest.parsed_json import to_json
from ingest.tables import Cell, Grid
from kb.types import Box, Page, ParsedDocument, TextSource

TABLE = PlacedTable(
    Grid(
        filled=(("代码", "E-01"), ("", "x")),
        shown=(("代码", "E-01"), ("", "x")),
        cells=(Cell(0, 0, "代码", 2, 1, Box(0.1, 0.2, 0.3, 0.4)), Cell(0, 1, "E-01"), Cell(1, 1, "x")),
        row_boxes=(Box(0, 0, 1, 1), None),
        section_rows=frozenset({1}),
    ),
    Box(1 / 3, 0, 1, 1),
    (0.0, 0.5, 1.0),
)
CONTENT = PageContent(
    3,
    595.28,
    841.89,
    (
        TextLine("line \ud800 𠮷", Box(0.1, 1 / 3, 5, 6), 10.5, bold=True, words=(Word("line", 0.1, 2.0),)),
        TextLine("next", Box(0, 0, 1, 1), 9.0),
    ),
    tables=(TABLE,),
    label="iii",
    source=TextSource.OCR,
    undecodable=0.25,
    ocr_confidence=0.9312,
    warnings=("page_too_dense: much",),
)


def test_a_page_comes_back_exactly_as_it_was(tmp_path: Path) -> None:
    store = PageStore(tmp_path)

    store.add_page(CONTENT)
    store.add_page(damaged_page(4, "no"))

    assert store.load_pages() == {3: CONTENT, 4: damaged_page(4, "no")}
    assert list(store.list_pages()) == [3, 4]
    assert store.list_pages()[3] > len("line next代码E-01x")


@pytest.mark.parametrize("tail", [b"7", b"7 12 99 abc", b"7 12 99 abc\n", b"\0" * 50, b"x y z w\n"])
def test_what_was_not_written_whole_does_not_count_and_does_not_harm_what_follows(
    tmp_path: Path, tail: bytes
) -> None:
    store = PageStore(tmp_path)
    store.add_page(CONTENT)
    with (tmp_path / "pages").open("ab") as file:
        file.write(tail)

    store.drop_torn_line()
    store.add_page(damaged_page(4, "no"))

    assert list(store.load_pages()) == [3, 4]


def test_an_empty_store_holds_nothing(tmp_path: Path) -> None:
    store = PageStore(tmp_path)

    store.drop_torn_line()

    assert (store.list_pages(), store.load_damaged(), store.find_parsed()) == ({}, {}, None)


def test_a_damaged_store_is_an_empty_one(tmp_path: Path) -> None:
    for name in ("damaged.json", "parsed.json.z"):
        (tmp_path / name).write_bytes(b"\x00{")
    store = PageStore(tmp_path)

    assert (store.load_damaged(), store.find_parsed()) == ({}, None)


def test_a_document_and_its_damaged_pages_are_kept(tmp_path: Path) -> None:
    parsed = ParsedDocument((Page(1, "一 \ud800"),), "application/pdf", title="t")
    store = PageStore(tmp_path)

    store.save_damaged({3: "timeout"})
    store.save_parsed(to_json(parsed))

    assert store.load_damaged() == {3: "timeout"}
    assert store.find_parsed() == parsed


def make_file(folder: Path, content: bytes) -> Path:
    path = folder / f"source-{content[:4].hex()}"
    path.write_bytes(content)
    return path


def fill(cache: PageCache, path: Path, *, size_bytes: int, used_s: float) -> Path:
    with cache.open(path, variant="a") as folder:
        assert folder is not None
        (folder / "pages").write_bytes(b"x" * size_bytes)
    os.utime(folder, (used_s, used_s))
    return folder


def test_content_and_variant_name_the_folder(tmp_path: Path) -> None:
    cache = PageCache(tmp_path / "cache", max_bytes=100)
    path = make_file(tmp_path, b"one")

    with cache.open(path, variant="a") as first, cache.open(path, variant="b") as other:
        pass
    with cache.open(path, variant="a") as again:
        pass

    assert first == again != other
    assert first is not None
    assert first.parent.name == hash_file(path)


def test_a_folder_belongs_to_one_reader_at_a_time(tmp_path: Path) -> None:
    cache = PageCache(tmp_path / "cache", max_bytes=100)
    path = make_file(tmp_path, b"one")

    with cache.open(path, variant="a"), cache.open(path, variant="a") as second:
        assert second is None
    with cache.open(path, variant="a") as third:
        assert third is not None


def test_the_least_recently_used_folders_go_first(tmp_path: Path) -> None:
    cache = PageCache(tmp_path / "cache", max_bytes=100)
    old, middle, new = (
        fill(cache, make_file(tmp_path, name), size_bytes=60, used_s=used_s)
        for name, used_s in ((b"old", 1000), (b"mid", 2000), (b"new", 3000))
    )

    cache.prune(now_s=4000)

    assert [folder.exists() for folder in (old, middle, new)] == [False, False, True]
    assert not old.parent.exists()


def test_what_nobody_used_for_a_month_goes(tmp_path: Path) -> None:
    cache = PageCache(tmp_path / "cache", max_bytes=100)
    folder = fill(cache, make_file(tmp_path, b"old"), size_bytes=1, used_s=1000)

    cache.prune(now_s=1000 + 31 * 86400)

    assert not folder.exists()


def test_what_is_being_read_stays(tmp_path: Path) -> None:
    cache = PageCache(tmp_path / "cache", max_bytes=0)

    with cache.open(make_file(tmp_path, b"one"), variant="a") as folder:
        assert folder is not None
        (folder / "pages").write_bytes(b"x")
        cache.prune()
        assert folder.is_dir()
    cache.prune()
    assert not folder.exists()


def test_pruning_nothing_is_no_error(tmp_path: Path) -> None:
    PageCache(tmp_path / "none", max_bytes=0).prune()


def test_the_version_of_the_code_is_the_same_in_every_process() -> None:
    command = "from ingest.page_cache import code_version; print(code_version(), end='')"

    other = subprocess.run(
        [sys.executable, "-c", command], cwd=Path(__file__).parents[3], capture_output=True, check=True
    )

    assert other.stdout.decode() == code_version()
