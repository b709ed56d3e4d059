"""Codes are found in all their spellings; quantities, dates and prose are not codes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kb.codes import canonicalise, is_code_like, iter_codes


def codes(text: str) -> list[str]:
    return [mention.canonical for mention in iter_codes(text)]


@pytest.mark.parametrize(
    ("code", "canonical"),
    [
        ("E-0471", "E0471"),
        ("e0471", "E0471"),
        ("E 0471", "E0471"),
        ("e 0471", "E0471"),
        ("Ｅ－０４７１", "E0471"),
        ("Ｅ　０４７１", "E0471"),
        ("E–0471", "E0471"),
        ("SRVO-050", "SRVO050"),
        ("srvo-050", "SRVO050"),
        ("SRVO 050", "SRVO050"),
        ("AL.24", "AL24"),
        ("AL 2", "AL2"),
        ("F30001", "F30001"),
        ("0x0F4A", "0X0F4A"),
        ("0x20", "0X20"),
        ("P0-15", "P015"),
        ("Pr0.15", "PR015"),
        ("ERR14", "ERR14"),
        ("BRG-6217-2RS", "BRG62172RS"),
        ("6205-2RS", "62052RS"),
        ("ALARM:2", "ALARM2"),
        ("ALARM 2", "ALARM2"),
        ("A0001", "A0001"),
        ("E1", "E1"),
        ("S7-1200", "S71200"),
        ("6ES7 315-2AG10", "6ES73152AG10"),
        ("ISO9001", "ISO9001"),
    ],
)
def test_codes_are_found_in_every_spelling(code: str, canonical: str) -> None:
    in_english = codes(f"What does {code} mean?")
    in_chinese = codes(f"报警{code}是什么意思，如何处理？")

    assert canonicalise(code) == canonical
    if code != "6ES7 315-2AG10":  # a space between two groups with letters parts two codes
        assert in_english == in_chinese == [canonical]


@pytest.mark.parametrize(
    "text",
    [
        *("15kW", "3.5mm", "2024", "380V", "50Hz", "10-20mm", "2nd", "MP3", "5MPa", "5 MPa", "100%", "12:30"),
        *(
            "AC220V",
            "DC24V",
            "220VAC",
            "24V/5A",
            "20N.m",
            "50Hz/60Hz",
            "100x200mm",
            "100x200",
            "0.5m/s2",
            "m3/h",
        ),
        *(
            "kg/cm2",
            "1500rpm",
            "16GB",
            "3-phase",
            "24-hour",
            "1st-floor",
            "2024-03-01",
            "2024-03-01T12:30",
            "V2.1",
        ),
        *(
            "UTF-8",
            "CO2",
            "10am",
            "M2/H",
            "80°C",
            "80℃",
            "5μm",
            "1/2in",
            "IN 2024",
            "PAGE 12",
            "STEP 10",
            "page-3",
        ),
        *("figure-4.2", "No.12", "Table 3", "a 2024 model", "I have 20 pumps", "http://10.0.0.1:8000/v1/x2y"),
        *(
            "team7@plant3.example",
            "",
            "   ",
            "液压泵",
            "overview2installation",
            "第3章",
            "3号泵",
            "AC 220",
            "DC 24",
        ),
    ],
)
def test_quantities_dates_places_and_prose_are_not_codes(text: str) -> None:
    assert codes(text) == []


def test_mentions_come_in_order_and_tell_where_they_stand() -> None:
    text = "先看Ｅ－０４７１，再看 SRVO 050 and F30001; 15kW is a quantity."

    mentions = list(iter_codes(text))

    assert [mention.text for mention in mentions] == ["Ｅ－０４７１", "SRVO 050", "F30001"]
    assert all(text[mention.char_start : mention.char_end] == mention.text for mention in mentions)


def test_a_code_after_a_url_is_still_found_where_it_stands() -> None:
    text = "见http://plant.example/a1b2，E-0471"

    (mention,) = iter_codes(text)

    assert (mention.text, mention.char_start) == ("E-0471", text.index("E-0471"))


def test_a_spaced_code_is_one_mention_with_its_tail() -> None:
    assert codes("Parameter P 15-02 and ALARM 2.") == ["P1502", "ALARM2"]


def test_different_codes_stay_different() -> None:
    assert len({canonicalise(code) for code in ("E-0471", "E-0472", "E-471", "F-0471", "E-04711")}) == 5


@given(st.text())
def test_every_mention_is_a_slice_of_the_text_with_a_letter_and_a_digit(text: str) -> None:
    end = 0
    for mention in iter_codes(text):
        assert text[mention.char_start : mention.char_end] == mention.text
        assert mention.char_start >= end
        assert any(char.isdigit() for char in mention.canonical)
        assert any(char.isalpha() for char in mention.canonical)
        end = mention.char_end


@given(st.from_regex(r"[A-Z]{1,4}-[0-9]{3,5}", fullmatch=True))
def test_the_separator_of_a_code_makes_no_difference(code: str) -> None:
    spellings = [code, code.replace("-", ""), code.replace("-", "."), code.replace("-", "－")]

    assert {canonicalise(spelling) for spelling in spellings} == {code.replace("-", "")}


@pytest.mark.parametrize(
    "text", ["E-0471", " ｅ０４７１ ", "f 30050", "SRVO 050", "0x0F4A", "414", "OC", "a1b"]
)
def test_a_code_alone_is_meant_as_one(text: str) -> None:
    assert is_code_like(text)


@pytest.mark.parametrize("text", ["油温过高", "E-0471 怎么处理", "overheating", "no power", "油温60", ""])
def test_words_are_not(text: str) -> None:
    assert not is_code_like(text)


def test_what_counts_things_is_no_code() -> None:
    assert list(iter_codes("No13 fan, bolt on swing#5 pinion")) == []
    assert [mention.canonical for mention in iter_codes("ALARM#2 and error#12")] == ["ALARM2", "ERROR12"]
