"""How results look: consoles, JSON, tables, sizes, wrapped streaming text."""

from __future__ import annotations

import json
import sys
import unicodedata
from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel
from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.markup import escape
from rich.table import Table

# Wide enough for scripts that grep, when the output is no terminal and COLUMNS is not set.
_PIPE_WIDTH = 160

_STATE_STYLES = {
    "ready": "green",
    "succeeded": "green",
    "duplicate": "cyan",
    "unchanged": "cyan",
    "ready_with_warnings": "yellow",
    "missing": "yellow",
    "damaged": "bold red",
    "queued": "dim",
    "parsing": "cyan",
    "embedding": "cyan",
    "running": "cyan",
    "failed": "bold red",
    "cancelled": "magenta",
}


def get_console() -> Console:
    """Return a console on standard output; plain and wide when that is no terminal."""
    console = Console()
    return console if console.is_terminal else Console(width=_width_of_pipe(), soft_wrap=False)


def get_error_console() -> Console:
    """Return a console on standard error."""
    console = Console(stderr=True)
    return console if console.is_terminal else Console(stderr=True, width=_width_of_pipe())


def _width_of_pipe() -> int:
    import os

    columns = os.environ.get("COLUMNS", "")
    return int(columns) if columns.isdecimal() and int(columns) else _PIPE_WIDTH


def print_json(value: BaseModel | dict[str, Any] | list[Any]) -> None:
    """Print one JSON document on standard output, in UTF-8 and without colours."""
    plain = value.model_dump(mode="json") if isinstance(value, BaseModel) else value
    sys.stdout.write(json.dumps(plain, ensure_ascii=False, indent=2) + "\n")
    sys.stdout.flush()


def make_table(*columns: str, title: str | None = None) -> Table:
    """Return an empty table; a column that begins with `>` is aligned to the right."""
    table = Table(box=box.SIMPLE_HEAD, title=title, title_justify="left", header_style="bold", pad_edge=False)
    for column in columns:
        right = column.startswith(">")
        table.add_column(
            column.removeprefix(">"), justify="right" if right else "left", no_wrap=right, overflow="fold"
        )
    return table


def paint_state(state: str) -> str:
    """Return a state in its colour."""
    style = _STATE_STYLES.get(state)
    label = escape(name_state(state))
    return f"[{style}]{label}[/]" if style else label


def name_state(state: str) -> str:
    """Return a state as people read it."""
    return "already there" if state == "duplicate" else state.replace("_", " ")


def format_size(size_bytes: float) -> str:
    """Return a size with a decimal unit, as file managers show it."""
    for unit in ("B", "kB", "MB"):
        if size_bytes < 1000:
            return f"{size_bytes:.0f} {unit}" if unit == "B" else f"{size_bytes:.1f} {unit}"
        size_bytes /= 1000
    return f"{size_bytes:.1f} GB"


def format_duration(seconds: float) -> str:
    """Return a duration for people."""
    if seconds < 60:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    return f"{minutes // 60} h {minutes % 60:02d} min"


def cut(text: str, width: int) -> str:
    """Return the text on one line in at most `width` cells, with an ellipsis where it was cut."""
    line = " ".join(text.split())
    if cell_len(line) <= width:
        return line
    kept, used = list[str](), 1
    for char in line:
        used += cell_len(char)
        if used > width:
            break
        kept.append(char)
    return "".join(kept).rstrip() + "…"


def pad(text: str, width: int) -> str:
    """Return the text cut or filled to exactly `width` cells."""
    short = cut(text, width)
    return short + " " * (width - cell_len(short))


def format_pages(first: int, last: int, language: str = "en") -> str:
    """Return a page or a range of pages in the reader's language."""
    pages = str(first) if first == last else f"{first}–{last}"
    if language == "zh":
        return f"第 {pages} 页"
    return f"page {pages}" if first == last else f"pages {pages}"


def format_place(document: str, first: int, last: int, language: str = "en") -> str:
    """Return how pages of a document are named; `document` may hold markup."""
    pages = format_pages(first, last, language)
    return f"《{document}》{pages}" if language == "zh" else f"{document}, {pages}"


class StreamPrinter:
    """Prints text as it comes, wrapped between words of Latin script and between Chinese characters.

    Where the output is no terminal the text is written as it is.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._width = console.width - 1
        self._column = 0
        self._word = ""
        self._space = False
        self._ended = True

    def write(self, text: str) -> None:
        """Take the next piece; on a terminal an unfinished word waits for its end."""
        if not self._console.is_terminal:
            self._emit(text)
            return
        for char in text:
            if char.isspace():
                self._flush_word()
                self._take_space(char)
            else:
                if self._may_break_before(char):
                    self._flush_word()
                self._word += char

    def finish(self) -> None:
        """Write what waits, and end the line."""
        self._flush_word()
        if not self._ended:
            self._emit("\n")
        self._column, self._space = 0, False

    def _may_break_before(self, char: str) -> bool:
        if not self._word:
            return False
        if unicodedata.category(self._word[-1]) in ("Ps", "Pi"):  # nothing is parted from its opening bracket
            return False
        if _is_wide(char):  # closing punctuation must not begin a line
            return unicodedata.category(char) not in ("Po", "Pe", "Pf")
        return _is_wide(self._word[-1]) and char != "["  # a citation's marker stays with its sentence

    def _take_space(self, char: str) -> None:
        if char == "\n":
            self._emit("\n")
            self._column, self._space = 0, False
        else:
            self._space = self._column > 0

    def _flush_word(self) -> None:
        if not self._word:
            return
        size, gap = cell_len(self._word), int(self._space)
        if self._column and self._column + gap + size > self._width:
            self._emit("\n")
            self._column = gap = 0
        self._emit(" " * gap + self._word)
        self._column += gap + size
        self._word, self._space = "", False

    def _emit(self, text: str) -> None:
        if text:
            self._console.print(text, end="", markup=False, highlight=False, soft_wrap=True)
            self._ended = text.endswith("\n")


def _is_wide(char: str) -> bool:
    return unicodedata.east_asian_width(char) in "WF"


def print_rows(columns: Sequence[str], rows: Sequence[Sequence[str]], *, empty: str) -> None:
    """Print a table, or one line when there are no rows. Cells may hold markup."""
    console = get_console()
    if not rows:
        console.print(empty, highlight=False)
        return
    table = make_table(*columns)
    for row in rows:
        table.add_row(*row)
    console.print(table)
