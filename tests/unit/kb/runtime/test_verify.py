from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from kb.runtime.manifest import compare_manifest, write_manifest
from kb.runtime.verify import verify_model
from tests.checkpoints import QWEN3_8B, change_json, write_checkpoint, write_tokenizer


def find_states(folder: Path) -> dict[str, tuple[str, str]]:
    return {
        check.name: (check.state, check.detail) for check in verify_model(folder, runtime_python=None).checks
    }


@pytest.mark.parametrize("method", ["awq", "compressed-tensors", ""])
def test_a_whole_folder_has_no_failure(tmp_path: Path, method: str) -> None:
    report = verify_model(write_checkpoint(tmp_path / "model", method=method), runtime_python=None)

    assert [check for check in report.checks if check.state in ("fail", "warn")] == []


def test_a_folder_of_8_billion_parameters_is_read_without_its_weights(tmp_path: Path) -> None:
    report = verify_model(write_checkpoint(tmp_path / "model", sizes=QWEN3_8B, files=4), runtime_python=None)

    assert not report.failed
    assert report.shape is not None
    assert report.shape.weight_bytes > 4.5e9


def first_shard(folder: Path) -> Path:
    return sorted(folder.glob("*.safetensors"))[0]


def cut(folder: Path) -> None:
    with first_shard(folder).open("r+b") as stream:
        stream.truncate(first_shard(folder).stat().st_size - 100)


def point(folder: Path) -> None:
    first_shard(folder).write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n")


def pickle(folder: Path) -> None:
    for path in folder.glob("*.safetensors"):
        path.unlink()
    (folder / "pytorch_model.bin").write_bytes(b"x")


def gguf(folder: Path) -> None:
    pickle(folder)
    (folder / "pytorch_model.bin").rename(folder / "model-q4.gguf")


def regroup(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    change_json(
        folder / "config.json", quantization_config=config["quantization_config"] | {"group_size": 64}
    )


BREAKAGES: list[tuple[Callable[[Path], object], str, str]] = [
    (cut, "weights", "is cut off"),
    (point, "git lfs", "pointers of Git LFS"),
    (point, "weights", "LFS pointer"),
    (lambda folder: first_shard(folder).write_bytes(b"\xff" * 64), "weights", "no readable header"),
    (lambda folder: first_shard(folder).unlink(), "weights", "is missing"),
    (pickle, "format", "refused"),
    (gguf, "format", "GGUF"),
    (regroup, "quantization", "groups of 64"),
    (
        lambda folder: change_json(folder / "config.json", quantization_config=None),
        "quantization",
        "no quantization_config",
    ),
    (lambda folder: change_json(folder / "config.json", num_hidden_layers=3), "layers", "config.json says 3"),
    (lambda folder: change_json(folder / "config.json", hidden_size=None), "config", "hidden_size"),
    (
        lambda folder: change_json(folder / "config.json", auto_map={"A": "x.B"}),
        "own code",
        "code in the folder",
    ),
    (lambda folder: write_tokenizer(folder, vocab=900), "tokenizer", "another model"),
    (
        lambda folder: change_json(folder / "tokenizer_config.json", chat_template=None),
        "chat template",
        "no chat template",
    ),
    (
        lambda folder: change_json(
            folder / "tokenizer_config.json", chat_template="{{ messages[0].content }}"
        ),
        "chat template",
        "turns of",
    ),
]


@pytest.mark.parametrize(("breaks", "name", "said"), BREAKAGES)
def test_each_damage_is_found_and_comes_with_a_fix(
    tmp_path: Path, breaks: Callable[[Path], object], name: str, said: str
) -> None:
    folder = write_checkpoint(tmp_path / "model")
    breaks(folder)

    found = {check.name: check for check in verify_model(folder, runtime_python=None).checks}[name]

    assert found.state == "fail"
    assert said in found.detail
    assert found.fix


def test_a_missing_end_of_answer_is_warned_of(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "model")
    change_json(folder / "generation_config.json", eos_token_id=0)

    assert find_states(folder)["end of answer"][0] == "warn"


def test_a_manifest_names_what_changed(tmp_path: Path) -> None:
    folder, manifest = write_checkpoint(tmp_path / "model"), tmp_path / "SHA256SUMS"
    write_manifest(folder, manifest)
    assert compare_manifest(folder, manifest).state == "ok"

    change_json(folder / "config.json", extra=1)
    (folder / "LICENSE").unlink()
    found = compare_manifest(folder, manifest)

    assert found.state == "fail"
    assert "changed: config.json" in found.detail
    assert "missing: LICENSE" in found.detail
