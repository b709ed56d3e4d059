from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ingest.chunking import MAX_ROWS, Chunker
from ingest.sentences import fit_prose, fit_row, split_sentences
from kb.types import Block, BlockKind, Chunk, Page, ParsedDocument, Span

Line = tuple[BlockKind, str]

HEADING = BlockKind.HEADING
PARAGRAPH = BlockKind.PARAGRAPH
HEADER = BlockKind.TABLE_HEADER
ROW = BlockKind.TABLE_ROW


def count_words(text: str) -> int:
    """Words, and each Chinese character by itself, much as a subword tokenizer counts."""
    return len(re.findall(r"[\u4e00-\u9fff]|[^\s\u4e00-\u9fff]+", text))


def count_characters(text: str) -> int:
    return len(text)


def count_bytes(text: str) -> int:
    return (len(text.encode()) + 2) // 3


COUNTERS: list[Callable[[str], int]] = [count_words, count_characters, count_bytes]


def make_page(number: int, lines: list[tuple[BlockKind, str] | tuple[BlockKind, str, int]]) -> Page:
    """Join lines by newlines; a heading's third part is its level, a row's its table."""
    text = ""
    blocks = []
    header: list[str] = []
    for kind, line, *rest in lines:
        text += "\n" if text else ""
        start = len(text)
        text += line
        number_of = rest[0] if rest else (1 if kind is HEADING else 0)
        cells = [cell.strip() for cell in line.split("|")]
        if kind is HEADER:
            header = cells
        record = dict(zip(header, cells, strict=False)) if kind is ROW else None
        blocks.append(
            Block(
                kind,
                start,
                len(text),
                level=number_of if kind is HEADING else 0,
                record=record,
                table_index=number_of if kind in (HEADER, ROW) else None,
            )
        )
    return Page(number, text, blocks=tuple(blocks))


def chunk(
    *pages: Page, max_tokens: int = 60, overlap_tokens: int = 0, count: Callable[[str], int] = count_words
) -> list[Chunk]:
    chunker = Chunker(count_tokens=count, max_tokens=max_tokens, overlap_tokens=overlap_tokens)
    return chunker.chunk(ParsedDocument(pages, "text/plain"), document_id="d1", generation=2)


def sentence(words: int, *, name: str = "word") -> str:
    return " ".join([name.capitalize(), *[name] * (words - 2), f"{name}."])


# -- sentences


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Stop the press. Lock it out!", ["Stop the press.", "Lock it out!"]),
        ("停止压力机。锁定电源！完成了吗？", ["停止压力机。", "锁定电源！", "完成了吗？"]),
        ("他说：“停机。”然后离开。", ["他说：“停机。”", "然后离开。"]),
        ("See Fig. 3 and No. 4, e.g. the pump. Done.", ["See Fig. 3 and No. 4, e.g. the pump.", "Done."]),
        ("Set 3.5 MPa at 1.2.3 now. Wait.", ["Set 3.5 MPa at 1.2.3 now.", "Wait."]),
        ("1. Open the valve. 2. Close it.", ["1. Open the valve.", "2. Close it."]),
        ("Wrapped at\nthe line end. Next\none.", ["Wrapped at\nthe line end.", "Next\none."]),
        ("Approved by J. Smith (chief.) Then sign.", ["Approved by J. Smith (chief.)", "Then sign."]),
        ("", []),
        ("  \n ", []),
        ("no end", ["no end"]),
    ],
)
def test_sentences_end_where_a_reader_ends_them(text: str, expected: list[str]) -> None:
    pieces = split_sentences(text, 0, len(text))

    assert [text[start:end] for start, end in pieces] == expected


def test_a_long_sentence_is_cut_at_its_clauses() -> None:
    text = "one two three, four five six; seven eight nine"

    parts = fit_prose(text, (0, len(text)), limit=6, count_tokens=count_words)

    assert [(text[s:e], n) for (s, e), n in parts] == [
        ("one two three, four five six;", 6),
        ("seven eight nine", 3),
    ]


def test_a_long_clause_is_cut_between_words_and_a_long_word_between_characters() -> None:
    text = "alpha beta " + "x" * 20

    parts = fit_prose(text, (0, len(text)), limit=10, count_tokens=count_characters)

    assert [text[s:e] for (s, e), _ in parts] == ["alpha beta", *["x" * 10] * 2]


def test_a_long_row_is_cut_between_cells() -> None:
    text = "E-01 | pump does not start | check fuse, check motor"

    parts = fit_row(text, (0, len(text)), limit=8, count_tokens=count_words)

    assert [text[s:e].strip(" |") for (s, e), _ in parts] == [
        "E-01 | pump does not start",
        "check fuse, check motor",
    ]


