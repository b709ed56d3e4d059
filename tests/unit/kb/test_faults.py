from __future__ import annotations

from pathlib import Path

import pytest

from ingest.chunking import Chunker
from ingest.parsers.csv import CsvParser
from kb.adapters.memory_lexical import MemoryLexicalIndex
from kb.errors import CallerError, CodeUnknownError
from kb.faults import FaultFinder
from kb.ports import LexicalEntry
from kb.retrieval import ANY, Retrieval, Retriever
from kb.types import Block, BlockKind, Box, Chunk, Collection, Fault, FaultKind, Page, Passage, Scope
from tests.unit.kb.stand_ins import COLLECTION, DenseSide, Library, make_chunk

COLUMNS = ("故障代码", "故障现象", "可能原因", "处理措施")
ROWS = (
    ("E-0401", "油温高于 60 °C，报警", "冷却水不足，或冷却器结垢", "检查水流量，清洗冷却器"),
    ("E-0421", "吸油滤芯堵塞", "真空度超过 0.02 MPa", "停泵，更换吸油滤芯 LX-250"),
    ("E-0471", "蓄能器压力低，充液阀动作缓慢", "皮囊漏气", "补充氮气到 5.5 MPa"),
)
TABLE = make_chunk(
    "\n".join(" | ".join(row) for row in ROWS),
    chunk_id="table",
    document_id="press",
    page=12,
    context=" | ".join(COLUMNS),
    heading_path=("7 故障处理", "7.2 故障代码"),
    records=tuple(dict(zip(COLUMNS, row, strict=True)) for row in ROWS),
)
ENGLISH_COLUMNS = ("Code", "Fault", "Cause", "Remedy")
ENGLISH_ROWS = (
    ("F30012", "Motor overload", "Motor current too high", "Reduce the load"),
    ("F30015", "Heat sink hot", "Filter mat clogged", "Clean the filter mat"),
)
ENGLISH = make_chunk(
    "\n".join(" | ".join(row) for row in ENGLISH_ROWS),
    chunk_id="english",
    document_id="drive",
    page=9,
    context=" | ".join(ENGLISH_COLUMNS),
    heading_path=("8 Faults",),
    records=tuple(dict(zip(ENGLISH_COLUMNS, row, strict=True)) for row in ENGLISH_ROWS),
)
CANTEEN = make_chunk("食堂十二点开门，周五供应鱼。", chunk_id="canteen", document_id="canteen")
NOTE = make_chunk("压力低于 4.5 MPa 时报警 E-0471。", chunk_id="note", document_id="press", page=9)
SHELF = (TABLE, ENGLISH, CANTEEN, NOTE)


class Fixed:
    """A retriever that finds what it was given."""

    def __init__(self, found: Retrieval) -> None:
        self._found = found

    def retrieve(self, collection: Collection, query: str, *, top_k: int, scope: Scope = ANY) -> Retrieval:
        return self._found


def make_library(*chunks: Chunk) -> Library:
    return Library(*((chunk, f"{chunk.document_id}.pdf") for chunk in chunks or SHELF))


def make_finder(library: Library, *, found: Retrieval | None = None, threshold: float = 0.5) -> FaultFinder:
    lexical = MemoryLexicalIndex()
    lexical.upsert(
        COLLECTION.id,
        [
            LexicalEntry(chunk.id, f"{chunk.document_id}-g1", chunk.indexed_text)
            for chunk, _ in library.chunks.values()
        ],
    )
    retriever = Retriever(
        embedder=library,
        vectors=DenseSide(library),  # type: ignore[arg-type]
        lexical=lexical,
        catalog=library,  # type: ignore[arg-type]
        candidates=10,
        evidence_threshold=threshold,
    )
    return FaultFinder(
        retriever=Fixed(found) if found is not None else retriever,
        embedder=library,
        lexical=lexical,
        catalog=library,  # type: ignore[arg-type]
    )


def look_up(code: str, *, library: Library | None = None, limit: int = 20) -> tuple[Fault, ...]:
    return make_finder(library or make_library()).look_up(COLLECTION, code, limit=limit).faults


def search(symptom: str, *, library: Library | None = None, top_k: int = 5) -> tuple[Fault, ...]:
    return make_finder(library or make_library()).search(COLLECTION, symptom, top_k=top_k).faults


@pytest.mark.parametrize(
    "spelling", ["E-0471", "e0471", "Ｅ－０４７１", "E 0471", "E.0471", "E_0471", " E0471 "]
)
def test_all_spellings_find_the_row_and_then_the_mention(spelling: str) -> None:
    faults = look_up(spelling)

    assert [(fault.kind, fault.document_id, fault.page_number) for fault in faults] == [
        (FaultKind.ROW, "press", 12),
        (FaultKind.MENTION, "press", 9),
    ]
    assert (faults[0].code, faults[0].description, faults[0].cause, faults[0].remedy) == ROWS[2]
    assert faults[0].score is None


