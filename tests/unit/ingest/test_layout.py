from __future__ import annotations

import pytest

from ingest.layout import find_title, lay_out_pages, measure_typography
from ingest.lines import PageContent, PlacedTable, TextLine, Word, group_rows
from ingest.reading_order import in_reading_order
from ingest.tables import Cell, lay_out
from ingest.unruled import find_unruled_tables
from kb.types import BlockKind, Box, TextSource
from tests.unit.ingest.parsing import outline, records


def line(
    text: str, x: float, y: float, *, size: float = 10, width: float | None = None, bold: bool = False
) -> TextLine:
    width = width if width is not None else 0.5 * size * len(text.encode("gb18030"))
    words, at = [], x
    for word in text.split(" "):
        words.append(Word(word, at, at + 0.5 * size * len(word)))
        at += 0.5 * size * (len(word) + 1)
    return TextLine(text, Box(x, y, x + width, y + size), size, bold, tuple(words))


def page(
    *lines: TextLine,
    number: int = 1,
    source: TextSource = TextSource.TEXT,
    tables: tuple[PlacedTable, ...] = (),
) -> PageContent:
    return PageContent(number, 600, 800, lines, tables, source=source)


def prose(x: float, y: float, count: int, label: str, *, width: float = 220) -> list[TextLine]:
    return [line(f"{label} {n} runs on to the border", x, y + 12 * n, width=width) for n in range(count)]


def order(lines: list[TextLine]) -> list[str]:
    return [item.text for item in in_reading_order(lines) if isinstance(item, TextLine)]


def test_columns_are_read_one_after_the_other_below_a_title() -> None:
    left, right = prose(50, 100, 6, "left"), prose(320, 100, 6, "right")
    title = line("A title across", 200, 60, size=16)

    assert order([*right, title, *left]) == [item.text for item in [title, *left, *right]]


def test_a_picture_caption_across_parts_the_columns() -> None:
    upper = prose(50, 100, 4, "upper left"), prose(320, 100, 4, "upper right")
    across = line("across " * 12, 50, 200, width=490)
    lower = prose(50, 240, 4, "lower left"), prose(320, 240, 4, "lower right")

    found = order([*lower[1], *lower[0], across, *upper[1], *upper[0]])

    assert found == [item.text for item in [*upper[0], *upper[1], across, *lower[0], *lower[1]]]


def test_three_columns_are_read_in_turn() -> None:
    columns = [prose(x, 100, 5, f"column {x}", width=150) for x in (40, 220, 400)]

    assert order([item for row in zip(*columns, strict=True) for item in row]) == [
        item.text for column in columns for item in column
    ]


def test_labels_and_values_are_read_row_by_row() -> None:
    rows = [(line(f"Name {n}", 50, 100 + 20 * n), line(f"v{n}", 300, 100 + 20 * n)) for n in range(5)]

    assert order([item for row in rows for item in reversed(row)]) == [
        item.text for row in rows for item in row
    ]


def test_vertical_writing_goes_from_right_to_left() -> None:
    columns = [TextLine(f"縦書き{n}", Box(x, 50, x + 12, 200), 12) for n, x in enumerate((300, 270, 240))]

    assert order(list(reversed(columns))) == ["縦書き0", "縦書き1", "縦書き2"]
    read = lay_out_pages([page(*columns)])[0]
    assert [kind for kind, _ in outline(read)] == ["paragraph"]


def test_rows_do_not_creep_down_the_page() -> None:
    steps = [line(str(n), 50 + 40 * n, 100 + 4 * n) for n in range(6)]

    assert max(len(row) for row in group_rows(steps)) < 4


TABLE = (("E01", "oil hot", "60"), ("E02", "", "20"), ("E03", "filter", "2"))


def table_lines(*, x: tuple[float, ...] = (50, 150, 300), y: float = 100) -> list[TextLine]:
    return [
        line(text, at, y + 15 * n)
        for n, row in enumerate(TABLE)
        for at, text in zip(x, row, strict=True)
        if text
    ]


def test_rows_under_each_other_are_a_table() -> None:
    tables, rest = find_unruled_tables([*table_lines(), line("Some prose below the table.", 50, 200)])

    assert [item.text for item in rest] == ["Some prose below the table."]
    assert tables[0].grid.filled == TABLE
    assert tables[0].edges[0] == 50


def test_names_above_that_stand_close_belong_to_the_table() -> None:
    header = TextLine(
        "Code Cause Limit",
        Box(50, 85, 330, 95),
        10,
        words=(Word("Code", 50, 70), Word("Cause", 150, 175), Word("Limit", 300, 325)),
    )

    tables, rest = find_unruled_tables([header, *table_lines()])

    assert rest == []
    assert tables[0].grid.filled[0] == ("Code", "Cause", "Limit")


