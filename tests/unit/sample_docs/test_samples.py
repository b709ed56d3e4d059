"""The sample documents hold what `questions.toml` says of them, and are as `build.py` makes them."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
import unicodedata
from functools import cache
from pathlib import Path
from typing import Any

import openpyxl
import pypdfium2
import pytest
from bs4 import BeautifulSoup
from docx import Document
from pypdf import PdfReader

SAMPLES = Path(__file__).resolve().parents[3] / "sample_docs"
QUESTIONS: list[dict[str, Any]] = tomllib.loads((SAMPLES / "questions.toml").read_text("utf-8"))["question"]
ANSWERABLE = [question for question in QUESTIONS if question["answerable"]]
DOCUMENTS = {
    "press_manual_zh.pdf",
    "drive_manual_en.pdf",
    "inspection_sheet_zh.xlsx",
    "it_policy_en.docx",
    "intranet_page.html",
    "shift_notes.md",
    "safety_rules_gb18030.txt",
    "scanned_notice_zh.pdf",
}
MANUALS = ["press_manual_zh.pdf", "drive_manual_en.pdf"]
KINDS = {"code", "symptom", "table", "fact", "multi", "unanswerable"}
CANNOT_TELL = 3


def comparable(text: str) -> str:
    """Return the text as it is compared: NFKC, without whitespace."""
    return re.sub(r"\s+", "", unicodedata.normalize("NFKC", text))


@cache
def pages(name: str) -> tuple[str, ...]:
    """Return a sample's pages as comparable text; a sheet counts as a page."""
    path = SAMPLES / name
    match path.suffix:
        case ".pdf":
            with pypdfium2.PdfDocument(path) as document:
                texts = [page.get_textpage().get_text_range() for page in document]
        case ".xlsx":
            texts = [
                " ".join(str(cell.value) for row in sheet.rows for cell in row if cell.value is not None)
                for sheet in openpyxl.load_workbook(path).worksheets
            ]
        case ".docx":
            content = Document(str(path))
            cells = [cell.text for table in content.tables for row in table.rows for cell in row.cells]
            texts = [" ".join([*(paragraph.text for paragraph in content.paragraphs), *cells])]
        case ".html":
            texts = [BeautifulSoup(path.read_text("utf-8"), "lxml").get_text(" ")]
        case suffix:
            texts = [path.read_text("gb18030" if suffix == ".txt" else "utf-8")]
    if name == "scanned_notice_zh.pdf":
        # OCR is the parser's business; what was drawn on the page stands in its source.
        texts = [(SAMPLES / "source" / "scanned_notice_zh.toml").read_text("utf-8")]
    return tuple(comparable(text) for text in texts)


def test_every_sample_document_is_there_and_small() -> None:
    sizes = {name: (SAMPLES / name).stat().st_size for name in DOCUMENTS}

    assert min(sizes.values()) > 1000
    assert sum(sizes.values()) < 1_500_000


def test_questions_keep_to_their_format() -> None:
    ids = [question["id"] for question in QUESTIONS]

    assert len(ids) == len(set(ids))
    for question in QUESTIONS:
        assert set(question) == {"id", "lang", "kind", "text", "answerable", "answers", "evidence"}
        assert question["lang"] in {"zh", "en"}
        assert question["kind"] in KINDS
        assert question["answerable"] == (question["kind"] != "unanswerable")
        assert bool(question["answers"]) == bool(question["evidence"]) == question["answerable"]
        assert {place["document"] for place in question["evidence"]} <= DOCUMENTS


def test_every_document_and_kind_is_asked_about() -> None:
    asked = {place["document"] for question in ANSWERABLE for place in question["evidence"]}

    assert asked == DOCUMENTS
    assert {question["kind"] for question in QUESTIONS} == KINDS
    assert {question["lang"] for question in ANSWERABLE} == {"zh", "en"}
    assert len(QUESTIONS) - len(ANSWERABLE) >= 4


@pytest.mark.parametrize("question", ANSWERABLE, ids=lambda question: question["id"])
def test_an_answer_stands_on_each_evidence_page(question: dict[str, Any]) -> None:
    for place in question["evidence"]:
        page = pages(place["document"])[place["page"] - 1]

        assert any(comparable(answer) in page for answer in question["answers"]), place


@pytest.mark.parametrize("question", ANSWERABLE, ids=lambda question: question["id"])
def test_every_answer_stands_on_some_evidence_page(question: dict[str, Any]) -> None:
    found = [pages(place["document"])[place["page"] - 1] for place in question["evidence"]]

    for answer in question["answers"]:
        assert any(comparable(answer) in page for page in found), answer


@pytest.mark.parametrize("code", ["E-0472", "F30022", "EtherCAT"])
def test_what_is_asked_in_vain_stands_in_no_document(code: str) -> None:
    everything = "".join("".join(pages(name)) for name in sorted(DOCUMENTS))

    assert code not in everything


@pytest.mark.parametrize("name", MANUALS)
def test_a_manual_has_title_bookmarks_and_page_numbers(name: str) -> None:
    reader = PdfReader(SAMPLES / name)
    metadata = reader.metadata
    texts = pages(name)

    assert metadata is not None
    assert metadata.title
    assert len(reader.outline) >= 7
    assert len(texts) >= 8
    for number, text in enumerate(texts[1:], 2):
        assert f"第{number}页" in text or f"Page{number}" in text


@pytest.mark.parametrize("name", MANUALS)
def test_both_libraries_read_the_same_characters_of_a_manual(name: str) -> None:
    for number, page in enumerate(PdfReader(SAMPLES / name).pages):
        text = page.extract_text()

        assert sorted(comparable(text)) == sorted(pages(name)[number]), f"page {number + 1}"
        assert "\0" not in text
        assert not re.search("[\u2e80-\u2fdf\ufffd\ue000-\uf8ff]", text)


def test_the_fault_table_of_the_press_repeats_its_header_over_page_breaks() -> None:
    header = comparable("故障代码 故障现象 可能原因 处理措施")
    with_header = [number for number, text in enumerate(pages("press_manual_zh.pdf"), 1) if header in text]

    assert len(with_header) >= 2
    assert with_header == list(range(with_header[0], with_header[-1] + 1))


def test_the_contents_name_the_page_on_which_each_chapter_begins() -> None:
    contents = pages("press_manual_zh.pdf")[1]
    for title in ("6.2维护周期", "7.2故障代码", "5.4蓄能器"):
        named = re.search(re.escape(title) + r"[.\s]*?(\d+?)(?=\d\.\d|\d[一-鿿]|YL|$)", contents)

        assert named is not None, title
        assert title in pages("press_manual_zh.pdf")[int(named.group(1)) - 1]


def test_the_scanned_notice_is_a_picture_without_text() -> None:
    with pypdfium2.PdfDocument(SAMPLES / "scanned_notice_zh.pdf") as document:
        assert len(document) == 1
        assert document[0].get_textpage().get_text_range().strip() == ""
    assert (SAMPLES / "scanned_notice_zh.pdf").stat().st_size < 300_000


def test_the_safety_rules_are_not_utf_8() -> None:
    content = (SAMPLES / "safety_rules_gb18030.txt").read_bytes()

    with pytest.raises(UnicodeDecodeError):
        content.decode("utf-8")


def test_the_built_files_are_up_to_date() -> None:
    command = [sys.executable, "-B", str(SAMPLES / "build.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)

    if done.returncode == CANNOT_TELL:
        pytest.skip((done.stdout + done.stderr).strip())
    assert done.returncode == 0, done.stdout + done.stderr
