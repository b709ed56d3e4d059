"""The card that a model shall run on: from a table, from its memory, or from the machine."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from kb.errors import CallerError

_MIB_PER_UNIT = {"": 1024.0, "g": 1024.0, "gb": 1024.0, "gib": 1024.0, "m": 1.0, "mb": 1.0, "mib": 1.0}
_MODERN = (8, 0)


@dataclass(frozen=True, slots=True)
class Card:
    """An NVIDIA card; `memory_mib` is the total that nvidia-smi shows, None bandwidth is unknown."""

    name: str
    memory_mib: int
    capability: tuple[int, int]
    bandwidth_gb_s: float | None = None


class CardUnknownError(CallerError):
    """No card of the table has this name."""

    code = "card_unknown"

    def __init__(self, name: str, known: Sequence[Card]) -> None:
        super().__init__(
            f"no card named {name!r} is known",
            next_step=f"Use --vram, such as --vram 12G, or one of: {', '.join(card.name for card in known)}.",
        )


@cache
def load_cards() -> tuple[Card, ...]:
    """Return the table of common cards, smallest memory first."""
    table = tomllib.loads((files("kb") / "runtime" / "cards.toml").read_text(encoding="utf-8"))
    cards = [
        Card(
            name=entry["name"],
            memory_mib=entry["memory_mib"],
            capability=parse_capability(entry["capability"]),
            bandwidth_gb_s=entry["bandwidth_gb_s"],
        )
        for entry in table["card"]
    ]
    return tuple(sorted(cards, key=lambda card: card.memory_mib))


def find_card(name: str) -> Card:
    """Return the card that `name` means: "RTX 3060 12GB", "3060", "nvidia h200".

    Raises `CardUnknownError` when none or more than one fits.
    """
    asked = _split_name(name)
    found = [card for card in load_cards() if asked and asked <= _split_name(card.name)]
    if len(found) != 1:
        raise CardUnknownError(name, load_cards())
    return found[0]


def card_of_memory(text: str, *, capability: tuple[int, int] = _MODERN, least_mib: int = 1024) -> Card:
    """Return a card with so much memory, such as `12G` or `11264M`; raises `CallerError`."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-z]*)\s*", text.lower())
    scale = _MIB_PER_UNIT.get(match[2]) if match else None
    if match is None or scale is None or float(match[1]) * scale < least_mib:
        raise CallerError(
            f"{text!r} is no amount of graphics memory", next_step="Write it like 12G or 11264M."
        )
    return Card(f"a card with {text.strip()}", int(float(match[1]) * scale), capability)


def parse_capability(text: str) -> tuple[int, int]:
    """Return the compute capability `8.6` as numbers."""
    major, _, minor = text.strip().partition(".")
    return int(major), int(minor or 0)


def _split_name(name: str) -> frozenset[str]:
    """Return the words that tell cards apart; `12GB` and `12 GB`, `3060Ti` and `3060 ti` are equal."""
    words = re.findall(r"[a-z]+\d+[a-z]*|\d+|[a-z]+", re.sub(r"(\d+)\s*g(?:i?b)?\b", r"\1g", name.lower()))
    return frozenset(words) - {"nvidia", "geforce", "rtx", "tesla", "g", "gb"}
