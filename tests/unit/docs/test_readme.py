from __future__ import annotations

import re
from pathlib import Path

import pytest

from kb.settings import Settings

ROOT = Path(__file__).parents[3]
PAGES = [
    ROOT / "README.md",
    ROOT / "README.zh-CN.md",
    ROOT / "CONTRIBUTING.md",
    *sorted((ROOT / "docs").rglob("*.md")),
]
NOT_IN_TREE = {"build", "dist"}


@pytest.mark.parametrize("page", PAGES, ids=[str(page.relative_to(ROOT)) for page in PAGES])
def test_every_linked_file_exists(page: Path) -> None:
    targets = re.findall(r"\]\((?!https?:|#)([^)#\s]+)", page.read_text("utf-8"))

    missing = [target for target in targets if not (page.parent / target).exists()]

    assert missing == []


@pytest.mark.parametrize("page", PAGES, ids=[str(page.relative_to(ROOT)) for page in PAGES])
def test_every_named_setting_exists(page: Path) -> None:
    known = {f"KB_{name.upper()}" for name in Settings.model_fields} | {"KB_CONFIG"}

    named = set(re.findall(r"\bKB_[A-Z_]*[A-Z]\b", page.read_text("utf-8")))

    assert named - known - {name for name in named if name.startswith("KB_TEST_")} == set()


def test_the_file_tree_in_the_readme_matches_the_disk() -> None:
    text = (ROOT / "README.md").read_text("utf-8")
    block = text.split("## The code", 1)[1].split("```")[1]
    shown = {line.split("/", 1)[0].strip() for line in block.strip().splitlines()}

    on_disk = {
        path.name
        for path in ROOT.iterdir()
        if path.is_dir() and not path.name.startswith(".") and not path.name.endswith(".egg-info")
    }

    assert shown == on_disk - NOT_IN_TREE - {"data"}


def test_both_readmes_show_the_same_commands() -> None:
    def commands(name: str) -> list[str]:
        text = (ROOT / name).read_text("utf-8")
        blocks = text.split("```")[1::2]
        lines = [re.sub(r"\s+#.*", "", line).strip() for block in blocks for line in block.splitlines()]
        return [
            line for line in lines if line.startswith(("make ", ".venv/bin/kb up", "export ", "python -m"))
        ]

    assert commands("README.md") == commands("README.zh-CN.md")
