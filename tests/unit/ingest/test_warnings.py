from __future__ import annotations

import pytest

from ingest.warnings import format_pages, summarise_warnings
from kb.types import Page, PageQuality, ParsedDocument, Problem, TextSource


def make_page(number: int, *warnings: str, source: TextSource = TextSource.TEXT) -> Page:
    return Page(number, "text", source=source, quality=PageQuality(warnings=warnings))


@pytest.mark.parametrize(
    ("numbers", "expected"),
    [([3], "page 3"), ([1, 2], "pages 1-2"), ([1, 3, 4, 5, 9], "pages 1, 3-5, 9")],
)
def test_pages_are_listed_as_ranges(numbers: list[int], expected: str) -> None:
    assert format_pages(numbers) == expected


def test_a_document_without_warnings_has_no_problems() -> None:
    assert summarise_warnings(ParsedDocument((make_page(1),), "text/plain")) == []


def test_pages_with_the_same_warning_are_one_problem() -> None:
    pages = (
        make_page(1, "odd_table: a cell is empty"),
        make_page(2, "odd_table: a cell is empty", source=TextSource.REPAIRED),
        make_page(4, "odd_table: a cell is empty", "odd_table: a cell is empty"),
    )

    problems = summarise_warnings(ParsedDocument(pages, "application/pdf"))

    assert [(p.code, p.message) for p in problems] == [
        ("odd_table", "a cell is empty: pages 1-2, 4"),
        ("text_repaired", "the text layer was damaged and was repaired: page 2"),
    ]


def test_a_parser_that_says_the_same_as_the_source_is_heard_once() -> None:
    pages = (make_page(1, "ocr_used: 93 % sure", source=TextSource.OCR),)

    assert [p.code for p in summarise_warnings(ParsedDocument(pages, "image/png"))] == ["ocr_used"]


def test_warnings_of_the_document_come_first_and_need_no_code() -> None:
    parsed = ParsedDocument(
        (make_page(1, source=TextSource.NONE),),
        "text/csv",
        warnings=("Odd delimiter", "cut_off", "a_b: c {d}"),
    )

    assert summarise_warnings(parsed)[:3] == [
        Problem("parser_warning", "Odd delimiter"),
        Problem("cut_off", "cut_off"),
        Problem("a_b", "c {d}"),
    ]
