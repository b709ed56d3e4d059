"""Model folders in the formats that users bring: real headers, weights that are holes in a file."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers
from tokenizers.decoders import ByteLevel as ByteLevelDecoder
from tokenizers.pre_tokenizers import ByteLevel

SIZES = {"F32": 4, "I32": 4, "F16": 2, "BF16": 2}
GROUP = 128
MARKS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<think>", "</think>")
TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}"
    "{% if enable_thinking is defined and not enable_thinking %}{{ '<think>\\n\\n</think>\\n\\n' }}{% endif %}{% endif %}"
)


@dataclass(frozen=True, slots=True)
class Sizes:
    """How large a model is; the default is tiny."""

    layers: int = 2
    hidden: int = 256
    inner: int = 512
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 64
    vocab: int = 256 + len(MARKS)
    context: int = 32768


QWEN3_4B = Sizes(36, 2560, 9728, 32, 8, 128, 151936, 40960)
"""The sizes that were measured: 2.67 GB with 4 bits."""
QWEN3_8B = Sizes(36, 4096, 12288, 32, 8, 128, 151936, 40960)


def list_tensors(sizes: Sizes, *, method: str) -> dict[str, tuple[str, tuple[int, ...]]]:
    """Return dtype and shape by name; `method` is awq, compressed-tensors or "" for 16 bits."""
    tensors: dict[str, tuple[str, tuple[int, ...]]] = {
        "model.embed_tokens.weight": ("BF16", (sizes.vocab, sizes.hidden)),
        "model.norm.weight": ("BF16", (sizes.hidden,)),
    }
    query, keys = sizes.heads * sizes.head_dim, sizes.kv_heads * sizes.head_dim
    for layer in range(sizes.layers):
        prefix = f"model.layers.{layer}"
        for name, rows, columns in (
            ("self_attn.q_proj", sizes.hidden, query),
            ("self_attn.k_proj", sizes.hidden, keys),
            ("self_attn.v_proj", sizes.hidden, keys),
            ("self_attn.o_proj", query, sizes.hidden),
            ("mlp.gate_proj", sizes.hidden, sizes.inner),
            ("mlp.up_proj", sizes.hidden, sizes.inner),
            ("mlp.down_proj", sizes.inner, sizes.hidden),
        ):
            tensors |= _pack(f"{prefix}.{name}", rows, columns, method=method)
        tensors |= {
            f"{prefix}.input_layernorm.weight": ("BF16", (sizes.hidden,)),
            f"{prefix}.post_attention_layernorm.weight": ("BF16", (sizes.hidden,)),
        }
    return tensors


def build_config(sizes: Sizes, *, method: str) -> dict[str, Any]:
    """Return the `config.json` of a Qwen3 of these sizes."""
    config: dict[str, Any] = {
        "architectures": ["Qwen3ForCausalLM"],
        "model_type": "qwen3",
        "num_hidden_layers": sizes.layers,
        "hidden_size": sizes.hidden,
        "intermediate_size": sizes.inner,
        "num_attention_heads": sizes.heads,
        "num_key_value_heads": sizes.kv_heads,
        "head_dim": sizes.head_dim,
        "vocab_size": sizes.vocab,
        "max_position_embeddings": sizes.context,
        "tie_word_embeddings": True,
        "rope_scaling": None,
    }
    if method == "awq":
        config["quantization_config"] = {
            "quant_method": "awq",
            "bits": 4,
            "group_size": GROUP,
            "zero_point": True,
            "version": "gemm",
        }
    elif method == "compressed-tensors":
        weights = {"num_bits": 4, "type": "int", "group_size": GROUP, "strategy": "group", "symmetric": True}
        config["quantization_config"] = {
            "quant_method": "compressed-tensors",
            "format": "pack-quantized",
            "config_groups": {
                "group_0": {"weights": weights, "input_activations": None, "targets": ["Linear"]}
            },
        }
    return config


def write_checkpoint(
    folder: Path, *, sizes: Sizes | None = None, method: str = "awq", files: int = 2
) -> Path:
    """Write a whole model folder, tokenizer and licence included; weights are holes, not bytes."""
    sizes = sizes or Sizes()
    folder.mkdir(parents=True, exist_ok=True)
    tensors = list_tensors(sizes, method=method)
    names = list(tensors)
    share = -(-len(names) // files)
    weight_map: dict[str, str] = {}
    for number in range(files):
        part = {name: tensors[name] for name in names[number * share : (number + 1) * share]}
        file = f"model-{number + 1:05}-of-{files:05}.safetensors"
        write_shard(folder / file, part)
        weight_map |= dict.fromkeys(part, file)
    write_json(folder / "model.safetensors.index.json", {"metadata": {}, "weight_map": weight_map})
    write_json(folder / "config.json", build_config(sizes, method=method))
    write_tokenizer(folder, vocab=sizes.vocab)
    (folder / "LICENSE").write_text("Apache License 2.0\n", encoding="utf-8")
    return folder


def write_shard(path: Path, tensors: Mapping[str, tuple[str, tuple[int, ...]]]) -> None:
    """Write a safetensors file whose data is one hole."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    place = 0
    for name, (dtype, shape) in tensors.items():
        size = SIZES[dtype]
        for extent in shape:
            size *= extent
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [place, place + size]}
        place += size
    packed = json.dumps(header).encode()
    packed += b" " * (-len(packed) % 8)
    with path.open("wb") as stream:
        stream.write(struct.pack("<Q", len(packed)) + packed)
        stream.truncate(8 + len(packed) + place)


def write_tokenizer(folder: Path, *, vocab: int) -> None:
    """Write a byte-level tokenizer with the marks of Qwen, a chat template and the ends of answers."""
    alphabet = sorted(ByteLevel.alphabet())
    pieces = {piece: index for index, piece in enumerate(alphabet)}
    for index in range(len(alphabet), vocab - len(MARKS)):
        pieces[f"piece{index}"] = index
    tokenizer = Tokenizer(models.BPE(vocab=pieces, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = ByteLevelDecoder()
    tokenizer.add_special_tokens([AddedToken(mark, special=True) for mark in MARKS])
    tokenizer.save(str(folder / "tokenizer.json"))
    write_json(folder / "tokenizer_config.json", {"eos_token": "<|im_end|>", "chat_template": TEMPLATE})
    ends = [tokenizer.token_to_id("<|im_end|>"), tokenizer.token_to_id("<|endoftext|>")]
    write_json(folder / "generation_config.json", {"eos_token_id": ends})


def write_json(path: Path, content: object) -> None:
    """Write an object as JSON."""
    path.write_text(json.dumps(content, ensure_ascii=False), encoding="utf-8")


def change_json(path: Path, **changes: object) -> None:
    """Set keys of an object in a JSON file; None removes one."""
    content = json.loads(path.read_text("utf-8")) | changes
    write_json(path, {key: value for key, value in content.items() if value is not None})


def _pack(name: str, rows: int, columns: int, *, method: str) -> dict[str, tuple[str, tuple[int, ...]]]:
    if method == "awq":
        return {
            f"{name}.qweight": ("I32", (rows, columns // 8)),
            f"{name}.qzeros": ("I32", (rows // GROUP, columns // 8)),
            f"{name}.scales": ("F16", (rows // GROUP, columns)),
        }
    if method == "compressed-tensors":
        return {
            f"{name}.weight_packed": ("I32", (columns, rows // 8)),
            f"{name}.weight_scale": ("BF16", (columns, rows // GROUP)),
        }
    return {f"{name}.weight": ("BF16", (columns, rows))}
