"""How long a job will still take, from the speed it has shown."""

from __future__ import annotations

from datetime import datetime

from kb.types import Document, Job, JobState


class StageSpeed:
    """Measures one stage of a job: how long will what is left of it take?

    The first share noted is where the stage begins: what an earlier attempt has done says nothing about the
    speed of this one.
    """

    def __init__(self) -> None:
        self._first: tuple[datetime, float] | None = None
        self._last: tuple[datetime, float] | None = None

    def note(self, share: float, *, now: datetime) -> None:
        """Note that `share` of the stage, 0..1, is done."""
        self._last = (now, share)
        self._first = self._first or self._last

    def estimate_rest_s(self, *, now: datetime) -> float | None:
        """Return the seconds until the stage ends, None before anything of it is done."""
        if self._first is None or self._last is None or self._last[1] <= self._first[1]:
            return None
        (first_at, first), (last_at, last) = self._first, self._last
        rest_s = (last_at - first_at).total_seconds() / (last - first) * (1 - last)
        return max(rest_s - (now - last_at).total_seconds(), 0.0)


def estimate_rest_s(job: Job, document: Document, *, now: datetime) -> float | None:
    """Return the seconds until the present stage of a running job ends, None before there is a speed.

    The next stage has a speed of its own, which nobody knows yet: its time is not included.
    """
    if job.state is not JobState.RUNNING or not job.attempts or document.job_id != job.id:
        return None
    rest_s = job.attempts[-1].rest_s
    return None if rest_s is None else max(rest_s - (now - job.updated_at).total_seconds(), 0.0)