def test_a_sentence_above_is_no_header() -> None:
    sentence = line("The following table shows all faults of the drive and their limits", 50, 85)

    tables, rest = find_unruled_tables([sentence, *table_lines()])

    assert rest == [sentence]
    assert len(tables) == 1


def test_a_second_line_in_a_cell_goes_to_the_row_above() -> None:
    more = [line("and dirty", 150, 141)]

    tables, rest = find_unruled_tables([*table_lines(), *more])

    assert rest == []
    assert tables[0].grid.filled[2] == ("E03", "filter and dirty", "2")


def test_a_list_and_two_columns_of_prose_are_no_tables() -> None:
    bullets = [
        item
        for n in range(5)
        for item in (line("•", 50, 100 + 14 * n), line(f"check part {n}", 80, 100 + 14 * n))
    ]
    columns = [*prose(50, 300, 6, "left"), *prose(320, 300, 6, "right")]

    tables, rest = find_unruled_tables([*bullets, *columns])

    assert tables == []
    assert len(rest) == len(bullets) + len(columns)


def test_paragraphs_end_at_short_sentences_indents_and_gaps() -> None:
    lines = [
        *prose(50, 100, 2, "one"),
        line("ends here.", 50, 124),
        *prose(50, 136, 2, "two"),
        *prose(50, 190, 2, "three"),
    ]

    read = lay_out_pages([page(*lines)])[0]

    assert [text.split(" ")[0] for _, text in outline(read)] == ["one", "two", "three"]


def test_a_sentence_goes_on_in_the_next_column() -> None:
    read = lay_out_pages([page(*prose(50, 100, 5, "left"), *prose(320, 100, 5, "right"))])[0]

    assert len(read.blocks) == 1


def test_bold_lines_alone_are_headings_below_those_by_size() -> None:
    lines = [
        line("Big", 50, 60, size=20),
        *prose(50, 100, 5, "a", width=400),
        line("Bold name", 50, 175, bold=True),
        *prose(50, 190, 5, "b", width=400),
    ]

    assert [
        entry for entry in outline(lay_out_pages([page(*lines)])[0]) if entry[0].startswith("heading")
    ] == [
        ("heading1", "Big"),
        ("heading2", "Bold name"),
    ]


def test_a_heading_of_two_lines_is_one_block_and_a_caption_is_none() -> None:
    lines = [
        line("Hydraulic press", 50, 60, size=20),
        line("operating manual", 50, 84, size=20),
        *prose(50, 120, 5, "a", width=400),
        line("Table 3 Limits", 50, 200, size=14),
        line("12", 50, 230, size=14),
    ]

    found = outline(lay_out_pages([page(*lines)])[0])

    assert [text for kind, text in found if kind.startswith("heading")] == [
        "Hydraulic press operating manual"
    ]


def test_list_items_keep_their_further_lines() -> None:
    lines = [
        line("1. Stop the press and lock the main switch so that", 50, 100),
        line("nobody can start it again.", 62, 112),
        line("2. Open the cover.", 50, 124),
        line("Then go on with the work.", 50, 136),
    ]

    assert outline(lay_out_pages([page(*lines)])[0])[:2] == [
        ("list_item", "1. Stop the press and lock the main switch so that nobody can start it again."),
        ("list_item", "2. Open the cover."),
    ]


def ruled(*rows: str, x: float = 50, y: float = 100) -> PlacedTable:
    cells = [Cell(n, c, text) for n, row in enumerate(rows) for c, text in enumerate(row.split("|"))]
    return PlacedTable(lay_out(cells), Box(x, y, x + 300, y + 100), (x, x + 100, x + 300))


@pytest.mark.parametrize("text", ["续表 3-1", "Table 3 (continued)"])
def test_a_continued_table_may_say_so(text: str) -> None:
    pages = lay_out_pages(
        [
            page(tables=(ruled("Code|Cause", "E1|hot"),)),
            page(line(text, 50, 90), number=2, tables=(ruled("E2|low", "E3|dry"),)),
        ]
    )

    assert records(pages[1]) == [{"Code": "E2", "Cause": "low"}, {"Code": "E3", "Cause": "dry"}]


