from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from kb.progress import estimate_rest_s
from kb.types import Attempt, Document, DocumentState, Job, JobState

START = datetime(2026, 1, 1, tzinfo=UTC)
JOB = Job(
    "j1",
    "c1",
    "d1",
    1,
    JobState.RUNNING,
    START,
    START,
    attempts=(Attempt(1, "w1", START, stage_started_at=START),),
)
DOCUMENT = Document(
    "d1",
    "c1",
    "a.pdf",
    "00",
    1,
    1,
    DocumentState.PARSING,
    START,
    START + timedelta(seconds=20),
    pages_done=10,
    page_count=40,
    job_id="j1",
)


def test_the_rest_is_the_pages_left_at_the_speed_so_far_less_the_time_since() -> None:
    assert estimate_rest_s(JOB, DOCUMENT, now=DOCUMENT.updated_at) == pytest.approx(60)
    assert estimate_rest_s(JOB, DOCUMENT, now=DOCUMENT.updated_at + timedelta(seconds=5)) == pytest.approx(55)
    assert estimate_rest_s(JOB, DOCUMENT, now=DOCUMENT.updated_at + timedelta(hours=1)) == 0


@pytest.mark.parametrize(
    ("job", "document"),
    [
        (replace(JOB, state=JobState.QUEUED), DOCUMENT),
        (replace(JOB, state=JobState.SUCCEEDED), DOCUMENT),
        (replace(JOB, attempts=()), DOCUMENT),
        (replace(JOB, attempts=(Attempt(1, "w1", START),)), DOCUMENT),
        (JOB, replace(DOCUMENT, pages_done=0)),
        (JOB, replace(DOCUMENT, page_count=0)),
        (JOB, replace(DOCUMENT, job_id="j2")),
    ],
)
def test_without_a_measured_speed_there_is_no_estimate(job: Job, document: Document) -> None:
    assert estimate_rest_s(job, document, now=START + timedelta(seconds=30)) is None
