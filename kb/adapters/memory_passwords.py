"""MemoryPasswords: passwords in the memory of one process, for tests and programs without workers."""

from __future__ import annotations


class MemoryPasswords:
    """Forgets everything when its process ends."""

    def __init__(self) -> None:
        self._passwords: dict[str, str] = {}

    def keep(self, job_id: str, password: str) -> None:
        self._passwords[job_id] = password

    def find(self, job_id: str) -> str | None:
        return self._passwords.get(job_id)

    def forget(self, job_id: str) -> None:
        self._passwords.pop(job_id, None)

    def list_jobs(self) -> list[str]:
        return sorted(self._passwords)
