"""Finds what would keep a model folder from running, as a list of checks with a fix for each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kb.errors import KbError
from kb.runtime.checkpoint import (
    INDEX_NAME,
    BadShardError,
    Tensor,
    count_weight_bytes,
    is_lfs_pointer,
    iter_files,
    list_shards,
    read_config,
    read_header,
)
from kb.runtime.checks import FAIL, INFO, OK, WARN, Check
from kb.runtime.quantization import check_quantization
from kb.runtime.shape import ModelShape, read_shape
from kb.runtime.tokenizer_checks import check_tokenizer

_PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle")
_PICKLE_STEMS = ("training_args",)
_LICENCES = ("LICENSE", "LICENSE.txt", "LICENSE.md", "LICENCE", "NOTICE")
_AGAIN = "Copy the folder again, whole, from where the model was published."
_KNOWN_ARCHITECTURES = (
    "Qwen2ForCausalLM",
    "Qwen3ForCausalLM",
    "Qwen3MoeForCausalLM",
    "Qwen3_5ForConditionalGeneration",
)


@dataclass(slots=True)
class Report:
    """All checks of a folder."""

    folder: Path
    shape: ModelShape | None = None
    checks: list[Check] = field(default_factory=list)

    @property
    def failed(self) -> bool:
        """True when the model cannot run."""
        return any(check.state == FAIL for check in self.checks)

    @property
    def summary(self) -> str:
        """What it is, in a few words."""
        if self.shape is None:
            return "no model that can be read"
        packed = f"{self.shape.quantization} 4-bit" if self.shape.quantization else "unquantised"
        return f"{self.shape.architecture}, {packed}, {self.shape.weight_bytes / 1e9:.2f} GB of weights"

    def add_written(self, path: Path) -> None:
        """Say that a manifest was written."""
        self.checks.append(
            Check("manifest", OK, f"written to {path}; take it along, and compare with --against")
        )

    def to_json(self) -> dict[str, Any]:
        """Return the report as JSON values."""
        return {
            "folder": str(self.folder),
            "summary": self.summary,
            "failed": self.failed,
            "checks": [
                {"name": check.name, "state": check.state, "detail": check.detail, "fix": check.fix}
                for check in self.checks
            ],
        }


def verify_model(folder: Path, *, runtime_python: Path | None) -> Report:
    """Return the checks of a folder; reads headers and small files only.

    `runtime_python` is the Python that has the runtime, to see which architectures it knows.
    """
    report = Report(folder)
    checks = report.checks
    checks += [_check_format(folder), _check_pointers(folder)]
    tensors, shards = _check_shards(folder)
    checks.append(shards)
    config, shape, configured = _check_config(folder, tensors)
    checks.append(configured)
    report.shape = shape
    if shape is not None and tensors:
        checks.append(_check_layers(shape, tensors))
        checks.append(check_quantization(config, tensors))
    if shape is not None:
        checks += check_tokenizer(folder, shape)
        checks.append(_check_architecture(shape, runtime_python))
    checks += [_check_own_code(folder, config), _check_licence(folder)]
    return report


def _check_format(folder: Path) -> Check:
    names = [path.name for path in folder.iterdir() if path.is_file()]
    pickles = [name for name in names if name.endswith(_PICKLES) and not name.startswith(_PICKLE_STEMS)]
    ggufs = [name for name in names if name.endswith(".gguf")]
    if list_shards(folder):
        if pickles:
            return Check(
                "format",
                WARN,
                f"safetensors; {', '.join(pickles)} is never loaded",
                "Delete it: a pickle can run code.",
            )
        return Check("format", OK, "safetensors")
    if pickles:
        return Check(
            "format",
            FAIL,
            f"{', '.join(sorted(pickles))}: pickles can run code when they are loaded, and are refused",
            "Get the safetensors version of the model.",
        )
    if ggufs:
        return Check(
            "format",
            FAIL,
            f"{', '.join(sorted(ggufs))}: GGUF is the format of llama.cpp",
            "Get the AWQ version of the model as safetensors, or serve the file with llama.cpp and set KB_GENERATOR_URL.",
        )
    return Check(
        "format",
        FAIL,
        "no weights are in the folder",
        "Point at the folder that holds config.json and *.safetensors.",
    )


def _check_pointers(folder: Path) -> Check:
    pointers = [str(path.relative_to(folder)) for path in iter_files(folder) if is_lfs_pointer(path)]
    if pointers:
        return Check(
            "git lfs",
            FAIL,
            f"{_list(pointers)}: pointers of Git LFS, not the files themselves",
            "Run `git lfs pull` where the model was cloned, then copy it.",
        )
    return Check("git lfs", OK, "no pointers")


def _check_shards(folder: Path) -> tuple[dict[str, Tensor], Check]:
    """Return the tensors that could be read, and whether files, headers and index agree."""
    tensors: dict[str, Tensor] = {}
    places: dict[str, str] = {}
    for shard in list_shards(folder):
        try:
            header = read_header(shard)
        except BadShardError as error:
            return {}, Check("weights", FAIL, error.message, error.next_step)
        for name in header:
            if name in places:
                return {}, Check(
                    "weights",
                    FAIL,
                    f"{name} is in both {places[name]} and {shard.name}",
                    "Remove the file that does not belong to this model.",
                )
        tensors |= header
        places |= dict.fromkeys(header, shard.name)
    problem = _compare_index(folder, places)
    if problem:
        return tensors, Check("weights", FAIL, problem, _AGAIN)
    size = sum(tensor.size_bytes for tensor in tensors.values())
    return tensors, Check(
        "weights",
        OK if tensors else INFO,
        f"{len(tensors):,} tensors in {len(set(places.values()))} files, {size / 1e9:.2f} GB",
    )


def _compare_index(folder: Path, places: Mapping[str, str]) -> str:
    """Return what is wrong between the index and the files, "" if nothing is."""
    from kb.model_files import read_json_object

    if not (folder / INDEX_NAME).is_file():
        incomplete = [name for name in set(places.values()) if "-of-" in name]
        if incomplete:
            expected = int(incomplete[0].rsplit("-of-", 1)[1].split(".")[0])
            if len(incomplete) != expected:
                return f"{len(incomplete)} of {expected} files are there, and {INDEX_NAME} is missing"
        return ""
    index = read_json_object(folder / INDEX_NAME).get("weight_map")
    if not isinstance(index, dict) or not index:
        return f"{INDEX_NAME} is damaged"
    missing = sorted({file for file in index.values() if not (folder / file).is_file()})
    if missing:
        return f"{_list(missing)} is missing"
    astray = [name for name, file in index.items() if places.get(name) != file]
    if astray:
        return f"{_list(astray)} is not in the file that {INDEX_NAME} names"
    return ""


def _check_config(
    folder: Path, tensors: Mapping[str, Tensor]
) -> tuple[dict[str, Any], ModelShape | None, Check]:
    try:
        config = read_config(folder)
        shape = read_shape(config, weight_bytes=0)
        weight_bytes = count_weight_bytes(tensors, ties_embeddings=shape.ties_embeddings)
        shape = read_shape(config, weight_bytes=weight_bytes)
    except KbError as error:
        return {}, None, Check("config", FAIL, error.message, error.next_step)
    hybrid = f", {shape.attention_layers} with a KV cache" if shape.attention_layers != shape.layers else ""
    detail = f"{shape.layers} layers{hybrid}, {shape.kv_heads} KV heads, trained on {shape.max_context_tokens:,} tokens"
    return config, shape, Check("config", OK, detail)


def _check_layers(shape: ModelShape, tensors: Mapping[str, Tensor]) -> Check:
    """Return whether the tensors are those of the model that the configuration describes."""
    numbers = {
        int(parts[parts.index("layers") + 1])
        for name in tensors
        if "layers" in (parts := name.split("."))
        and not name.startswith(("mtp.", "visual.", "model.visual."))
    }
    if len(numbers) != shape.layers:
        return Check(
            "layers", FAIL, f"{len(numbers)} layers of weights, config.json says {shape.layers}", _AGAIN
        )
    embedding = next(
        (tensor for name, tensor in tensors.items() if name.endswith("embed_tokens.weight")), None
    )
    if embedding is None:
        return Check("layers", FAIL, "there is no embedding", _AGAIN)
    if embedding.shape != (shape.vocab_size, shape.hidden_size):
        return Check(
            "layers",
            FAIL,
            f"the embedding is {' × '.join(map(str, embedding.shape))}, config.json says {shape.vocab_size} × {shape.hidden_size}",
            "Use config.json and weights from the same place.",
        )
    if not shape.ties_embeddings and not any(name.endswith("lm_head.weight") for name in tensors):
        return Check(
            "layers", FAIL, "there is no lm_head, and config.json does not tie it to the embedding", _AGAIN
        )
    return Check("layers", OK, "match config.json")


def _check_architecture(shape: ModelShape, runtime_python: Path | None) -> Check:
    models = _find_runtime_models(runtime_python)
    if models is None:
        known = shape.architecture in _KNOWN_ARCHITECTURES
        detail = f"{shape.architecture}; no runtime is installed to ask"
        return Check(
            "architecture",
            INFO if known else WARN,
            detail,
            "" if known else "Run `make gpu`, then verify again.",
        )
    pattern = f"class {shape.architecture}("
    for path in models.glob("*.py"):
        if pattern in path.read_text(encoding="utf-8", errors="replace"):
            return Check("architecture", OK, f"{shape.architecture} is known to the runtime ({path.name})")
    return Check(
        "architecture",
        FAIL,
        f"the installed runtime does not know {shape.architecture}",
        "Install a newer runtime (`make gpu GPU_RUNTIME=…`), or take another model.",
    )


def _find_runtime_models(runtime_python: Path | None) -> Path | None:
    from kb.runtime.launch import DEFAULT_ENVIRONMENT

    root = (runtime_python or DEFAULT_ENVIRONMENT / "bin" / "python").absolute().parent.parent
    return next(root.glob("lib/python*/site-packages/sglang/srt/models"), None)


def _check_own_code(folder: Path, config: Mapping[str, Any]) -> Check:
    code = sorted(path.name for path in folder.glob("*.py"))
    if config.get("auto_map"):
        return Check(
            "own code",
            FAIL,
            f"config.json sends the runtime to code in the folder ({_list(code) or 'missing'})",
            "Use a model that the runtime knows by itself: trust_remote_code stays off here.",
        )
    if code:
        return Check("own code", WARN, f"{_list(code)} is never run", "Delete it.")
    return Check("own code", OK, "none")


def _check_licence(folder: Path) -> Check:
    for name in _LICENCES:
        path = folder / name
        if path.is_file():
            lines = (line.strip() for line in path.read_text(encoding="utf-8", errors="replace").splitlines())
            return Check("licence", INFO, f"{name}: {next(filter(None, lines), 'empty')[:70]}")
    return Check(
        "licence", WARN, "no licence file is in the folder", "Keep the licence of the model beside it."
    )


def _list(names: list[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
