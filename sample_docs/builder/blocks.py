"""Manual sources: Markdown with a TOML head and fenced tables, read into plain blocks.

Beyond plain Markdown, a fence named `table` holds TOML (`caption`, `widths` as shares, and `file`, a CSV
beside the source, or `rows`; the first row is the header), `figure` a drawing (`builder.drawing`), and
`layout` one word: `page`, `columns` or `single`. A block quote is a warning box; its first line, in bold, is
its heading.
"""

from __future__ import annotations

import csv
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.token import Token

_HEAD = re.compile(r"\A\+\+\+\n(.*?)\n\+\+\+\n", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Heading:
    """A heading; `level` counts from 1."""

    level: int
    text: str


@dataclass(frozen=True, slots=True)
class Paragraph:
    """Running text."""

    text: str


@dataclass(frozen=True, slots=True)
class Item:
    """One entry of a list, with its marker as printed."""

    marker: str
    text: str


@dataclass(frozen=True, slots=True)
class Warning:  # noqa: A001 - the manuals' own word for such a box
    """A boxed warning: heading and paragraphs."""

    title: str
    paragraphs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of equal length, the first of them the header; `widths` are shares of the text width."""

    caption: str
    widths: tuple[float, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class Figure:
    """A drawing, described in TOML."""

    caption: str
    description: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Layout:
    """A change of page layout: `page`, `columns` or `single`."""

    kind: str


Block = Heading | Paragraph | Item | Warning | Table | Figure | Layout


@dataclass(frozen=True, slots=True)
class Source:
    """A manual's head (title, number, header …) and its blocks in order."""

    head: Mapping[str, str]
    blocks: tuple[Block, ...]


def read_source(path: Path) -> Source:
    """Read one source file; raises `ValueError` if its head is missing or a table's rows differ in length."""
    text = path.read_text("utf-8")
    head = _HEAD.match(text)
    if head is None:
        raise ValueError(f"{path.name} does not begin with a +++ head")
    tokens = MarkdownIt("commonmark").parse(text[head.end() :])
    return Source(tomllib.loads(head.group(1)), tuple(_blocks(tokens, path.parent)))


def read_csv(path: Path) -> tuple[tuple[str, ...], ...]:
    """Return the rows of a UTF-8 CSV file; raises `ValueError` if they differ in length."""
    with path.open(encoding="utf-8", newline="") as stream:
        rows = tuple(tuple(row) for row in csv.reader(stream))
    return _even(rows, path.name)


def _even(rows: tuple[tuple[str, ...], ...], name: str) -> tuple[tuple[str, ...], ...]:
    for number, row in enumerate(rows, 1):
        if len(row) != len(rows[0]):
            raise ValueError(f"{name}, row {number}: {len(row)} cells instead of {len(rows[0])}: {row!r}")
    return rows


def _blocks(tokens: list[Token], folder: Path) -> list[Block]:
    found: list[Block] = []
    quote: list[str] | None = None
    counters: list[int | None] = []
    for index, token in enumerate(tokens):
        match token.type:
            case "bullet_list_open":
                counters.append(None)
            case "ordered_list_open":
                counters.append(int(token.attrs.get("start", 1)))
            case "bullet_list_close" | "ordered_list_close":
                counters.pop()
            case "blockquote_open":
                quote = []
            case "blockquote_close":
                title, *rest = quote or [""]
                found.append(Warning(title.strip("*"), tuple(rest)))
                quote = None
            case "fence":
                found.append(_fence(token, folder))
            case "inline":
                content = _joined(token.content)
                opened = tokens[index - 1]
                if quote is not None:
                    quote.append(content)
                elif opened.type == "heading_open":
                    found.append(Heading(int(opened.tag[1:]), content))
                elif counters:
                    number = counters[-1]
                    found.append(Item("•" if number is None else f"{number}.", content))
                    if number is not None:
                        counters[-1] = number + 1
                else:
                    found.append(Paragraph(content))
    return found


def _joined(text: str) -> str:
    """Join the source's lines: with a space, but with nothing between two Chinese characters."""
    return re.sub(r"(?<=[⺀-鿿、-〟＀-￯])\n(?=[⺀-鿿、-〟＀-￯])", "", text).replace("\n", " ")


def _fence(token: Token, folder: Path) -> Block:
    kind = token.info.strip()
    if kind == "layout":
        return Layout(token.content.strip())
    body = tomllib.loads(token.content)
    if kind == "figure":
        return Figure(body.pop("caption"), body)
    if kind == "table":
        inline = tuple(tuple(str(cell) for cell in row) for row in body.get("rows", ()))
        rows = read_csv(folder / body["file"]) if "file" in body else _even(inline, body["caption"])
        return Table(body["caption"], tuple(body["widths"]), rows)
    raise ValueError(f"unknown fence {kind!r}")