def test_an_unknown_code_is_an_error_with_the_nearest_codes_as_written() -> None:
    with pytest.raises(CodeUnknownError) as caught:
        look_up("E-0472")

    assert caught.value.code == "code_unknown"
    assert caught.value.suggestions[:2] == ("E-0471", "E-0421")
    assert "E-0471" in caught.value.next_step


@pytest.mark.parametrize(("typed", "meant"), [("EO471", "E-0471"), ("F3OOl5", "F30015")])
def test_look_alikes_are_a_suggestion_only(typed: str, meant: str) -> None:
    with pytest.raises(CodeUnknownError) as caught:
        look_up(typed)

    assert caught.value.suggestions[0] == meant


@pytest.mark.parametrize("typed", ["E-O10O", "EO-100"])
def test_codes_that_begin_alike_are_enough_among_many(typed: str) -> None:
    rows = tuple({"代码": f"E-{number:04d}", "现象": "过流"} for number in range(90, 110))
    text = "\n".join(" | ".join(row.values()) for row in rows)

    with pytest.raises(CodeUnknownError) as caught:
        look_up(typed, library=make_library(make_chunk(text, records=rows)))

    assert caught.value.suggestions[0] == "E-0100"
    assert len(caught.value.suggestions) == 5


def test_an_empty_collection_knows_no_code() -> None:
    with pytest.raises(CodeUnknownError) as caught:
        make_finder(Library()).look_up(COLLECTION, "E-0471", limit=5)

    assert caught.value.suggestions == ()
    assert "ingest" in caught.value.next_step


def test_documents_that_are_not_visible_neither_answer_nor_suggest() -> None:
    library = make_library()
    library.hidden = {"table", "note"}

    with pytest.raises(CodeUnknownError) as caught:
        look_up("E-0471", library=library)

    assert caught.value.suggestions == ()


@pytest.mark.parametrize("text", ["油温过高", "油温2", "", "  ", "--"])
def test_what_can_not_be_a_code_is_refused_with_the_way_to_search(text: str) -> None:
    with pytest.raises(CallerError, match="not a code") as caught:
        look_up(text)

    assert caught.value.code == "invalid_request"
    assert "faults/search" in caught.value.next_step


def test_numbers_and_words_are_codes_in_their_column() -> None:
    rows = (
        {"报警号": "414", "内容": "伺服报警", "处理": "检查"},
        {"报警号": "OC", "内容": "过流", "处理": "减载"},
    )
    library = make_library(make_chunk("414 | 伺服报警 | 检查\nOC | 过流 | 减载", records=rows), CANTEEN)

    assert look_up("414", library=library)[0].description == "伺服报警"
    assert look_up("oc", library=library)[0].description == "过流"
    with pytest.raises(CodeUnknownError):
        look_up("415", library=library)


def test_a_word_and_a_number_are_found_below_that_word() -> None:
    rows = ({"Alarm": "2", "Meaning": "Soft limit"}, {"Alarm": "3", "Meaning": "Abort"})
    library = make_library(make_chunk("2 | Soft limit\n3 | Abort", context="Alarm | Meaning", records=rows))

    assert [fault.description for fault in look_up("ALARM:3", library=library)] == ["Abort"]


def test_the_limit_cuts_and_the_total_counts_all() -> None:
    found = make_finder(make_library()).look_up(COLLECTION, "E-0471", limit=1)

    assert (len(found.faults), found.total) == (1, 2)


def test_a_page_with_a_layout_gives_the_box_and_is_read_once() -> None:
    library = make_library()
    start = TABLE.text.index("E-0471")
    library.pages["press", 12] = Page(
        12,
        TABLE.text,
        width=595.0,
        height=842.0,
        blocks=(
            Block(BlockKind.TABLE_ROW, start, len(TABLE.text), box=Box(1, 2, 3, 4), record=TABLE.records[2]),
        ),
    )

    faults = look_up("E-0471", library=library)

    assert [fault.box for fault in faults] == [Box(1, 2, 3, 4), None]
    assert sorted(library.pages_read) == [("press", 9), ("press", 12)]


def test_a_symptom_finds_its_row_with_a_score() -> None:
    faults = search("充液阀动作很慢，蓄能器压力低")

    assert faults[0].code == "E-0471"
    assert faults[0].score is not None
    assert 0 < faults[0].score <= 1
    assert "E-0401" not in [fault.code for fault in faults]