# -- structure


def test_ids_and_indexes_count_up_and_carry_the_generation() -> None:
    chunks = chunk(make_page(1, [(PARAGRAPH, f"{sentence(40)} {sentence(40)}")]))

    assert [c.id for c in chunks] == ["d1-g2-00000", "d1-g2-00001"]
    assert [(c.document_id, c.generation, c.index) for c in chunks] == [("d1", 2, 0), ("d1", 2, 1)]


def test_a_new_heading_starts_a_new_chunk_with_its_path_as_context() -> None:
    page = make_page(
        1,
        [
            (HEADING, "Press manual", 1),
            (HEADING, "1 Pump", 2),
            (PARAGRAPH, sentence(20, name="pump")),
            (HEADING, "2 Valve", 2),
            (PARAGRAPH, sentence(20, name="valve")),
        ],
    )

    chunks = chunk(page)

    assert [c.heading_path for c in chunks] == [("Press manual", "1 Pump"), ("Press manual", "2 Valve")]
    assert [c.context for c in chunks] == ["Press manual > 1 Pump", "Press manual > 2 Valve"]
    assert chunks[0].text.startswith("Press manual\n1 Pump\nPump pump")
    assert "valve" not in chunks[0].text


def test_tiny_sections_of_one_parent_share_a_chunk() -> None:
    page = make_page(
        1,
        [
            (HEADING, "Safety", 1),
            (HEADING, "Gloves", 2),
            (PARAGRAPH, "Wear gloves."),
            (HEADING, "Glasses", 2),
            (PARAGRAPH, "Wear glasses."),
            (HEADING, "Transport", 1),
            (HEADING, "Lifting", 2),
            (PARAGRAPH, "Use the eyes."),
        ],
    )

    chunks = chunk(page)

    assert [c.heading_path for c in chunks] == [("Safety",), ("Transport", "Lifting")]
    assert chunks[0].text == "Safety\nGloves\nWear gloves.\nGlasses\nWear glasses."


def test_headings_without_text_are_kept() -> None:
    page = make_page(1, [(HEADING, "First", 1), (HEADING, "Second", 1)])

    assert [c.text for c in chunk(page)] == ["First\nSecond"]


def test_sentences_are_whole_and_the_overlap_repeats_the_last_one() -> None:
    sentences = [sentence(18, name=name) for name in ("alpha", "beta", "gamma", "delta", "epsilon")]
    page = make_page(1, [(PARAGRAPH, " ".join(sentences))])

    chunks = chunk(page, overlap_tokens=20)

    assert [c.text for c in chunks] == [
        " ".join(sentences[0:3]),
        " ".join(sentences[2:5]),
    ]


def test_furniture_is_left_out_and_a_chunk_runs_over_the_page_break() -> None:
    first = make_page(1, [(PARAGRAPH, "The pump starts. It runs"), (BlockKind.PAGE_FOOTER, "Page 1 of 2")])
    second = make_page(
        2, [(BlockKind.PAGE_HEADER, "Press manual"), (PARAGRAPH, "until the pressure is built.")]
    )

    (only,) = chunk(first, second)

    assert only.text == "The pump starts. It runs\nuntil the pressure is built."
    assert only.spans == (Span(1, 0, 24), Span(2, 13, 41))
    assert (only.page_start, only.page_end) == (1, 2)


def test_furniture_between_two_paragraphs_of_a_page_parts_the_spans() -> None:
    page = make_page(
        1, [(PARAGRAPH, "Before."), (BlockKind.PAGE_FOOTER, "Confidential"), (PARAGRAPH, "After.")]
    )

    (only,) = chunk(page)

    assert only.text == "Before.\nAfter."
    assert len(only.spans) == 2


def test_table_chunks_are_small_and_carry_header_and_records() -> None:
    rows = [(ROW, f"E-{n:02} | cause {n} | remedy {n}") for n in range(12)]
    page = make_page(1, [(HEADING, "Faults", 1), (HEADER, "Code | Cause | Remedy"), *rows])

    chunks = chunk(page, max_tokens=200, overlap_tokens=50)

    assert [len(c.records) for c in chunks] == [MAX_ROWS, MAX_ROWS, 2]
    assert {c.context for c in chunks} == {"Faults\nCode | Cause | Remedy"}
    assert chunks[0].text.startswith("Faults\nCode | Cause | Remedy\nE-00 |")
    assert chunks[1].text.startswith("E-05 |")
    assert chunks[1].records[0] == {"Code": "E-05", "Cause": "cause 5", "Remedy": "remedy 5"}


