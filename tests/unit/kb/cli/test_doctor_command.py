from __future__ import annotations

from pathlib import Path

from tests.unit.kb.cli.conftest import Run


def test_the_command_tells_what_fails_and_what_to_do(run: Run, tmp_path: Path) -> None:
    missing = {"KB_MODELS_DIR": str(tmp_path / "none"), "KB_API_URL": "http://127.0.0.1:9"}

    shown, listed = run("doctor", **missing), run("doctor", "--json", **missing)

    assert (shown.code, listed.code) == (1, 1)
    assert "Run `kb models pull`." in shown.out
    checks = {item["name"]: item for item in listed.json["checks"]}
    assert listed.json["ok"] is False
    assert (checks["embedder"]["state"], checks["service"]["state"]) == ("fail", "info")