def test_an_english_symptom_finds_an_english_row() -> None:
    assert search("motor overload")[0].code == "F30012"


def test_other_documents_answer_no_symptom() -> None:
    assert search("食堂几点开门") == ()


def test_a_symptom_that_nothing_fits_gives_an_empty_list() -> None:
    found = make_finder(make_library()).search(COLLECTION, "法国现任总统是谁", top_k=5)

    assert found.faults == ()
    assert found.evidence < 0.5


def test_a_code_within_the_symptom_goes_first_and_an_unknown_one_ends_it() -> None:
    assert search("E-0421 报警以后油温很高")[0].code == "E-0421"

    found = make_finder(make_library()).search(COLLECTION, "E-0472 蓄能器压力低", top_k=5)
    assert (found.faults, found.unknown_codes) == ((), ("E-0472",))


def find_across(*chunks: Chunk, own: float = 0.2, across: float = 0.8) -> tuple[Fault, ...]:
    """Search for a Chinese symptom that shares words with English documents only."""
    passages = tuple(Passage(chunk, "m.pdf", 1.0, rank) for rank, chunk in enumerate(chunks))
    found = Retrieval(
        passages=passages, evidence=max(own, across), evidence_by_language={"zh": own, "en": across}
    )
    return (
        make_finder(make_library(), found=found).search(COLLECTION, "电机过载 motor overload", top_k=9).faults
    )


def test_faults_in_another_language_are_compared_by_their_vectors() -> None:
    faults = find_across(ENGLISH)

    assert [(fault.code, fault.score) for fault in faults] == [("F30012", 0.8)]


def test_another_language_without_evidence_gives_nothing() -> None:
    assert find_across(ENGLISH, own=0.6, across=0.4) == ()


def test_a_sentence_on_something_else_that_is_nearer_rules_faults_out() -> None:
    other = make_chunk("Motor overload.", chunk_id="other", document_id="other")

    assert find_across(other, ENGLISH) == ()


def test_a_good_fit_in_the_own_language_goes_first() -> None:
    record = {"代码": "E-0201", "现象": "电机过载 motor overload", "处理": "停机"}
    own = make_chunk("E-0201 | 电机过载 motor overload | 停机", chunk_id="own", records=(record,))

    alike = find_across(own, ENGLISH, own=0.8, across=0.8)
    assert [fault.code for fault in alike] == ["E-0201", "F30012"]
    assert [fault.score for fault in alike] == sorted((fault.score or 0.0 for fault in alike), reverse=True)
    assert [fault.code for fault in find_across(own, ENGLISH, own=0.95, across=0.6)] == ["E-0201"]


def test_a_remedy_that_holds_the_words_is_no_symptom() -> None:
    record = {"Code": "F1", "Fault": "Earth fault", "Remedy": "Do not reset the password"}
    library = make_library(
        make_chunk("F1 | Earth fault | Do not reset the password", records=(record,)), CANTEEN
    )

    assert search("reset the password", library=library) == ()


def test_the_number_of_faults_is_limited() -> None:
    assert len(search("E-0471 E-0421 E-0401 油温滤芯压力", top_k=2)) == 2


def test_a_work_order_export_is_a_source_like_any_other(tmp_path: Path) -> None:
    path = tmp_path / "orders.csv"
    path.write_text(
        "工单号,日期,设备,故障代码,故障现象,原因,处理措施,备件\n"
        "WO-0811,2024-08-12,YL315-02,E-0401,油温 61 °C,水阀未全开,打开水阀,\n"
        "WO-0822,2024-08-16,YL315-03,E-0203 / F30015,油泵停转,滤网堵塞,更换滤网,FM-9\n"
        "WO-0823,2024-08-16,CV-05,,输送带停止,拉绳被拉长,张紧拉绳,\n",
        "utf-8",
    )
    parsed = CsvParser().parse(path, name=path.name, password=None, progress=lambda _done, _all: None)
    chunks = Chunker(count_tokens=len, max_tokens=400, overlap_tokens=0).chunk(
        parsed, document_id="orders", generation=1
    )
    library = make_library(*chunks, TABLE)

    (order,) = look_up("f30015", library=library)
    assert (order.code, order.description, order.cause, order.remedy) == (
        "F30015",
        "油泵停转",
        "滤网堵塞",
        "更换滤网",
    )
    assert order.record["设备"] == "YL315-03"
    assert [fault.document_id for fault in look_up("E0401", library=library)] == ["press", "orders"]
    assert search("输送带停止", library=library)[0].record["工单号"] == "WO-0823"
