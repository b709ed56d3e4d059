"""Whatever a file holds, reading it ends within its limits, with pages or with an error of the file."""

from __future__ import annotations

import io
import random
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from ingest.page_cache import PageCache
from ingest.reader import SubprocessReader
from kb.errors import DocumentError
from kb.ports import ReadRequest
from kb.types import ParsedDocument
from tests.service import SAMPLES

MIB = 1024**2
READER_LIMIT_S = 30.0
TOKENS = (b"\xff" * 4, b"\0" * 4, b"999999999", b"-1", b"<<", b">>", b"endobj", b"/Kids", b"&#x0;", b"[")
CODES = frozenset(
    {
        *("damaged_file", "garbled_text", "no_text_found", "password_protected", "too_large"),
        *("memory_limit", "timeout", "unsupported_format", "empty_file"),
    }
)
FORMATS = (
    "drive_manual_en.pdf",
    "press_manual_zh.pdf",
    "inspection_sheet_zh.xlsx",
    "it_policy_en.docx",
    "intranet_page.html",
    "shift_notes.md",
    "safety_rules_gb18030.txt",
)


def read(path: Path, name: str) -> ParsedDocument | str:
    """Return the document, or the code of the error that the file is."""
    reader = SubprocessReader(
        timeout_s=READER_LIMIT_S,
        page_timeout_s=5,
        memory_bytes=1024 * MIB,
        max_pages=500,
        ocr=False,
        max_text_bytes=8 * MIB,
    )
    try:
        return reader.read(ReadRequest(path, name=name))
    except DocumentError as error:
        ended_by = error
    assert ended_by.code in CODES
    assert ended_by.next_step
    return ended_by.code


def damage(data: bytes, chance: random.Random) -> bytes:
    """Change some bytes: overwritten, inserted, removed, repeated, cut off."""
    damaged = bytearray(data)
    for _ in range(chance.choice((1, 5, 40))):
        at = chance.randrange(len(damaged) or 1)
        match chance.randrange(5):
            case 0:
                damaged[at : at + 1] = bytes([chance.randrange(256)])
            case 1:
                damaged[at:at] = chance.choice(TOKENS)
            case 2:
                del damaged[at : at + chance.choice((1, 30, 1000))]
            case 3:
                damaged[at:at] = damaged[at : at + 200]
            case _:
                damaged[at : at + 4] = chance.choice(TOKENS)
    return bytes(damaged[: chance.randrange(len(damaged))] if chance.random() < 0.1 else damaged)


def damage_file(data: bytes, chance: random.Random) -> bytes:
    """Damage a file, or one part of an archive."""
    if data[:2] != b"PK":
        return damage(data, chance)
    out = io.BytesIO()
    with (
        zipfile.ZipFile(io.BytesIO(data)) as source,
        zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as target,
    ):
        victim = chance.choice(source.namelist())
        for name in source.namelist():
            content = source.read(name)
            target.writestr(name, damage(content, chance) if name == victim else content)
    return out.getvalue()


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", FORMATS)
def test_a_damaged_file_ends_as_pages_or_as_an_error(tmp_path: Path, name: str, seed: int) -> None:
    chance = random.Random(f"{name} {seed}")
    path = tmp_path / "sample"
    path.write_bytes(damage_file((SAMPLES / name).read_bytes(), chance))

    outcome = read(path, name)

    if isinstance(outcome, ParsedDocument):
        for page in outcome.pages:
            ends = [0, *(block.char_end for block in page.blocks), len(page.text)]
            assert ends == sorted(ends)
            assert all(block.char_start < block.char_end for block in page.blocks)


def zip_bomb() -> bytes:
    out = io.BytesIO()
    with (
        zipfile.ZipFile(SAMPLES / "it_policy_en.docx") as source,
        zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as target,
    ):
        for name in source.namelist():
            if name != "word/document.xml":
                target.writestr(name, source.read(name))
        with target.open("word/document.xml", "w", force_zip64=True) as part:
            for _ in range(300):
                part.write(b" " * MIB)
    return out.getvalue()


def deep_tables() -> bytes:
    return b"<table><tr><td>x" * 20_000


def entity_bomb() -> bytes:
    levels = "".join(f'<!ENTITY e{n} "{f"&e{n - 1};" * 10}">' for n in range(1, 12))
    return f'<?xml version="1.0"?><!DOCTYPE a [<!ENTITY e0 "pump ">{levels}]><a>&e11;</a>'.encode()


def nested_mail() -> bytes:
    head = b"Content-Type: message/rfc822\r\nMIME-Version: 1.0\r\n\r\n"
    return (
        b"From: a@b\r\nSubject: pump\r\nMIME-Version: 1.0\r\n" + head * 5000 + b"Subject: x\r\n\r\npump\r\n"
    )


def wide_table() -> bytes:
    return b"<table><tr><td rowspan=65000 colspan=65000>pump</td></tr></table>" * 50


def endless_text() -> bytes:
    return b"pump " * (3 * MIB)


HOSTILE: dict[str, Callable[[], bytes]] = {
    "bomb.docx": zip_bomb,
    "deep.html": deep_tables,
    "entities.xml": entity_bomb,
    "nested.eml": nested_mail,
    "wide.html": wide_table,
    "endless.txt": endless_text,
}


@pytest.mark.parametrize("name", list(HOSTILE))
def test_a_hostile_file_ends_within_its_limits(tmp_path: Path, name: str) -> None:
    path = tmp_path / "sample"
    path.write_bytes(HOSTILE[name]())

    outcome = read(path, name)

    assert isinstance(outcome, str) or sum(len(page.text) for page in outcome.pages) < 8 * MIB


def test_a_page_tree_that_is_a_loop_ends(tmp_path: Path) -> None:
    path = tmp_path / "sample"
    path.write_bytes(
        b"%PDF-1.4\n1 0 obj<</Type/Catalog/Pages 2 0 R>>endobj\n"
        b"2 0 obj<</Type/Pages/Kids[2 0 R 2 0 R]/Count 100000>>endobj\ntrailer<</Root 1 0 R>>\n"
    )

    assert isinstance(read(path, "loop.pdf"), str)


def test_the_cache_of_a_damaged_file_does_no_harm(tmp_path: Path) -> None:
    path = tmp_path / "sample"
    path.write_bytes((SAMPLES / "drive_manual_en.pdf").read_bytes())
    cache = PageCache(tmp_path / "cache", max_bytes=MIB)
    reader = SubprocessReader(
        timeout_s=60, memory_bytes=1024 * MIB, max_pages=500, ocr=False, cache=cache, keep_from_s=0
    )

    def parse() -> ParsedDocument:
        return reader.read(ReadRequest(path, name="m.pdf"))

    first = parse()
    for file in (tmp_path / "cache").glob("*/*/p*"):
        file.write_bytes(damage(file.read_bytes(), random.Random(1)))

    assert parse() == first
