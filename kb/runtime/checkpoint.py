"""What lies in a model folder, read without loading a tensor."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kb.errors import ModelCorruptError, ModelMissingError

INDEX_NAME = "model.safetensors.index.json"
_LFS_MARK = b"version https://git-lfs"
_MOST_HEADER_BYTES = 100 * 1024 * 1024
"""The limit of the safetensors format."""
_DTYPE_BITS = {
    "F64": 64, "I64": 64, "U64": 64,
    "F32": 32, "I32": 32, "U32": 32,
    "F16": 16, "BF16": 16, "I16": 16, "U16": 16,
    "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8, "I8": 8, "U8": 8, "BOOL": 8,
    "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Tensor:
    """One tensor's entry in the header of a safetensors file; `end` counts from the first data byte."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    size_bytes: int
    end: int


class BadShardError(ModelCorruptError):
    """A safetensors file that cannot be used; `reason` is the end of a sentence."""

    def __init__(self, path: Path, reason: str, *, next_step: str) -> None:
        super().__init__(f"{path.name} {reason}", next_step=next_step)


def is_lfs_pointer(path: Path) -> bool:
    """Return whether the file is the small text that Git LFS leaves in place of the real one."""
    if path.stat().st_size > 1024:
        return False
    with path.open("rb") as stream:
        return stream.read(len(_LFS_MARK)) == _LFS_MARK


def list_shards(folder: Path) -> list[Path]:
    """Return the safetensors files of the folder itself, by name."""
    return sorted(folder.glob("*.safetensors"))


def read_header(path: Path) -> dict[str, Tensor]:
    """Return the tensors that a safetensors file declares, by name, once they are known to be all there.

    Raises `BadShardError`. Only the header is read.
    """
    size_bytes = path.stat().st_size
    again = f"Copy {path.name} again and compare with --against."
    if is_lfs_pointer(path):
        raise BadShardError(
            path,
            "is a Git LFS pointer, not the weights",
            next_step="Run `git lfs pull` where it was cloned, then copy it.",
        )
    with path.open("rb") as stream:
        head = stream.read(8)
        length = struct.unpack("<Q", head)[0] if len(head) == 8 else 0
        if not 2 <= length <= min(_MOST_HEADER_BYTES, max(0, size_bytes - 8)):
            raise BadShardError(path, f"has no readable header ({size_bytes:,} bytes)", next_step=again)
        try:
            content = json.loads(stream.read(length))
            tensors = {
                name: _read_entry(name, entry) for name, entry in content.items() if name != "__metadata__"
            }
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise BadShardError(path, f"has a damaged header: {error}", next_step=again) from error
    expected = 8 + length + max((tensor.end for tensor in tensors.values()), default=0)
    if size_bytes < expected:
        raise BadShardError(
            path, f"is cut off: {size_bytes:,} of {expected:,} bytes are there", next_step=again
        )
    if size_bytes > expected:
        raise BadShardError(path, f"is {size_bytes - expected:,} bytes too long", next_step=again)
    return tensors


def read_tensors(folder: Path) -> dict[str, Tensor]:
    """Return all tensors of a folder; raises `ModelMissingError` or `BadShardError`."""
    shards = list_shards(folder)
    if not shards:
        raise ModelMissingError(
            f"there is no safetensors file in {str(folder)!r}",
            next_step="Point at the folder of the checkpoint.",
        )
    tensors: dict[str, Tensor] = {}
    for shard in shards:
        tensors |= read_header(shard)
    return tensors


def count_weight_bytes(tensors: Mapping[str, Tensor], *, ties_embeddings: bool) -> int:
    """Return what the runtime loads: no head for multi-token prediction, and tied embeddings once."""
    return sum(
        tensor.size_bytes
        for name, tensor in tensors.items()
        if not name.startswith("mtp.") and not (ties_embeddings and name == "lm_head.weight")
    )


def read_config(folder: Path) -> dict[str, Any]:
    """Return the model's `config.json`; raises `ModelMissingError` or `ModelCorruptError`."""
    path = folder / "config.json"
    try:
        content = json.loads(path.read_bytes())
    except FileNotFoundError as error:
        raise ModelMissingError(
            f"there is no config.json in {str(folder)!r}",
            next_step="Copy it from where the model was published.",
        ) from error
    except ValueError as error:
        raise ModelCorruptError(
            f"{str(path)!r} is not valid JSON: {error}", next_step="Copy it again."
        ) from error
    if not isinstance(content, dict):
        raise ModelCorruptError(f"{str(path)!r} does not hold a JSON object", next_step="Copy it again.")
    return content


def iter_files(folder: Path) -> Iterator[Path]:
    """Yield every file below the folder but hidden ones, sorted by path."""
    for path in sorted(folder.rglob("*")):
        hidden = any(part.startswith(".") for part in path.relative_to(folder).parts)
        if path.is_file() and not hidden:
            yield path


def _read_entry(name: str, entry: Mapping[str, Any]) -> Tensor:
    shape = tuple(int(size) for size in entry["shape"])
    begin, end = (int(place) for place in entry["data_offsets"])
    bits = _DTYPE_BITS[entry["dtype"]]
    count = 1
    for size in shape:
        count *= size
    if end - begin != count * bits // 8 or begin < 0:
        raise ValueError(
            f"{name} takes {end - begin} bytes, its shape {list(shape)} needs {count * bits // 8}"
        )
    return Tensor(name, entry["dtype"], shape, end - begin, end)
