from __future__ import annotations

import codecs

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingest.encoding import decode

CHINESE = "液压站油温过高时，先停机检查冷却水阀与回油滤芯，再复位报警 E07。\n润滑周期为 300 小时。"
JAPANESE = "油圧ポンプの点検は毎週行ってください。フィルターを交換します。"


@pytest.mark.parametrize(
    ("mark", "encoding"),
    [
        (codecs.BOM_UTF8, "utf-8"),
        (codecs.BOM_UTF16_LE, "utf-16-le"),
        (codecs.BOM_UTF16_BE, "utf-16-be"),
        (codecs.BOM_UTF32_LE, "utf-32-le"),
        (codecs.BOM_UTF32_BE, "utf-32-be"),
    ],
)
def test_a_byte_order_mark_decides_and_is_no_text(mark: bytes, encoding: str) -> None:
    assert decode(mark + CHINESE.encode(encoding)) == (CHINESE, encoding)


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
@pytest.mark.parametrize("text", ["Check the oil level.\nThen start.", CHINESE])
def test_utf16_without_a_mark_is_recognised(text: str, encoding: str) -> None:
    assert decode(text.encode(encoding)) == (text, encoding)


@pytest.mark.parametrize("text", [CHINESE, JAPANESE, "Öl wechseln", "plain"])
def test_utf8_is_recognised_before_anything_else(text: str) -> None:
    assert decode(text.encode()) == (text, "utf-8")


@pytest.mark.parametrize("text", [CHINESE, "报警代码：E07，油温过高", "停机检查滤芯"])
def test_gb18030_is_recognised(text: str) -> None:
    assert decode(text.encode("gb18030"))[0] == text


def test_big5_is_recognised() -> None:
    text = "油壓系統壓力不足時，請檢查油泵與溢流閥，並更換濾芯。每三百小時潤滑一次。"

    assert decode(text.encode("big5"))[0] == text


def test_shift_jis_is_recognised() -> None:
    assert decode(JAPANESE.encode("shift_jis"))[0] == JAPANESE


def test_western_text_is_recognised() -> None:
    text = "Das Öl prüfen und den Filter für die Hydraulik wechseln. Größe: 40 µm. Größte Höhe über Boden."

    assert decode(text.encode("cp1252"))[0] == text


@pytest.mark.parametrize(
    "text",
    [
        "Prüfen Sie die Ölpumpe – „täglich“.",
        "Größe: 40 µm",
        "Vérifiez la pompe à huile, é à ç.",
        "Temperatur über 80 °C",
        "Compruebe la presión, señal",
        "naïve café – “quoted”",
    ],
)
def test_short_western_text_is_recognised(text: str) -> None:
    assert decode(text.encode("cp1252")) == (text, "cp1252")


@pytest.mark.parametrize(
    ("text", "encoding"),
    [
        ("Press F1 to open, 油泵 off", "gb18030"),
        ("按F1键", "gb18030"),
        ("A相B相 motor 柜门 open, check the drive", "gb18030"),
        ("насос P1 включен, проверьте насос", "cp1251"),
        ("E-0471 液壓泵無法啟動時，請檢查電源。", "cp950"),
    ],
)
def test_other_scripts_among_ascii_are_not_taken_for_western(text: str, encoding: str) -> None:
    assert decode(text.encode(encoding))[0] == text


def test_a_declared_encoding_is_used_when_it_decodes_everything() -> None:
    assert decode("größe".encode("cp1252"), declared="ISO-8859-1") == ("größe", "cp1252")


@pytest.mark.parametrize("declared", ["no-such-encoding", "utf-16", "ascii", ""])
def test_a_wrong_declaration_does_no_harm(declared: str) -> None:
    assert decode(CHINESE.encode("gb18030"), declared=declared)[0] == CHINESE


@given(st.binary(max_size=200))
def test_no_bytes_make_it_fail(data: bytes) -> None:
    text, encoding = decode(data)

    assert isinstance(text, str)
    assert codecs.lookup(encoding)


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0\ufeff"), max_size=60))
def test_utf8_survives_unchanged(text: str) -> None:
    assert decode(text.encode())[0] == text
