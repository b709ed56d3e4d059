"""A drawn manual and questions about it, from which prompts of a wanted length come."""

from __future__ import annotations

import random
from collections.abc import Sequence

_PARTS = (
    "main spindle", "hydraulic pump", "coolant tank", "tool changer", "pallet clamp", "servo drive", "chip conveyor",
    "guide rail", "ball screw", "pressure switch", "oil separator", "control cabinet", "light curtain", "feed unit",
)  # fmt: skip
_DEEDS = (
    "check the level and top it up", "tighten the screws crosswise", "measure the voltage at the terminal",
    "clean the filter with compressed air", "wait until the pressure has fallen", "note the reading in the log",
    "replace the seal", "let the unit cool down", "compare the reading with the plate", "turn the valve by hand",
)  # fmt: skip


def build_sections(count: int, *, seed: int = 1) -> list[str]:
    """Return sections of about 250 tokens, each about a machine of its own name."""
    draw = random.Random(seed)  # noqa: S311 - drawn text, no secret
    return [_build_section(number, draw) for number in range(count)]


def build_document(sections: Sequence[str]) -> str:
    """Return the sections as one Markdown text."""
    return "\n\n".join(sections) + "\n"


def name_machine(number: int) -> str:
    """Return the name of a machine, of letters only, so that it is no code."""
    letters = "bdfgklmnprstvz"
    name = ""
    for _ in range(3):
        number, place = divmod(number, len(letters))
        name += letters[place] + "aeiou"[(place + number) % 5]
    return f"{name.capitalize()}tron"


def build_question(number: int, *, variant: int = 0) -> str:
    """Return a question about one machine; variants differ at their end only."""
    ending = f" Answer for shift {_spell(variant)}." if variant else ""
    return f"How is the {name_machine(number)} machine serviced, step by step, with all parts and readings?{ending}"


def _build_section(number: int, draw: random.Random) -> str:
    machine = name_machine(number)
    lines = [f"# Service of the {machine} machine", ""]
    for step in range(1, 13):
        part, deed, other = draw.choice(_PARTS), draw.choice(_DEEDS), draw.choice(_DEEDS)
        lines.append(
            f"Step {step}: at the {part} of the {machine}, {deed}; then {other} within {draw.randint(2, 90)} minutes."
        )
    return "\n".join(lines)


def _spell(number: int) -> str:
    return "".join("abcdefghij"[int(digit)] for digit in str(number))
