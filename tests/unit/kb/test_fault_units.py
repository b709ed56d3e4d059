from __future__ import annotations

from kb.fault_units import list_code_rows, list_fault_units, list_faults_of, place_on_page
from kb.types import Block, BlockKind, Box, Chunk, Fault, FaultKind, Line, Page, Passage, Span
from tests.unit.kb.stand_ins import make_passage

HEADER = "故障代码 | 现象 | 原因 | 处理"


def row_passage(*rows: tuple[str, str, str, str], rank: int = 0, name: str = "manual.pdf") -> Passage:
    """Return a passage of a fault table."""
    records = tuple(dict(zip(HEADER.split(" | "), row, strict=True)) for row in rows)
    text = "\n".join(" | ".join(row) for row in rows)
    return make_passage(
        text,
        rank=rank,
        name=name,
        document_id=name,
        context=HEADER,
        records=records,
        heading_path=("8 故障",),
    )


PRESS = row_passage(
    ("E-0461", "传感器异常", "断线", "检查接线"), ("E-0471", "压力低", "漏气", "补氮气，见 E-0461")
)


def kinds(faults: list[Fault]) -> list[tuple[FaultKind, str]]:
    return [(fault.kind, fault.document_name) for fault in faults]


def test_the_row_of_the_code_has_fields_columns_and_place() -> None:
    (fault,) = list_faults_of("E0471", [PRESS])

    assert (fault.code, fault.description, fault.cause, fault.remedy) == (
        "E-0471",
        "压力低",
        "漏气",
        "补氮气，见 E-0461",
    )
    assert fault.record == {
        "故障代码": "E-0471",
        "现象": "压力低",
        "原因": "漏气",
        "处理": "补氮气，见 E-0461",
    }
    assert fault.quote == "E-0471 | 压力低 | 漏气 | 补氮气，见 E-0461"
    assert PRESS.chunk.text[fault.char_start : fault.char_end] == fault.quote
    assert (fault.document_id, fault.page_number, fault.heading_path) == ("manual.pdf", 1, ("8 故障",))


def test_rows_go_before_sections_and_those_before_mentions() -> None:
    section = make_passage(
        "E-0461 传感器\n原因：断线", rank=2, name="notes.md", document_id="n", heading_path=("E-0461 传感器",)
    )
    sentence = make_passage("压力低于 4.5 MPa 时报警 E-0461。", rank=3, name="a.txt", document_id="a")

    faults = list_faults_of("E0461", [sentence, section, PRESS])

    assert kinds(faults) == [
        (FaultKind.ROW, "manual.pdf"),
        (FaultKind.SECTION, "notes.md"),
        (FaultKind.MENTION, "manual.pdf"),
        (FaultKind.MENTION, "a.txt"),
    ]
    assert faults[2].code == "E-0471"  # the row that only refers to it keeps its own code
    assert (faults[3].code, faults[3].description, faults[3].cause) == ("E-0461", "", "")


def test_a_manual_goes_before_work_orders_that_carry_the_code() -> None:
    columns = ("工单", "故障代码", "故障现象", "原因", "处理措施")
    orders = [(f"WO-{n}", "E-0461", "无信号", "插头松", "插紧") for n in (1, 2)]
    records = tuple(dict(zip(columns, order, strict=True)) for order in orders)
    text = "\n".join(" | ".join(order) for order in orders)
    log = make_passage(text, rank=1, name="a.csv", document_id="log", records=records)

    faults = list_faults_of("E0461", [log, PRESS])

    rows = [fault.document_name for fault in faults if fault.kind is FaultKind.ROW]
    assert rows == ["manual.pdf", "a.csv", "a.csv"]


def test_every_document_that_defines_the_code_is_there() -> None:
    other = row_passage(("E 0471", "蓄能器", "旧", "换"), rank=1, name="other.pdf")

    faults = list_faults_of("E0471", [PRESS, other])

    assert kinds(faults) == [(FaultKind.ROW, "manual.pdf"), (FaultKind.ROW, "other.pdf")]
    assert faults[1].code == "E 0471"


def test_a_section_runs_over_its_chunks_and_subsections() -> None:
    path = ("8 Faults", "8.1 E-12 Oil hot")
    first = make_passage(
        "8.1 E-12 Oil hot\nThe press stops.", rank=0, heading_path=path, context=" > ".join(path)
    )
    cause = make_passage(
        "Possible causes\nCooler dirty.", rank=1, heading_path=(*path, "Possible causes"), offset=200
    )
    remedy = make_passage("Remedy\nClean it.", rank=2, heading_path=(*path, "Remedy"), offset=300)

    (fault,) = list_faults_of("E12", [remedy, first, cause])

    assert fault.kind is FaultKind.SECTION
    assert (fault.code, fault.description) == ("E-12", "Oil hot")
    assert (fault.cause, fault.remedy) == ("Cooler dirty.", "Clean it.")
    assert fault.record == {"Possible causes": "Cooler dirty.", "Remedy": "Clean it."}
    assert fault.quote == first.chunk.text
    assert fault.heading_path == path


