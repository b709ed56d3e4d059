from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from kb.progress import StageSpeed, estimate_rest_s
from kb.types import Attempt, Document, DocumentState, Job, JobState

START = datetime(2026, 1, 1, tzinfo=UTC)
JOB = Job(
    "j1", "c1", "d1", 1, JobState.RUNNING, START, START, attempts=(Attempt(1, "w1", START, rest_s=60.0),)
)
DOCUMENT = Document("d1", "c1", "a.pdf", "00", 1, 1, DocumentState.PARSING, START, START, job_id="j1")


def after(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def test_the_rest_is_what_the_worker_told_less_the_time_since() -> None:
    assert estimate_rest_s(JOB, DOCUMENT, now=START) == 60
    assert estimate_rest_s(JOB, DOCUMENT, now=after(5)) == 55
    assert estimate_rest_s(JOB, DOCUMENT, now=after(3600)) == 0


@pytest.mark.parametrize(
    ("job", "document"),
    [
        (replace(JOB, state=JobState.QUEUED), DOCUMENT),
        (replace(JOB, state=JobState.SUCCEEDED), DOCUMENT),
        (replace(JOB, attempts=()), DOCUMENT),
        (replace(JOB, attempts=(Attempt(1, "w1", START),)), DOCUMENT),
        (JOB, replace(DOCUMENT, job_id="j2")),
    ],
)
def test_without_a_measured_speed_there_is_no_estimate(job: Job, document: Document) -> None:
    assert estimate_rest_s(job, document, now=after(30)) is None


def test_a_stage_goes_on_at_the_speed_it_has_shown() -> None:
    speed = StageSpeed()
    speed.note(0.0, now=after(0))
    speed.note(0.25, now=after(20))

    assert speed.estimate_rest_s(now=after(20)) == pytest.approx(60)
    assert speed.estimate_rest_s(now=after(25)) == pytest.approx(55)
    assert speed.estimate_rest_s(now=after(3600)) == 0


def test_what_was_done_before_the_stage_began_is_no_speed() -> None:
    speed = StageSpeed()
    speed.note(0.5, now=after(0))
    assert speed.estimate_rest_s(now=after(1)) is None

    speed.note(0.6, now=after(10))

    assert speed.estimate_rest_s(now=after(10)) == pytest.approx(40)
