from __future__ import annotations

import pytest

from kb.revisions import Superseded, prefer_newest, read_revision
from tests.unit.kb.stand_ins import make_passage


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        ("press_manual_v1.2.pdf", "press_manual_v1.10.pdf"),
        ("Press Manual Rev. A.pdf", "Press Manual Rev. B.docx"),
        ("压机手册 2021版.pdf", "压机手册 2023版.pdf"),
        ("压机手册第二版.pdf", "压机手册第3版.pdf"),
        ("SOP-12_20240131.docx", "SOP-12_20240201.docx"),
        ("SOP-12 2024-01-31.docx", "SOP-12 2024-02-01.docx"),
        ("保养规程（版本1.0）.docx", "保养规程（版本2.0）.docx"),
        ("hydraulics 2nd edition.pdf", "hydraulics 3rd edition.pdf"),
    ],
)
def test_the_newer_of_two_revisions_has_the_higher_order(older: str, newer: str) -> None:
    first, second = read_revision(older), read_revision(newer)

    assert first is not None
    assert second is not None
    assert first.series == second.series
    assert first.order < second.order


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("press_v1.pdf", "pump_v2.pdf"),
        ("press_v1.pdf", "press_2023.pdf"),
        ("YL-315 手册 v1.pdf", "YL-200 手册 v2.pdf"),
    ],
)
def test_different_documents_and_different_kinds_of_marks_are_no_revisions(one: str, other: str) -> None:
    first, second = read_revision(one), read_revision(other)

    assert first is not None
    assert second is not None
    assert first.series != second.series


@pytest.mark.parametrize("name", ["press_manual.pdf", "YL-315.pdf", "VD300-4T0220.pdf", "2023.pdf", ""])
def test_a_name_without_a_mark_states_no_revision(name: str) -> None:
    assert read_revision(name) is None


def test_passages_of_older_revisions_give_way() -> None:
    old = make_passage("滤芯每 3 个月更换一次。", rank=0, name="手册 v1.pdf", document_id="a")
    new = make_passage("滤芯每 6 个月更换一次。", rank=1, name="手册 v2.pdf", document_id="b")
    other = make_passage("滤芯在油箱上方。", rank=2, name="备件.pdf", document_id="c")

    kept, superseded = prefer_newest([old, new, other], question="滤芯多久更换一次？")

    assert kept == [new, other]
    assert superseded == (Superseded("手册 v1.pdf", "手册 v2.pdf"),)


def test_a_revision_that_the_question_names_stays() -> None:
    old = make_passage("滤芯每 3 个月更换一次。", rank=0, name="手册 v1.pdf", document_id="a")
    new = make_passage("滤芯每 6 个月更换一次。", rank=1, name="手册 v2.pdf", document_id="b")

    kept, superseded = prefer_newest([old, new], question="手册 V1 里滤芯多久更换一次？")

    assert kept == [old, new]
    assert superseded == ()


def test_the_newest_alone_is_kept_as_it_is() -> None:
    new = make_passage("滤芯每 6 个月更换一次。", name="手册 v2.pdf")

    assert prefer_newest([new], question="滤芯") == ([new], ())
