from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingest.tables import (
    Cell,
    build_table,
    column_names,
    count_header_rows,
    lay_out,
    looks_like_value,
    split_titles,
)
from kb.types import Box


def cells(*rows: str) -> list[Cell]:
    return [
        Cell(number, column, text)
        for number, row in enumerate(rows)
        for column, text in enumerate(row.split("|"))
    ]


def test_rows_become_records_by_column_name() -> None:
    grid = lay_out(cells("代码|原因|处理", "E07|油温过高|检查冷却水", "E08||换滤芯"))

    table = build_table(grid, header_count=count_header_rows(grid))

    assert table.header_count == 1
    assert table.records == (
        {"代码": "E07", "原因": "油温过高", "处理": "检查冷却水"},
        {"代码": "E08", "原因": "", "处理": "换滤芯"},
    )


def test_a_cell_merged_downwards_is_repeated_in_each_row() -> None:
    grid = lay_out(
        [
            *cells("Code|Cause"),
            Cell(1, 0, "E07", row_span=2),
            Cell(1, 1, "pump"),
            Cell(2, 1, "valve"),
        ]
    )

    table = build_table(grid, header_count=1)

    assert table.shown[2] == ("E07", "valve")
    assert table.records[1] == {"Code": "E07", "Cause": "valve"}


def test_a_cell_merged_sideways_is_shown_once_and_filled_in_records() -> None:
    grid = lay_out([*cells("A|B|C"), Cell(1, 0, "x"), Cell(1, 1, "both", column_span=2)])

    table = build_table(grid, header_count=1)

    assert table.shown[1] == ("x", "both", "")
    assert table.records[0] == {"A": "x", "B": "both", "C": "both"}


def test_a_row_of_one_merged_cell_fills_the_first_column_only() -> None:
    grid = lay_out(
        [
            *cells("A|B"),
            Cell(1, 0, "Hydraulics", column_span=2),
            *(Cell(2, column, text) for column, text in enumerate(("1", "2"))),
        ]
    )

    assert build_table(grid, header_count=1).records[0] == {"A": "Hydraulics", "B": ""}


def test_two_header_rows_become_a_path() -> None:
    grid = lay_out(
        [
            Cell(0, 0, "Code", row_span=2),
            Cell(0, 1, "Limit", column_span=2),
            Cell(1, 1, "min"),
            Cell(1, 2, "max"),
            *(Cell(2, column, text) for column, text in enumerate(("E1", "3", "5"))),
        ]
    )

    assert count_header_rows(grid) == 2
    assert build_table(grid, header_count=2).columns == ("Code", "Limit / min", "Limit / max")


def test_grouped_names_over_names_are_two_header_rows() -> None:
    grid = lay_out(
        [
            Cell(0, 0, "Pump"),
            Cell(0, 1, "Limit", column_span=2),
            *(Cell(1, column, text) for column, text in enumerate(("type", "low", "high"))),
            *(Cell(2, column, text) for column, text in enumerate(("P1", "3", "5"))),
        ]
    )

    assert count_header_rows(grid) == 2


@pytest.mark.parametrize("first", ["E07|oil hot", "12|oil", "380 V|supply", "2024-05-01|done", "|||x"])
def test_a_first_row_of_data_is_no_header(first: str) -> None:
    assert count_header_rows(lay_out(cells(first, *["a" + "|b" * first.count("|")] * 2))) == 0


def test_a_single_row_is_no_header() -> None:
    assert count_header_rows(lay_out(cells("A|B"))) == 0


def test_columns_without_names_are_numbered_and_twins_told_apart() -> None:
    assert column_names([["A", "", "A"]], 3) == ("A", "column 2", "A (2)")


def test_titles_above_a_table_are_parted_from_it() -> None:
    titles, grid = split_titles(
        lay_out(
            [
                Cell(0, 0, "Inspection sheet", column_span=2),
                Cell(1, 0, "Line 4"),
                *(
                    Cell(row + 2, column, text)
                    for row, pair in enumerate((("Item", "Limit"), ("Oil", "40")))
                    for column, text in enumerate(pair)
                ),
            ]
        )
    )

    assert titles == ["Inspection sheet", "Line 4"]
    assert grid.filled == (("Item", "Limit"), ("Oil", "40"))
    assert grid.cells[0].row == 0


