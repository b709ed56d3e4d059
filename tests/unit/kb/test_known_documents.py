from __future__ import annotations

from pathlib import Path

import pytest

from kb.known_documents import KnownDocuments
from tests.unit.kb.cli.fake_service import make_document


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "report.pdf"
    path.write_bytes(b"report")
    return path


def test_a_file_is_known_by_its_bytes_under_its_own_name_first(file: Path) -> None:
    copies = [make_document("c", name, b"report", state="ready") for name in ("copy.pdf", "report.pdf")]

    found = KnownDocuments(copies).find({"report.pdf": file, "copy.pdf": file})

    assert found == {"report.pdf": copies[1], "copy.pdf": copies[0]}


def test_a_copy_needs_not_be_sent_and_a_file_with_a_new_name_does(file: Path, tmp_path: Path) -> None:
    known = KnownDocuments([make_document("c", "report.pdf", b"report", state="ready")])
    changed = tmp_path / "changed.pdf"
    changed.write_bytes(b"second edition")

    assert set(known.find({"report.pdf": file, "copy.pdf": file})) == {"report.pdf", "copy.pdf"}
    assert known.find({"report 2025.pdf": file}) == {}
    assert known.find({"report 2025.pdf": file, "report.pdf": changed}) == {}


def test_a_file_that_cannot_be_read_is_not_known(tmp_path: Path) -> None:
    known = KnownDocuments([make_document("c", "report.pdf", b"report", state="ready")])

    assert known.find({"report.pdf": tmp_path / "gone.pdf"}) == {}


@pytest.mark.parametrize("state", ["failed", "cancelled"])
def test_what_did_not_end_well_is_sent_again(file: Path, state: str) -> None:
    failed = make_document("c", "report.pdf", b"report", state=state)

    assert KnownDocuments([failed]).find({"report.pdf": file}) == {}


def test_a_file_that_is_there_as_an_attachment_only_is_sent_as_well(file: Path) -> None:
    attached = make_document("c", "mail.eml › report.pdf", b"report", state="ready")
    attached = attached.model_copy(update={"parent_id": "d-mail"})

    assert KnownDocuments([attached]).find({"report.pdf": file}) == {}