def test_a_table_below_a_heading_with_the_code_fills_the_fields() -> None:
    passage = make_passage(
        "E-12 Oil hot\nCooler dirty | Clean it\nPump worn | Replace it",
        heading_path=("E-12 Oil hot",),
        context="E-12 Oil hot\nCause | Remedy",
        records=(
            {"Cause": "Cooler dirty", "Remedy": "Clean it"},
            {"Cause": "Pump worn", "Remedy": "Replace it"},
        ),
    )

    (fault,) = list_faults_of("E12", [passage])

    assert (fault.cause, fault.remedy) == ("Cooler dirty\nPump worn", "Clean it\nReplace it")


def test_a_line_that_begins_with_the_code_is_a_section_up_to_the_next_code() -> None:
    text = (
        "Alarms of the saw.\n- E-11: Belt slips.\n- E-12: Oil hot.\nCause: cooler dirty.\n- E-13: Door open."
    )

    (fault,) = list_faults_of("E12", [make_passage(text)])

    assert fault.kind is FaultKind.SECTION
    assert fault.quote == "- E-12: Oil hot.\nCause: cooler dirty."
    assert (fault.description, fault.cause) == ("Oil hot", "cooler dirty.")


def test_a_code_in_the_middle_of_a_line_is_a_mention() -> None:
    text = "The press stopped. E-12 was shown twice."

    (fault,) = list_faults_of("E12", [make_passage(text)])

    assert fault.kind is FaultKind.MENTION
    assert fault.quote == "E-12 was shown twice."


def test_a_neighbour_is_never_found() -> None:
    assert list_faults_of("E0472", [PRESS]) == []
    assert list_faults_of("E047", [PRESS]) == []


def test_numbers_are_found_in_the_column_of_codes() -> None:
    records = ({"报警号": "414", "内容": "伺服报警"}, {"报警号": "415", "内容": "414 mm"})
    passage = make_passage("414 | 伺服报警\n415 | 414 mm", records=records)

    (fault,) = list_code_rows("414", [passage])

    assert (fault.code, fault.description) == ("414", "伺服报警")


def test_rows_and_sections_that_describe_faults_are_told_from_others() -> None:
    parts = make_passage(
        "LX-250 | 滤芯", rank=1, document_id="p", records=({"件号": "LX-250", "名称": "滤芯"},)
    )
    symptom = make_passage(
        "油液呈乳白色，说明油中进水。停机换油。", rank=2, document_id="s", heading_path=("7 故障", "油液发白")
    )
    labelled = make_passage("Pump howls. Cause: air in the oil.", rank=3, document_id="l")
    prose = make_passage("The press weighs 8 t.", rank=4, document_id="w", heading_path=("Data",))

    found = list_fault_units([PRESS, parts, symptom, labelled, prose])

    assert [(item.fault.document_id, item.fault.description) for item in found] == [
        ("manual.pdf", "传感器异常"),
        ("manual.pdf", "压力低"),
        ("s", "油液发白"),
        ("l", ""),
    ]
    assert found[2].fault.quote == symptom.chunk.text
    assert found[3].fault.cause == "air in the oil."


def make_page() -> Page:
    text = "head\nE-0471 | low | leak\nrest of the leak | refill\nlast"
    return Page(
        7,
        text,
        width=595.0,
        height=842.0,
        blocks=(Block(BlockKind.TABLE_ROW, 5, 50, box=Box(1, 2, 3, 4), record={"Code": "E-0471"}),),
        lines=(
            Line(0, 4, Box(0, 0, 9, 9)),
            Line(5, 24, Box(10, 10, 60, 20)),
            Line(25, 50, Box(5, 20, 50, 30)),
        ),
    )


def make_fault(page: Page, *, end: int, record: dict[str, str]) -> Fault:
    chunk = Chunk("c", "d", 1, 0, page.text[5:end], (Span(7, 5, end),), records=(record,) if record else ())
    passage = Passage(chunk, "m.pdf", 1.0, 0)
    return list_faults_of("E0471", [passage])[0]


def test_a_row_is_placed_with_all_of_its_cells() -> None:
    page = make_page()
    fault = make_fault(page, end=24, record={"Code": "E-0471", "Cause": "leak"})

    placed = place_on_page(fault, page)

    assert placed.box == Box(1, 2, 3, 4)
    assert placed.quote == page.text[5:50] == page.text[placed.char_start : placed.char_end]


def test_a_section_is_placed_by_its_lines() -> None:
    page = make_page()
    fault = make_fault(page, end=50, record={})

    placed = place_on_page(fault, page)

    assert placed.box == Box(5, 10, 60, 30)
    assert placed.quote == fault.quote


def test_a_page_with_another_text_gives_no_box() -> None:
    page = make_page()
    fault = make_fault(page, end=24, record={"Code": "E-0471"})

    assert place_on_page(fault, Page(7, "something else", width=1.0, height=1.0)) == fault