def test_a_table_over_a_page_break_keeps_its_header() -> None:
    first = make_page(1, [(HEADER, "Code | Cause", 3), (ROW, "E-01 | fuse", 3)])
    second = make_page(2, [(HEADER, "Code | Cause", 3), (ROW, "E-02 | motor", 3)])

    (only,) = chunk(first, second)

    assert only.context == "Code | Cause"
    assert [r["Code"] for r in only.records] == ["E-01", "E-02"]
    assert [s.page_number for s in only.spans] == [1, 2]


def test_two_tables_never_share_a_chunk() -> None:
    page = make_page(1, [(HEADER, "A | B", 0), (ROW, "1 | 2", 0), (HEADER, "C | D", 1), (ROW, "3 | 4", 1)])

    assert [c.context for c in chunk(page)] == ["A | B", "C | D"]


def test_a_table_without_a_header_row_takes_its_column_names() -> None:
    text = "E-01,fuse"
    block = Block(ROW, 0, len(text), record={"Code": "E-01", "Cause": "fuse"}, table_index=0)

    (only,) = chunk(Page(1, text, blocks=(block,)))

    assert only.context == "Code | Cause"


def test_a_caption_stays_with_its_table_and_prose_after_it_does_not() -> None:
    page = make_page(
        1,
        [
            (PARAGRAPH, "Table 1: Faults"),
            (HEADER, "Code | Cause"),
            (ROW, "E-01 | fuse"),
            (PARAGRAPH, "Call us."),
        ],
    )

    assert [c.text for c in chunk(page)] == ["Table 1: Faults\nCode | Cause\nE-01 | fuse", "Call us."]


def test_a_row_longer_than_a_chunk_is_cut_between_cells_and_keeps_its_record() -> None:
    row = f"E-01 | {sentence(40, name='cause')} | {sentence(40, name='remedy')}"
    page = make_page(1, [(HEADER, "Code | Cause | Remedy"), (ROW, row)])

    chunks = chunk(page)

    assert [c.context for c in chunks] == ["Code | Cause | Remedy"] * len(chunks)
    assert all(c.records[0]["Code"] == "E-01" for c in chunks if "cause" in c.text or "remedy" in c.text)


def test_a_context_that_is_too_long_loses_the_outermost_headings_first() -> None:
    page = make_page(
        1,
        [
            (HEADING, "A very long title of the whole manual that nobody needs", 1),
            (HEADING, "Oil change", 2),
            (PARAGRAPH, sentence(20)),
        ],
    )

    (first, *_) = chunk(page, max_tokens=40)

    assert first.context == "Oil change"
    assert first.heading_path[0].startswith("A very long title")


def test_a_header_that_is_too_long_alone_keeps_its_first_columns() -> None:
    columns = " | ".join(f"column{n}" for n in range(40))
    page = make_page(1, [(HEADING, "Table", 1), (HEADER, columns), (ROW, " | ".join("x" * 40))])

    chunks = chunk(page, max_tokens=60)

    assert all(c.context.startswith("column0 | column1") for c in chunks)
    assert all(count_words(c.context) <= 15 for c in chunks)


def test_pages_without_blocks_are_paragraphs_parted_by_blank_lines() -> None:
    page = Page(1, f"{sentence(40, name='one')}\n \n{sentence(40, name='two')}\n\n\n")

    assert [c.text.split()[0] for c in chunk(page)] == ["One", "Two"]


def test_text_outside_all_blocks_is_not_lost() -> None:
    page = Page(1, "before\nheld\nafter", blocks=(Block(PARAGRAPH, 7, 11),))

    (only,) = chunk(page)

    assert only.text == page.text


def test_code_is_cut_at_line_ends() -> None:
    lines = [f"SET P{n} = {n}" for n in range(30)]

    chunks = chunk(make_page(1, [(BlockKind.CODE, "\n".join(lines))]), max_tokens=40)

    assert [line for c in chunks for line in c.text.splitlines()] == lines


def test_the_language_is_that_of_the_chunk() -> None:
    chinese = make_page(1, [(PARAGRAPH, "液压泵不能启动，检查熔断器。")])
    english = make_page(1, [(PARAGRAPH, "The pump does not start.")])

    assert chunk(chinese)[0].language == "zh"
    assert chunk(english)[0].language == "en"


def test_an_empty_document_has_no_chunks() -> None:
    assert chunk(Page(1, " \n "), Page(2, "")) == []


def test_a_limit_that_leaves_no_room_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 8"):
        Chunker(count_tokens=len, max_tokens=3, overlap_tokens=0)


def test_a_long_document_counts_each_sentence_a_few_times_only() -> None:
    counted = 0

    def count(text: str) -> int:
        nonlocal counted
        counted += len(text)
        return count_words(text)

    text = " ".join(sentence(12) for _ in range(2000))

    chunk(Page(1, text), count=count, max_tokens=300, overlap_tokens=40)

    assert counted < 4 * len(text)


