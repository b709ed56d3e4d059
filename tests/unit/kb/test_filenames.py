from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kb.filenames import clean_filename, find_disposition_filename, name_attachment

CHINESE = "故障代码表.pdf"


@pytest.mark.parametrize(
    "raw",
    [
        CHINESE,
        CHINESE.encode(),
        CHINESE.encode("gbk"),
        CHINESE.encode("gb18030"),
        CHINESE.encode().decode("latin-1"),
        CHINESE.encode("gbk").decode("latin-1"),
        CHINESE.encode().decode("latin-1").encode().decode("latin-1"),
        "%E6%95%85%E9%9A%9C%E4%BB%A3%E7%A0%81%E8%A1%A8.pdf",
        "=?UTF-8?B?5pWF6Zqc5Luj56CB6KGoLnBkZg==?=",
        "=?utf-8?q?=E6=95=85=E9=9A=9C=E4=BB=A3=E7=A0=81=E8=A1=A8.pdf?=",
        f"C:\\Users\\wang\\{CHINESE}",
        f"../../etc/{CHINESE}",
    ],
)
def test_a_chinese_name_survives_every_encoding(raw: str | bytes) -> None:
    assert clean_filename(raw) == CHINESE


def test_utf_8_read_as_windows_1252_is_repaired() -> None:
    assert clean_filename("â€œVentileâ€\x9d.pdf") == "“Ventile”.pdf"
    assert clean_filename("PrÃ¼fplan.pdf") == "Prüfplan.pdf"


@pytest.mark.parametrize(
    "name",
    [
        "Prüfplan Größe Ö.pdf",
        "Étiquetage à l'arrêt.docx",
        "CRÉÉE.pdf",
        "руководство.pdf",
        "取扱説明書 Ver.2.pdf",
        "설명서.xlsx",
        "دليل.pdf",
        "E-0471 – Störung (1).pdf",
        "100%25.pdf",
        "100 % Prüfung.pdf",
        "50%.txt",
        "a=?b?=.txt",
        "=?nonsense?B?????=.txt",
        "=?x-unknown?B?YQ==?=",
        "%ff%fe.pdf",
        "emoji 🔧.txt",
        "no extension",
        "a.b.c.tar.gz",
    ],
)
def test_a_correct_name_of_any_script_stays_as_it_is(name: str) -> None:
    assert clean_filename(name) == name
    assert clean_filename(name.encode()) == name


@pytest.mark.parametrize("name", ["Prüfplan.pdf", "Größe.pdf", "Übergröße.pdf", "café.pdf"])
def test_latin_bytes_are_not_taken_for_chinese(name: str) -> None:
    assert clean_filename(name.encode("cp1252")) == name


def test_bytes_that_are_nothing_lose_only_what_cannot_be_read() -> None:
    assert clean_filename(b"a\x81.pdf") == "a.pdf"


@pytest.mark.parametrize(
    ("raw", "clean"),
    [
        ("/etc/passwd", "passwd"),
        ("..\\..\\boot.ini", "boot.ini"),
        ("C:boot.ini", "boot.ini"),
        ("folder/", "folder"),
        ("..", "unnamed"),
        ("/", "unnamed"),
        ("", "unnamed"),
        (b"", "unnamed"),
        ("\x00\x1b\u202e", "unnamed"),
        ("%2e%2e%2f%E6%95%85.pdf", "故.pdf"),
        (" .hidden. ", "hidden"),
        ("a\x00b\r\n\tc.pdf", "ab c.pdf"),
        ("manual\u202efdp.exe", "manualfdp.exe"),
        ("zero\u200bwidth\ufeff.pdf", "zerowidth.pdf"),
        ("lone\ud800.pdf", "lone.pdf"),
        ("a\u2028b\xa0c.pdf", "a b c.pdf"),
    ],
)
def test_path_tricks_and_invisible_characters_are_removed(raw: str | bytes, clean: str) -> None:
    assert clean_filename(raw) == clean


def test_decomposed_names_become_composed() -> None:
    assert clean_filename(unicodedata.normalize("NFD", "Prüfplan.pdf")) == "Prüfplan.pdf"


@pytest.mark.parametrize("stem", ["x" * 400, "故障" * 100, "🔧" * 90, "e\u0301\u0323" * 90])
def test_a_long_name_is_cut_in_the_stem_and_keeps_its_extension(stem: str) -> None:
    cut = clean_filename(f"{stem}.pdf")

    assert len(cut.encode()) <= 255
    assert cut.endswith("….pdf")
    assert len(cut.encode()) > 240


@given(st.text() | st.binary())
def test_any_input_gives_one_clean_line(raw: str | bytes) -> None:
    name = clean_filename(raw)

    assert 1 <= len(name.encode()) <= 255
    assert not set(name) & set("/\\\n\r\0")
    assert name not in {".", ".."}
    assert name.isprintable()


@pytest.mark.parametrize(
    ("header", "name"),
    [
        (b'form-data; name="files"; filename="a.pdf"', "a.pdf"),
        (b"form-data; name=files; filename=a.pdf", "a.pdf"),
        (b'form-data; name="files"; filename="' + CHINESE.encode() + b'"', CHINESE),
        (b'form-data; name="files"; filename="' + CHINESE.encode("gbk") + b'"', CHINESE),
        (b'form-data; name="f"; filename="x.pdf"; filename*=UTF-8\'\'%E6%95%85.pdf', "故.pdf"),
        (b"form-data; name=\"f\"; filename*=utf-8'zh'%E6%95%85.pdf; filename=x.pdf", "故.pdf"),
        (b"form-data; name=\"f\"; filename*=GBK''%B9%CA%D5%CF.pdf", "故障.pdf"),
        (b"form-data; name=\"f\"; filename*=UTF-8''%ff; filename=x.pdf", "x.pdf"),
        (b"form-data; name=\"f\"; filename*=nope''a; filename=x.pdf", "x.pdf"),
        (b'form-data; name="f"; filename*=broken; filename=x.pdf', "x.pdf"),
        (b'form-data; name="f"; filename="say \\"hi\\".pdf"', 'say "hi".pdf'),
        (b'form-data; name="f"; filename="a;b=c.pdf"', "a;b=c.pdf"),
        (b'form-data; name="f"; filename="' + "故障誠".encode("gbk") + b'"', "故障誠"),
        (b'form-data; name="f"; filename=""', ""),
        (b'form-data; name="f"', None),
        (b"", None),
    ],
)
def test_the_name_is_found_in_the_header_of_a_part(header: bytes, name: str | None) -> None:
    assert find_disposition_filename(header) == name


def test_an_attachment_is_named_after_its_parent() -> None:
    assert name_attachment("mail.eml", "报告.pdf") == "mail.eml › 报告.pdf"
    assert clean_filename(name_attachment("mail.eml", "报告.pdf")) == "mail.eml › 报告.pdf"


@given(st.text(), st.text())
def test_the_name_of_an_attachment_is_clean_and_keeps_its_extension(parent: str, own: str) -> None:
    name = name_attachment(clean_filename(parent), clean_filename(f"{own}x.pdf"))

    assert clean_filename(name) == name
    assert name.endswith(".pdf")
    assert len(name.encode()) <= 255


def test_of_a_long_name_the_parent_is_cut_first() -> None:
    name = name_attachment("电" * 85, "x" * 110 + ".pdf")

    assert len(name.encode()) > 240
    assert name.endswith("… › " + "x" * 110 + ".pdf")
