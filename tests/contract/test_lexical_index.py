"""Every lexical index keeps the promises of `kb.ports.LexicalIndex`."""

from __future__ import annotations

import multiprocessing
import sqlite3
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, closing, nullcontext
from pathlib import Path

import pytest

from kb.adapters.fts_lexical import FtsLexicalIndex
from kb.adapters.memory_lexical import MemoryLexicalIndex
from kb.codes import canonicalise
from kb.errors import ConfigurationError, LexicalIndexUnavailableError
from kb.ports import LexicalEntry, LexicalIndex

Opener = Callable[[Path], AbstractContextManager[LexicalIndex]]

INDEXES: dict[str, Opener] = {
    "memory": lambda tmp: nullcontext(MemoryLexicalIndex()),
    "fts": lambda tmp: closing(FtsLexicalIndex(tmp / "new" / "words.sqlite")),
}


@pytest.fixture(params=list(INDEXES))
def index(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[LexicalIndex]:
    with INDEXES[request.param](tmp_path) as opened:
        yield opened


def entry(chunk_id: str, text: str, *, key: str = "doc_a-g1") -> LexicalEntry:
    return LexicalEntry(chunk_id=chunk_id, document_key=key, text=text)


def ids(index: LexicalIndex, text: str, *, collection: str = "col_1", top_k: int = 10) -> list[str]:
    return [item.chunk_id for item in index.query(collection, text, top_k=top_k)]


def code_ids(index: LexicalIndex, code: str, *, top_k: int = 10) -> list[str]:
    return [item.chunk_id for item in index.find_code("col_1", canonicalise(code), top_k=top_k)]


def test_query_finds_words_in_any_case_best_first_with_positive_scores(index: LexicalIndex) -> None:
    index.upsert(
        "col_1",
        [
            entry("both", "The spindle bearing is worn."),
            entry("one", "The spindle turns, and it turns for a long time, and nothing else happens."),
            entry("none", "Check the coolant level."),
            entry("more", "Doors must be closed."),
        ],
    )

    found = index.query("col_1", "SPINDLE Bearing", top_k=10)

    assert [item.chunk_id for item in found] == ["both", "one"]
    assert found[0].score > found[1].score > 0


def test_query_finds_chinese_words_inside_sentences(index: LexicalIndex) -> None:
    index.upsert("col_1", [entry("pump", "液压泵压力不足时检查滤芯。"), entry("door", "安全门未关闭。")])

    assert ids(index, "滤芯") == ["pump"]
    assert ids(index, "泵") == ["pump"]
    assert ids(index, "为什么安全门打不开？")[0] == "door"


def test_a_word_that_is_everywhere_is_still_found(index: LexicalIndex) -> None:
    index.upsert("col_1", [entry(name, f"motor {name}") for name in ("a", "b", "c")])

    assert len(index.query("col_1", "motor", top_k=10)) == 3
    assert all(item.score > 0 for item in index.query("col_1", "motor", top_k=10))


def test_query_returns_at_most_top_k_and_ties_in_the_order_of_ids(index: LexicalIndex) -> None:
    index.upsert("col_1", [entry(name, "oil filter") for name in ("d", "b", "a", "c")])
    index.upsert("col_1", [entry("a", "oil filter")])

    assert ids(index, "filter", top_k=3) == ["a", "b", "c"]
    assert ids(index, "filter", top_k=0) == []


@pytest.mark.parametrize("text", ["", "   ", "?!… 。，", '"', "'", "()", "*", "--", "\x00", "\ud800"])
def test_a_query_without_words_finds_nothing(index: LexicalIndex, text: str) -> None:
    index.upsert("col_1", [entry("x", "oil filter")])

    assert ids(index, text) == []


@pytest.mark.parametrize(
    "text",
    [
        '"oil',
        "oil AND",
        "NOT oil",
        "oil NEAR/3 (",
        "terms: oil",
        "oil*",
        "^oil",
        "{oil}",
        "oil'; DROP",
        "OR oil -",
    ],
)
def test_operators_and_quotes_in_a_query_are_plain_text(index: LexicalIndex, text: str) -> None:
    index.upsert("col_1", [entry("x", "oil filter")])

    assert ids(index, text) == ["x"]


def test_a_whole_page_is_a_valid_query(index: LexicalIndex) -> None:
    index.upsert("col_1", [entry("x", "word7 and 液压")])

    assert ids(index, " ".join(f"word{number}" for number in range(5000))) == ["x"]


@pytest.mark.parametrize("spelling", ["E-0471", "e0471", "E 0471", "Ｅ－０４７１", "E_0471"])
def test_all_spellings_of_a_code_are_equal(index: LexicalIndex, spelling: str) -> None:
    index.upsert(
        "col_1",
        [
            entry("dash", "报警E-0471：压力不足"),
            entry("bare", "Alarm E0471 means low pressure."),
            entry("space", "Alarm E 0471 means low pressure."),
            entry("wide", "报警Ｅ－０４７１。"),
            entry("other", "Alarm E-0472 and E-04711 mean high pressure."),
        ],
    )

    assert sorted(code_ids(index, spelling)) == ["bare", "dash", "space", "wide"]


def test_find_code_is_not_fooled_by_parts_or_words(index: LexicalIndex) -> None:
    index.upsert("col_1", [entry("long", "Bearing BRG-6217-2RS"), entry("plain", "code e0471x code_e0471")])

    assert code_ids(index, "BRG-6217-2RS") == ["long"]
    assert code_ids(index, "BRG-6217") == []
    assert code_ids(index, "E-0471") == []
    assert code_ids(index, "") == []
    assert code_ids(index, "BRG-6217-2RS", top_k=0) == []


def test_the_codes_of_a_collection_are_listed_once_each(index: LexicalIndex) -> None:
    index.upsert("col_1", [entry("a", "E-0471 and F30001"), entry("b", "e 0471, pump X9, code 7")])
    index.upsert("col_2", [entry("c", "SRVO-050")])

    assert index.list_codes("col_1") == ["E0471", "F30001", "X9"]
    assert index.list_codes("col_1") == ["E0471", "F30001", "X9"]
    assert index.list_codes("col_1", prefix="E0") == ["E0471"]
    assert index.list_codes("col_1", prefix="E1") == []
    assert index.list_codes("col_unknown") == []


def test_find_code_puts_the_chunk_that_is_about_the_code_first(index: LexicalIndex) -> None:
    filler = "and many other words about the machine that say nothing of it " * 5
    index.upsert(
        "col_1",
        [
            entry("aside", f"{filler} F30001 {filler}"),
            entry("about", "F30001: overcurrent. Reset F30001 with S1."),
            *(entry(f"filler{number}", filler) for number in range(5)),
        ],
    )

    assert code_ids(index, "F30001") == ["about", "aside"]


def test_parts_of_a_joined_word_are_found(index: LexicalIndex) -> None:
    index.upsert(
        "col_1", [entry("x", "Set max_torque of the counter-weight, see SRVO-050."), entry("y", "no")]
    )

    for text in ("torque", "counterweight", "counter weight", "SRVO", "max_torque"):
        assert ids(index, text) == ["x"], text


def test_upsert_replaces_by_id(index: LexicalIndex) -> None:
    index.upsert("col_1", [entry("x", "old words", key="doc_a-g1")])
    index.upsert("col_1", [entry("x", "new words", key="doc_a-g2")])
    index.upsert(
        "col_1", [entry("x", "new words", key="doc_a-g2"), entry("x", "newest words", key="doc_a-g2")]
    )

    assert ids(index, "old new") == []
    assert ids(index, "newest") == ["x"]
    assert index.count("col_1") == 1
    assert index.count("col_1", document_key="doc_a-g1") == 0
    assert index.count("col_1", document_key="doc_a-g2") == 1


def test_upsert_of_nothing_and_of_nothing_searchable(index: LexicalIndex) -> None:
    index.upsert("col_1", [])
    index.upsert("col_1", [entry("blank", ""), entry("marks", "!!!")])

    assert ids(index, "anything") == []
    assert index.count("col_1") == 2


def test_unknown_collections_are_empty(index: LexicalIndex) -> None:
    assert ids(index, "oil", collection="col_unknown") == []
    assert index.find_code("col_unknown", "E0471", top_k=5) == []
    assert index.count("col_unknown") == 0
    index.delete_document("col_unknown", "doc_a-g1")
    index.delete_collection("col_unknown")


def test_delete_document_removes_only_its_own_entries(index: LexicalIndex) -> None:
    index.upsert("col_1", [entry("a", "oil", key="doc_a-g1"), entry("b", "oil", key="doc_a-g2")])

    index.delete_document("col_1", "doc_a-g1")
    index.delete_document("col_1", "doc_a-g1")

    assert ids(index, "oil") == ["b"]
    assert index.list_chunk_ids("col_1", "doc_a-g1") == set()
    assert index.list_chunk_ids("col_1", "doc_a-g2") == {"b"}
    assert index.list_chunk_ids("col_2", "doc_a-g2") == set()
    index.delete_document("col_1", "doc_a-g2")
    assert ids(index, "oil") == []
    index.upsert("col_1", [entry("c", "oil")])
    assert ids(index, "oil") == ["c"]


def test_collections_are_apart_in_what_they_find_and_how_they_score(index: LexicalIndex) -> None:
    index.upsert("col_1", [entry("x", "oil"), entry("y", "water"), entry("z", "air")])
    before = index.query("col_1", "oil", top_k=5)
    index.upsert("col_2", [entry(f"x{number}", "oil oil oil") for number in range(20)])

    assert index.query("col_1", "oil", top_k=5) == before
    index.delete_document("col_2", "doc_a-g1")
    assert index.count("col_1") == 3
    index.delete_collection("col_1")
    assert ids(index, "oil") == []
    assert index.count("col_1") == 0


def test_collection_ids_with_quotes_are_just_names(index: LexicalIndex) -> None:
    name = 'col "x"; --'
    index.upsert(name, [entry("x", "oil")])

    assert ids(index, "oil", collection=name) == ["x"]
    index.delete_collection(name)


@pytest.mark.parametrize(
    "word", ["𠀀𠀁", "Привет", "Ölfilter", "ｶﾞｽ", "ﬁlter", "한국어", "\U0002b820\U0002b821"]
)
def test_words_of_any_script_are_found(index: LexicalIndex, word: str) -> None:
    index.upsert("col_1", [entry("x", f"see {word}, please"), entry("y", "see nothing")])

    assert ids(index, word) == ["x"]


def test_readers_and_writers_may_work_at_once(index: LexicalIndex) -> None:
    start = threading.Barrier(4)

    def write(name: str) -> None:
        start.wait()
        for number in range(10):
            index.upsert("col_1", [entry(f"{name}{number}", f"oil {number}", key=name)])

    def read() -> bool:
        start.wait()
        return all(len(index.query("col_1", "oil", top_k=5)) <= 5 for _ in range(30))

    with ThreadPoolExecutor(4) as pool:
        writes = [pool.submit(write, name) for name in ("a", "b")]
        reads = [pool.submit(read) for _ in range(2)]

        assert all(future.result() for future in reads)
        for future in writes:
            future.result()

    assert index.count("col_1") == 20


def test_other_forms_of_an_english_word_are_found_after_the_very_word(index: LexicalIndex) -> None:
    index.upsert("col_1", [entry("forms", "vented pumps"), entry("word", "vent pump"), entry("no", "valve")])

    assert ids(index, "How to vent a pump?") == ["word", "forms"]


def test_characters_are_found_apart_after_their_pair(index: LexicalIndex) -> None:
    index.upsert("col_1", [entry("apart", "站内有泵"), entry("pair", "泵站停机"), entry("no", "阀门")])

    assert ids(index, "泵站") == ["pair", "apart"]


def test_ping_names_the_index(index: LexicalIndex) -> None:
    assert index.ping()


# -- what only a file can do


def write_in_process(path: Path, name: str) -> None:
    with closing(FtsLexicalIndex(path)) as index:
        for number in range(10):
            index.upsert("col_1", [entry(f"{name}{number}", "oil", key=name)])


def test_processes_may_create_and_write_the_file_at_once(tmp_path: Path) -> None:
    path = tmp_path / "words.sqlite"
    context = multiprocessing.get_context("spawn")
    writers = [context.Process(target=write_in_process, args=(path, name)) for name in ("a", "b", "c")]

    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()

    assert [writer.exitcode for writer in writers] == [0, 0, 0]
    with closing(FtsLexicalIndex(path)) as index:
        assert index.count("col_1") == 30


def test_entries_survive_reopening_and_one_object_sees_what_another_writes(tmp_path: Path) -> None:
    path = tmp_path / "words.sqlite"
    with closing(FtsLexicalIndex(path)) as first, closing(FtsLexicalIndex(path)) as second:
        assert second.count("col_1") == 0
        first.upsert("col_1", [entry("x", "oil")])
        assert ids(second, "oil") == ["x"]
        first.close()
        assert ids(first, "oil") == ["x"]

    with closing(FtsLexicalIndex(path)) as third:
        assert ids(third, "oil") == ["x"]


def read_in_fork(index: FtsLexicalIndex) -> None:
    assert ids(index, "oil") == ["x"]
    index.upsert("col_1", [entry("child", "oil")])


def test_an_open_index_may_be_used_on_both_sides_of_a_fork(tmp_path: Path) -> None:
    with closing(FtsLexicalIndex(tmp_path / "words.sqlite")) as index:
        index.upsert("col_1", [entry("x", "oil")])
        child = multiprocessing.get_context("fork").Process(target=read_in_fork, args=(index,))
        child.start()
        child.join()

        assert child.exitcode == 0
        assert ids(index, "oil") == ["child", "x"]


def test_a_character_that_is_nearly_everywhere_is_left_to_its_pairs(tmp_path: Path) -> None:
    index = FtsLexicalIndex(tmp_path / "lexical.sqlite")
    index.upsert("col_1", [entry(f"e{number}", "滤油机") for number in range(2001)])
    index.upsert("col_1", [entry("pump", "泵站")])

    assert ids(index, "油泵") == ["pump"]


def test_a_damaged_file_is_reported_as_unavailable(tmp_path: Path) -> None:
    path = tmp_path / "words.sqlite"
    path.write_bytes(b"this is not a database, whatever its name says" * 100)

    with closing(FtsLexicalIndex(path)) as index, pytest.raises(LexicalIndexUnavailableError):
        index.ping()


def test_a_folder_that_cannot_be_made_is_reported_as_unavailable(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")

    with pytest.raises(LexicalIndexUnavailableError):
        FtsLexicalIndex(tmp_path / "file" / "words.sqlite").ping()


def test_a_file_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "words.sqlite"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA user_version = 99")

    with pytest.raises(ConfigurationError):
        FtsLexicalIndex(path).ping()


def test_a_failed_write_leaves_nothing_behind(tmp_path: Path) -> None:
    with closing(FtsLexicalIndex(tmp_path / "words.sqlite")) as index:
        with pytest.raises(LexicalIndexUnavailableError):
            index.upsert("col_1", [entry("x", "oil"), entry("y", "oil", key=None)])  # type: ignore[arg-type]  # makes the database refuse it

        assert index.count("col_1") == 0
        assert ids(index, "oil") == []


def test_words_and_codes_may_be_looked_for_in_some_documents(index: LexicalIndex) -> None:
    index.upsert(
        "col_1",
        [entry("a", "Alarm E-0471: oil pressure low."), entry("b", "E-0471 oil", key='it\'s "b"-g1')],
    )

    def find(keys: list[str] | None) -> tuple[set[str], set[str]]:
        words = index.query("col_1", "oil", top_k=5, document_keys=keys)
        codes = index.find_code("col_1", "E0471", top_k=5, document_keys=keys)
        return {item.chunk_id for item in words}, {item.chunk_id for item in codes}

    assert find(None) == ({"a", "b"}, {"a", "b"})
    assert find(["doc_a-g1"]) == ({"a"}, {"a"})
    assert find(['it\'s "b"-g1', "absent"]) == ({"b"}, {"b"})
    assert find([]) == (set(), set())
