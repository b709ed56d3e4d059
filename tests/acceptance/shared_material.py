"""Real files and reports that lie beside the repository, where somebody has put them."""

from __future__ import annotations

import importlib.util
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.service import ROOT

EVAL_DIR = Path(os.environ.get("KB_TEST_SHARED", ROOT.parent / "shared")) / "eval"

JudgeFile = Callable[[dict[str, Any], dict[str, Any]], tuple[bool, list[str], float | None]]


def load_entries() -> list[dict[str, Any]]:
    """Return the files with what is expected of each; empty where the material is absent."""
    return _load("files_manifest.json", "files")


def load_reports() -> dict[str, dict[str, Any]]:
    """Return the reports by id; empty where the material is absent."""
    return {report["id"]: report for report in _load("bug_reports.json", "reports")}


def load_judge() -> JudgeFile:
    """Return the scorer's function that judges one file."""
    spec = importlib.util.spec_from_file_location("score", EVAL_DIR / "score.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    judge: JudgeFile = module.judge_file
    return judge


def _load(name: str, key: str) -> list[dict[str, Any]]:
    path = EVAL_DIR / name
    return list(json.loads(path.read_text("utf-8"))[key]) if path.is_file() else []
