"""Baselines: the figures of earlier runs of the same questions, in the user's state folder."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Baseline:
    """Figures by name, with when they were kept (ISO 8601)."""

    kept_at: str
    figures: Mapping[str, float]


def find_baselines_folder() -> Path:
    """Return the folder below `$XDG_STATE_HOME`, which need not exist."""
    base = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(base) / "kb" / "eval"


def find_baseline(folder: Path, fingerprint: str) -> Baseline | None:
    """Return the last baseline kept for these questions; a broken file is none."""
    try:
        stored = json.loads((folder / f"{fingerprint}.json").read_text("utf-8"))
        figures = {str(name): float(value) for name, value in stored["figures"].items()}
        return Baseline(str(stored["kept_at"]), figures)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def keep_baseline(folder: Path, fingerprint: str, baseline: Baseline) -> Path:
    """Keep the figures instead of former ones; return where."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{fingerprint}.json"
    part = path.with_suffix(".part")
    part.write_text(
        json.dumps({"kept_at": baseline.kept_at, "figures": dict(baseline.figures)}, indent=2) + "\n", "utf-8"
    )
    part.replace(path)
    return path
