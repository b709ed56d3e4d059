"""One line of a list of checks."""

from __future__ import annotations

from dataclasses import dataclass

OK, WARN, FAIL, INFO = "ok", "warn", "fail", "info"


@dataclass(frozen=True, slots=True)
class Check:
    """What was looked at and found; `fix` is what to do, "" when nothing has to be done."""

    name: str
    state: str
    detail: str
    fix: str = ""
