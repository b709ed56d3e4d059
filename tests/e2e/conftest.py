"""One real service with the sample documents, shared by the end-to-end tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.service import SAMPLES, Service, start_service

SAMPLE_NAMES = (
    "press_manual_zh.pdf",
    "drive_manual_en.pdf",
    "inspection_sheet_zh.xlsx",
    "it_policy_en.docx",
    "intranet_page.html",
    "shift_notes.md",
    "safety_rules_gb18030.txt",
    "scanned_notice_zh.pdf",
)


@pytest.fixture(scope="session")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """Yield a service whose default collection holds the sample documents."""
    with start_service(tmp_path_factory.mktemp("service") / "data") as running:
        result = running.run_kb("ingest", *(str(SAMPLES / name) for name in SAMPLE_NAMES))
        assert result.returncode == 0, f"{result.stdout}\n{result.stderr}\n{running.read_logs()}"
        yield running