def count_costly_newlines(text: str) -> int:
    """Unlike any sum of parts: lines together cost more than each by itself."""
    return count_words(text) + 6 * text.count("\n")


def test_lines_that_cost_more_together_than_apart_still_fit() -> None:
    lines: list[tuple[BlockKind, str]] = [(PARAGRAPH, sentence(5, name=f"w{n}")) for n in range(12)]
    page = make_page(1, [(HEADING, "A b c d"), *lines])

    chunks = chunk(page, max_tokens=30, count=count_costly_newlines)

    assert "\n".join(c.text for c in chunks) == page.text
    assert all(count_costly_newlines(c.indexed_text) <= 30 for c in chunks)


def test_a_context_that_no_longer_fits_is_dropped() -> None:
    page = make_page(1, [(HEADING, "A b c"), (PARAGRAPH, sentence(30)), (PARAGRAPH, sentence(31))])

    chunks = chunk(page, max_tokens=36, count=count_costly_newlines)

    assert all(count_costly_newlines(c.indexed_text) <= 36 for c in chunks)
    assert chunks[-1].context == ""


def test_much_white_space_between_sentences_is_counted() -> None:
    text = "One. " + " " * 50 + "Two."

    chunks = chunk(Page(1, text), max_tokens=20, count=count_characters)

    assert [c.text for c in chunks] == ["One.", "Two."]


# -- invariants

TERMS = ("pump", "E-0471", "泵", "压力过高", "3.5", "MPa", "e.g.", "No.", "x" * 40, "é", "😀")
BREAKS = ("，", "。", ". ", "; ", "!", "…", "|", "\t", "  ", "\u3000")
WORDS = st.sampled_from([*TERMS, *BREAKS])
TEXTS = st.lists(WORDS, min_size=1, max_size=40).map(" ".join)
CJK_TEXTS = st.lists(WORDS, min_size=1, max_size=40).map("".join)
LINES = st.tuples(st.sampled_from(list(BlockKind)), st.one_of(TEXTS, CJK_TEXTS), st.integers(0, 3))
PAGES = st.lists(st.lists(LINES, max_size=8), min_size=1, max_size=3).map(
    lambda pages: tuple(make_page(number, list(lines)) for number, lines in enumerate(pages, start=1))
)


@settings(deadline=None, max_examples=150)
@given(
    pages=PAGES,
    count=st.sampled_from(COUNTERS),
    max_tokens=st.integers(16, 90),
    overlap_tokens=st.integers(0, 30),
)
def test_chunks_cover_every_word_once_in_order_within_the_limit(
    pages: tuple[Page, ...], count: Callable[[str], int], max_tokens: int, overlap_tokens: int
) -> None:
    chunks = chunk(*pages, max_tokens=max_tokens, overlap_tokens=overlap_tokens, count=count)

    texts = {page.page_number: page.text for page in pages}
    covered: set[tuple[int, int]] = set()
    for c in chunks:
        assert c.text == "\n".join(texts[s.page_number][s.char_start : s.char_end] for s in c.spans)
        assert c.token_count == count(c.indexed_text) <= max_tokens
        assert count(c.context) <= max_tokens // 4
        assert list(c.spans) == sorted(c.spans, key=lambda s: (s.page_number, s.char_start))
        covered |= {(s.page_number, at) for s in c.spans for at in range(s.char_start, s.char_end)}
    for page in pages:
        for block in page.blocks:
            wanted = {
                (page.page_number, at)
                for at in range(block.char_start, block.char_end)
                if not page.text[at].isspace()
            }
            assert wanted.isdisjoint(covered) if block.kind.is_furniture else wanted <= covered
    starts = [(c.page_start, c.spans[0].char_start) for c in chunks]
    ends = [(c.page_end, c.spans[-1].char_end) for c in chunks]
    assert starts == sorted(set(starts))
    assert ends == sorted(set(ends))
    assert chunks == chunk(*pages, max_tokens=max_tokens, overlap_tokens=overlap_tokens, count=count)


@settings(deadline=None, max_examples=100)
@given(text=st.text(max_size=300), max_tokens=st.integers(16, 60))
def test_any_text_without_blocks_is_covered(text: str, max_tokens: int) -> None:
    chunks = chunk(Page(1, text), max_tokens=max_tokens, overlap_tokens=8, count=count_characters)

    covered = {at for c in chunks for s in c.spans for at in range(s.char_start, s.char_end)}
    assert {at for at, char in enumerate(text) if not char.isspace()} <= covered
    assert all(count_characters(c.indexed_text) <= max_tokens for c in chunks)
