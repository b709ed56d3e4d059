from __future__ import annotations

import io
import itertools
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from kb.cli.output import (
    StreamPrinter,
    cut,
    format_duration,
    format_pages,
    format_place,
    format_size,
    get_console,
    pad,
    print_rows,
)


def print_stream(*pieces: str, width: int = 21, terminal: bool = True) -> str:
    target = io.StringIO()
    printer = StreamPrinter(Console(file=target, width=width, force_terminal=terminal, color_system=None))
    for piece in pieces:
        printer.write(piece)
    printer.finish()
    return target.getvalue()


@pytest.mark.parametrize(
    ("size", "shown"),
    [(0, "0 B"), (999, "999 B"), (1500, "1.5 kB"), (95_175_889, "95.2 MB"), (2.5e9, "2.5 GB")],
)
def test_sizes_have_decimal_units(size: float, shown: str) -> None:
    assert format_size(size) == shown


@pytest.mark.parametrize(
    ("seconds", "shown"), [(0.04, "0.0 s"), (12.3, "12 s"), (75, "1 min 15 s"), (3725, "1 h 02 min")]
)
def test_durations_are_for_people(seconds: float, shown: str) -> None:
    assert format_duration(seconds) == shown


def test_pages_are_named_in_the_language_of_the_reader() -> None:
    assert format_pages(3, 3) == "page 3"
    assert format_pages(3, 4) == "pages 3–4"
    assert format_pages(3, 4, "zh") == "第 3–4 页"


def test_pages_of_a_document_are_named_alike_everywhere() -> None:
    assert format_place("a.pdf", 3, 3) == "a.pdf, page 3"
    assert format_place("a.pdf", 3, 4, "zh") == "《a.pdf》第 3–4 页"


def test_no_line_ends_with_an_opening_bracket() -> None:
    lines = print_stream("请看液压系统的《手册》第一章，再看（附录）。", width=11).splitlines()

    assert len(lines) > 2
    assert not any(line.endswith(("《", "（")) for line in lines)
    assert "".join(lines) == "请看液压系统的《手册》第一章，再看（附录）。"


@given(text=st.text(alphabet="ab 压机，\n", max_size=40), width=st.integers(2, 30))
def test_padded_text_has_exactly_its_width_in_cells(text: str, width: int) -> None:
    assert cell_len(pad(text, width)) == width


def test_cutting_counts_cells_not_characters() -> None:
    assert cut("液压机手册", 7) == "液压机…"
    assert cut("液压机", 6) == "液压机"
    assert cut("two  \n words", 20) == "two words"


def test_a_stream_wraps_between_words() -> None:
    shown = print_stream("The pump lo", "ses pressure when", " it is hot.")

    assert shown == "The pump loses\npressure when it is\nhot.\n"


def test_a_stream_wraps_between_chinese_characters_but_not_before_a_full_stop() -> None:
    shown = print_stream("检查吸油滤芯和油位高。压力")

    assert shown == "检查吸油滤芯和油位\n高。压力\n"


def test_latin_words_in_chinese_text_stay_whole() -> None:
    shown = print_stream("压力应为17.5MPa时才可以启动[1]。")

    assert shown.splitlines() == ["压力应为17.5MPa时才", "可以启动[1]。"]


@given(text=st.text(alphabet="abc 12.[]压机器，。", max_size=80), cuts=st.sets(st.integers(0, 80)))
def test_wrapping_changes_nothing_but_white_space(text: str, cuts: set[int]) -> None:
    places = sorted({0, len(text), *(cut for cut in cuts if cut <= len(text))})
    pieces = [text[start:end] for start, end in itertools.pairwise(places)]

    shown = print_stream(*pieces)

    assert "".join(shown.split()) == "".join(text.split())


@given(text=st.lists(st.sampled_from(["压", "机器", "abc", "17.5", " "]), max_size=60).map("".join))
def test_lines_fit_where_words_do(text: str) -> None:
    lines = print_stream(text, width=100).splitlines()

    longest = max((cell_len(word) for word in re.findall(r"[a-z0-9.]+", text)), default=0)
    assert all(cell_len(line) <= max(99, longest) for line in lines)


def test_paragraphs_stay_and_pipes_are_not_wrapped() -> None:
    assert print_stream("one\n\ntwo") == "one\n\ntwo\n"
    assert print_stream("a long line " * 5, terminal=False) == ("a long line " * 5) + "\n"
    assert print_stream("") == ""


def test_a_pipe_is_wide_unless_columns_says_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    wide = get_console().width
    monkeypatch.setenv("COLUMNS", "90")

    assert (wide, get_console().width) == (160, 90)


def test_no_rows_are_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    print_rows(("a",), [], empty="Nothing here.")

    assert capsys.readouterr().out == "Nothing here.\n"
