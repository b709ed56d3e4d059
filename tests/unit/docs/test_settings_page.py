"""docs/settings.md tells of every setting, as kb/settings.py has it."""

from __future__ import annotations

from docs.build_settings import TARGET, render
from kb.settings import Settings


def test_the_page_is_up_to_date() -> None:
    assert TARGET.read_text("utf-8") == render(), "run: python -m docs.build_settings"


def test_every_setting_has_one_row_with_a_meaning() -> None:
    rows = [line.split(" | ") for line in render().splitlines() if line.startswith("| `KB_")]

    assert sorted(row[0] for row in rows) == sorted(
        f"| `KB_{name.upper()}`" for name in Settings.model_fields
    )
    for row in rows:
        assert len(row) == 4
        assert row[3].removesuffix(" |").strip()
