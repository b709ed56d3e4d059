"""LoRA adapters: folders with `adapter_config.json` and safetensors."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path

from kb.errors import CallerError, ModelCorruptError, ModelMissingError
from kb.runtime.checkpoint import read_tensors
from kb.runtime.shape import ModelShape

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_ATTENTION = ("q_proj", "k_proj", "v_proj")


@dataclass(frozen=True, slots=True)
class Adapter:
    """An adapter that was read; `modules` are the kinds of layers that it changes."""

    name: str
    path: Path
    rank: int
    modules: tuple[str, ...]
    size_bytes: int


def parse_adapter(text: str) -> tuple[str, Path]:
    """Return name and folder out of `name=DIR`; raises `CallerError`."""
    name, equals, folder = text.partition("=")
    if not equals or not folder or not _NAME.fullmatch(name):
        raise CallerError(
            f"{text!r} does not name an adapter",
            next_step="Write it as name=DIR; names are letters, digits, `.`, `_` and `-`.",
        )
    return name, Path(folder)


def read_adapter(name: str, folder: Path, *, base: ModelShape) -> Adapter:
    """Return the adapter in `folder`, checked against the model it is for.

    Raises `ModelMissingError` or `ModelCorruptError`.
    """
    config_path = folder / "adapter_config.json"
    if not config_path.is_file():
        raise ModelMissingError(
            f"there is no adapter_config.json in {str(folder)!r}",
            next_step="Point at the folder of a LoRA adapter.",
        )
    try:
        config = json.loads(config_path.read_bytes())
        rank, modules = int(config["r"]), config["target_modules"]
    except (ValueError, KeyError, TypeError) as error:
        raise ModelCorruptError(
            f"{str(config_path)!r} is not the configuration of a LoRA adapter: {error}",
            next_step="Copy it again.",
        ) from error
    tensors = read_tensors(folder)
    lora_inputs = [tensor for key, tensor in tensors.items() if key.endswith("lora_A.weight")]
    if not lora_inputs:
        raise ModelCorruptError(f"{str(folder)!r} holds no LoRA weights", next_step="Copy the adapter again.")
    for tensor in lora_inputs:
        if tensor.shape[0] != rank:
            raise ModelCorruptError(
                f"{tensor.name} has rank {tensor.shape[0]}, the configuration says {rank}",
                next_step="Copy the adapter again, both files from the same place.",
            )
        if any(f".{module}." in tensor.name for module in _ATTENTION) and tensor.shape[1] != base.hidden_size:
            raise ModelCorruptError(
                f"the adapter {name!r} is for a model {tensor.shape[1]} wide; this one is {base.hidden_size} wide",
                next_step="Use an adapter that was trained on this very model.",
            )
    named = sorted({tensor.name.split(".lora_A")[0].rsplit(".", 1)[-1] for tensor in lora_inputs})
    return Adapter(
        name=name,
        path=folder,
        rank=rank,
        modules=tuple(sorted(modules)) if isinstance(modules, list) else tuple(named),
        size_bytes=sum(tensor.size_bytes for tensor in tensors.values()),
    )