def test_a_table_elsewhere_on_the_next_page_is_another() -> None:
    pages = lay_out_pages(
        [page(tables=(ruled("Code|Cause", "E1|hot"),)), page(number=2, tables=(ruled("A|B", "c|d", x=120),))]
    )

    assert records(pages[1]) == [{"A": "c", "B": "d"}]
    assert pages[1].blocks[0].table_index == 1


def test_the_title_row_of_a_table_stands_above_it() -> None:
    cells = [
        Cell(0, 0, "Faults", column_span=2),
        *(Cell(n + 1, c, t) for n, r in enumerate(("A|B", "1|2")) for c, t in enumerate(r.split("|"))),
    ]
    table = PlacedTable(lay_out(cells), Box(50, 100, 350, 200), (50, 100, 350))

    assert outline(lay_out_pages([page(tables=(table,))])[0])[0] == ("paragraph", "Faults")


def test_page_numbers_alone_are_furniture_wherever_they_alternate() -> None:
    pages = lay_out_pages(
        [
            page(line(f"text {n} " * 5, 50, 300), line(f"- {n} -", 50 if n % 2 else 500, 780), number=n)
            for n in (1, 2, 3, 4)
        ]
    )

    for read in pages:
        assert [block.kind for block in read.blocks] == [BlockKind.PARAGRAPH, BlockKind.PAGE_FOOTER]


def test_what_most_pages_say_and_nothing_else_is_no_furniture() -> None:
    labels = lay_out_pages(
        [page(line(f"Spare part {n}", 50, 30), line(f"{n} / 4", 300, 790), number=n) for n in (1, 2, 3, 4)]
    )
    manual = lay_out_pages(
        [
            *(page(line("HP-200", 50, 30), *prose(50, 100 + 20 * n, 3, f"a{n}"), number=n) for n in (1, 2)),
            page(line("HP-200", 50, 30), number=3),
        ]
    )

    assert [outline(read) for read in labels] == [
        [("paragraph", f"Spare part {n}"), ("page_footer", f"{n} / 4")] for n in (1, 2, 3, 4)
    ]
    assert outline(manual[2]) == [("page_header", "HP-200")]


def test_a_single_page_has_no_furniture() -> None:
    read = lay_out_pages([page(line("HP-200", 50, 20), *prose(50, 100, 3, "a"))])[0]

    assert not any(block.kind.is_furniture for block in read.blocks)


def test_sizes_are_weighed_by_their_characters() -> None:
    found = measure_typography([page(line("Big", 0, 0, size=20), *prose(0, 50, 3, "a"))])

    assert (found.body_size, found.heading_sizes) == (10, (20,))
    assert measure_typography([]).body_size > 0


def test_ocr_needs_a_larger_type_for_a_heading() -> None:
    lines = (line("Nearly", 50, 60, size=14), *prose(50, 100, 4, "a"))

    assert outline(lay_out_pages([page(*lines, source=TextSource.OCR)])[0])[0] == ("paragraph", "Nearly")
    assert outline(lay_out_pages([page(*lines)])[0])[0] == ("heading1", "Nearly")


def test_no_headings_give_no_title() -> None:
    assert find_title(lay_out_pages([page(*prose(50, 100, 3, "a"))])) is None


def test_the_chapter_beside_a_running_header_is_furniture_too() -> None:
    chapters = ("1 Safety", "2 Data", "3 Wiring")
    pages = lay_out_pages(
        [
            page(
                line("HP-200 manual", 50, 30),
                line(name, 450, 30),
                *prose(50, 100 + 20 * n, 3, name[2:]),
                number=n,
            )
            for n, name in enumerate(chapters, start=1)
        ]
    )

    assert [outline(read)[0] for read in pages] == [
        ("page_header", f"HP-200 manual {name}") for name in chapters
    ]


def test_entries_of_a_table_of_contents_stay_apart_and_are_no_headings() -> None:
    entries = [line(f"{n} Chapter of the manual … {n + 2}", 50, 100 + 14 * n, width=480) for n in (1, 2, 3)]

    assert [kind for kind, _ in outline(lay_out_pages([page(*entries)])[0])] == ["paragraph"] * 3


def test_dots_of_a_table_of_contents_are_no_running_text() -> None:
    dots = [line("Oil " + ". " * 200, 50, 100 + 14 * n, size=8) for n in range(5)]

    assert measure_typography([page(*dots, *prose(50, 300, 4, "body"))]).body_size == 10


def test_a_line_broken_on_purpose_ends_its_paragraph() -> None:
    lines = [line("Warning: lock out first", 50, 100), *prose(50, 112, 3, "oil", width=400)]

    assert outline(lay_out_pages([page(*lines)])[0])[0] == ("paragraph", "Warning: lock out first")
