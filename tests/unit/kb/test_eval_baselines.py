from __future__ import annotations

from pathlib import Path

import pytest

from kb.eval_baselines import Baseline, find_baseline, find_baselines_folder, keep_baseline


def test_the_last_baseline_kept_for_a_set_is_found(tmp_path: Path) -> None:
    folder = tmp_path / "state" / "eval"
    assert find_baseline(folder, "aa") is None

    keep_baseline(folder, "aa", Baseline("2026-05-04T03:02:01+00:00", {"retrieval.hit@1": 0.5}))
    keep_baseline(folder, "aa", Baseline("2026-05-05T03:02:01+00:00", {"retrieval.hit@1": 0.75}))

    assert find_baseline(folder, "aa") == Baseline("2026-05-05T03:02:01+00:00", {"retrieval.hit@1": 0.75})
    assert find_baseline(folder, "bb") is None


@pytest.mark.parametrize("content", ["", "[]", '{"kept_at": "x"}', '{"kept_at": "x", "figures": {"a": "b"}}'])
def test_a_broken_baseline_is_none(tmp_path: Path, content: str) -> None:
    (tmp_path / "aa.json").write_text(content)

    assert find_baseline(tmp_path, "aa") is None


def test_baselines_are_state_of_the_user(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))

    assert find_baselines_folder() == tmp_path / "kb" / "eval"
