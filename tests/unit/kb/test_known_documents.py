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

    found = KnownDocuments(copies).find(file, name="report.pdf")

    assert found == copies[1]


@pytest.mark.parametrize("state", ["failed", "cancelled"])
def test_what_did_not_end_well_is_sent_again(file: Path, state: str) -> None:
    failed = make_document("c", "report.pdf", b"report", state=state)

    assert KnownDocuments([failed]).find(file, name="report.pdf") is None


def test_a_file_that_is_there_as_an_attachment_only_is_sent_as_well(file: Path) -> None:
    attached = make_document("c", "mail.eml › report.pdf", b"report", state="ready")
    attached = attached.model_copy(update={"parent_id": "d-mail"})

    assert KnownDocuments([attached]).find(file, name="report.pdf") is None