def test_a_cell_merged_down_the_first_column_is_no_title() -> None:
    titles, _ = split_titles(lay_out([Cell(0, 0, "E07", row_span=2), Cell(1, 1, "x")]))

    assert titles == []


def test_blank_rows_and_columns_are_left_out_and_spans_shrink() -> None:
    grid = lay_out([Cell(0, 1, "A"), Cell(0, 3, "B", column_span=2), Cell(2, 1, "c"), Cell(2, 3, "d\ne")])

    assert grid.filled == (("A", "B", "B"), ("c", "d e", ""))


def test_no_cells_are_no_grid() -> None:
    assert lay_out([]).width == 0
    assert lay_out([Cell(0, 0, " ")]).filled == ()


def test_rows_have_the_box_around_their_cells() -> None:
    grid = lay_out([Cell(0, 0, "a", box=Box(0, 0, 5, 5)), Cell(0, 1, "b", box=Box(5, 1, 9, 6))])

    assert grid.row_boxes == (Box(0, 0, 9, 6),)


@pytest.mark.parametrize(
    "text", ["12", "-5 °C", "7.5 kW", "E-0471", "2024-05-01", "30%", "≥ 3 MPa", "E 0471"]
)
def test_values_are_told_from_names(text: str) -> None:
    assert looks_like_value(text)


@pytest.mark.parametrize("text", ["Code", "检查项目", "Limit (mm)", "Step 2 of the plan"])
def test_names_are_told_from_values(text: str) -> None:
    assert not looks_like_value(text)


@given(st.lists(st.lists(st.text("ab中1 ", max_size=4), min_size=1, max_size=4), min_size=1, max_size=5))
def test_records_cover_every_word_of_the_table(rows: list[list[str]]) -> None:
    grid = lay_out([Cell(r, c, text) for r, row in enumerate(rows) for c, text in enumerate(row)])
    header_count = count_header_rows(grid)

    table = build_table(grid, header_count=header_count)

    words = {word for row in rows for text in row for word in text.split()}
    kept = {word for record in table.records for text in record.values() for word in text.split()}
    kept |= {word for row in table.shown[:header_count] for text in row for word in text.split()}
    assert words == kept
    assert all(len(record) == grid.width for record in table.records)


@st.composite
def merged_cells(draw: st.DrawFn) -> list[Cell]:
    """Cells that fill a grid without overlapping, some merged over rows and columns."""
    height, width = draw(st.integers(1, 5)), draw(st.integers(1, 4))
    free = {(row, column) for row in range(height) for column in range(width)}
    found: list[Cell] = []
    for row, column in sorted(free):
        if (row, column) not in free:
            continue
        down, right = draw(st.integers(1, height - row)), draw(st.integers(1, width - column))
        while not free.issuperset(places := _places(row, column, down, right)):
            down, right = (down - 1, right) if down > 1 else (1, right - 1)
        free -= places
        text = draw(st.sampled_from(["", "", f"n{row}{column}", f"阀 {row}{column}", f"a{row} b{column}"]))
        found.append(Cell(row, column, text, down, right))
    return found


def _places(row: int, column: int, down: int, right: int) -> set[tuple[int, int]]:
    return {(r, c) for r in range(row, row + down) for c in range(column, column + right)}


@given(merged_cells())
def test_each_record_holds_the_cells_of_its_row_and_no_others(drawn: list[Cell]) -> None:
    grid = lay_out(drawn)
    header_count = count_header_rows(grid)

    table = build_table(grid, header_count=header_count)

    rows = range(max(cell.row + cell.row_span for cell in drawn))
    texts = [
        {cell.text for cell in drawn if cell.text and cell.row <= row < cell.row + cell.row_span}
        for row in rows
    ]
    wanted = [words for words in texts if words]
    assert [{text for text in record.values() if text} for record in table.records] == wanted[header_count:]
    in_columns = {part for column in table.columns for part in column.split(" / ")}
    assert all(words <= in_columns for words in wanted[:header_count])
