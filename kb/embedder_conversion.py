"""The starter embedder: 4-bit E5 weights to a sentence-transformers folder."""

from __future__ import annotations

import json
import shutil
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from kb.errors import ModelCorruptError
from kb.model_files import ByteProgress

_MAGIC = b"E5S1"
_BLOCK_VALUES = 32
_BLOCK_BYTES = 18  # a float16 scale, then 32 values of 4 bits
_BLOCKS_AT_ONCE = 1 << 17  # bounds the memory of the largest tensor
_MAX_TOKENS = 512

_OUTER_NAMES = {
    "emb.word": "embeddings.word_embeddings.weight",
    "emb.pos": "embeddings.position_embeddings.weight",
    "emb.type": "embeddings.token_type_embeddings.weight",
    "emb.ln.w": "embeddings.LayerNorm.weight",
    "emb.ln.b": "embeddings.LayerNorm.bias",
}
_LAYER_NAMES = {
    "q": "attention.self.query",
    "k": "attention.self.key",
    "v": "attention.self.value",
    "ao": "attention.output.dense",
    "aln": "attention.output.LayerNorm",
    "fi": "intermediate.dense",
    "fo": "output.dense",
    "oln": "output.LayerNorm",
}


@dataclass(frozen=True, slots=True)
class _Tensor:
    offset: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class _Shape:
    """Sizes of the network and ids of its special tokens."""

    hidden: int
    layers: int
    heads: int
    feed_forward: int
    vocabulary: int
    positions: int
    token_types: int
    epsilon: float
    bos: int
    eos: int
    pad: int


def convert_embedder(weights: Path, tokenizer: Path, target: Path, *, progress: ByteProgress) -> None:
    """Write a sentence-transformers folder to the empty folder `target`; same input, same bytes.

    Weights are written in half precision. `progress` counts tensors. Raises `ModelCorruptError`. Peak
    memory is about 0.6 GB.
    """
    from safetensors.numpy import save_file

    content = np.memmap(weights, dtype=np.uint8, mode="r")
    try:
        shape, directory = _read_head(content)
        tensors = {}
        names = _build_names(shape)
        for done, (source, (name, dims)) in enumerate(names.items(), start=1):
            tensors[name] = _read_tensor(content, directory[source], dims)
            progress(done, len(names))
    except (struct.error, KeyError, ValueError, IndexError) as error:
        raise ModelCorruptError(f"{str(weights)!r} is not an E5 weights file: {error}") from error
    save_file(tensors, target / "model.safetensors", metadata={"format": "pt"})
    shutil.copyfile(tokenizer, target / "tokenizer.json")
    for name, description in _describe(shape).items():
        file = target / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(json.dumps(description, indent=1) + "\n", encoding="utf-8")


def _read_head(content: npt.NDArray[np.uint8]) -> tuple[_Shape, dict[str, _Tensor]]:
    """Return the shape and where each tensor lies; the vocabulary in between is passed over."""
    if content[:4].tobytes() != _MAGIC:
        raise ValueError("unknown magic number")
    place = 8

    def read(layout: str) -> tuple[Any, ...]:
        nonlocal place
        size = struct.calcsize(layout)
        values = struct.unpack(layout, content[place : place + size].tobytes())
        place += size
        return values

    sizes = read("<7i")
    epsilon, _quantisation = read("<fi")
    piece_count, bos, eos, pad, _unknown = read("<5i")
    (blob_bytes,) = read("<Q")
    place += 4 * (piece_count + 1) + 4 * piece_count + blob_bytes
    _normalisers, map_bytes = read("<iI")
    place += map_bytes
    (tensor_count,) = read("<i")
    directory = {}
    for _ in range(tensor_count):
        (name_bytes,) = read("<H")
        name = read(f"<{name_bytes}s")[0].decode()
        _kind, _count, offset, size_bytes = read("<BiQQ")
        directory[name] = _Tensor(offset, size_bytes)
    hidden, layers, heads, feed_forward, vocabulary, positions, token_types = sizes
    shape = _Shape(
        hidden=hidden,
        layers=layers,
        heads=heads,
        feed_forward=feed_forward,
        vocabulary=vocabulary,
        positions=positions,
        token_types=token_types,
        epsilon=epsilon,
        bos=bos,
        eos=eos,
        pad=pad,
    )
    return shape, directory


def _build_names(shape: _Shape) -> dict[str, tuple[str, tuple[int, ...]]]:
    """Return the BERT name and the dimensions of each tensor, by its name in the file."""
    hidden, inner = shape.hidden, shape.feed_forward
    outer_dims: Mapping[str, tuple[int, ...]] = {
        "emb.word": (shape.vocabulary, hidden),
        "emb.pos": (shape.positions, hidden),
        "emb.type": (shape.token_types, hidden),
    }
    names = {source: (name, outer_dims.get(source, (hidden,))) for source, name in _OUTER_NAMES.items()}
    layer_dims: Mapping[str, tuple[int, ...]] = {
        "aln": (hidden,),
        "oln": (hidden,),
        "fi": (inner, hidden),
        "fo": (hidden, inner),
    }
    for layer in range(shape.layers):
        for part, name in _LAYER_NAMES.items():
            dims = layer_dims.get(part, (hidden, hidden))
            prefix = f"encoder.layer.{layer}.{name}"
            names[f"l{layer}.{part}.w"] = (f"{prefix}.weight", dims)
            names[f"l{layer}.{part}.b"] = (f"{prefix}.bias", dims[:1])
    return names


def _read_tensor(
    content: npt.NDArray[np.uint8], tensor: _Tensor, dims: tuple[int, ...]
) -> npt.NDArray[np.float16]:
    count = int(np.prod(dims))
    raw = content[tensor.offset : tensor.offset + tensor.size_bytes]
    if tensor.size_bytes == 4 * count:
        return raw.view("<f4").astype(np.float16).reshape(dims)
    blocks = raw.reshape(count // _BLOCK_VALUES, _BLOCK_BYTES)
    values = np.empty((len(blocks), _BLOCK_VALUES), dtype=np.float16)
    for start in range(0, len(blocks), _BLOCKS_AT_ONCE):
        piece = blocks[start : start + _BLOCKS_AT_ONCE]
        scales = piece[:, :2].copy().view("<f2").astype(np.float32)
        packed = piece[:, 2:]
        unpacked = np.concatenate([packed & 15, packed >> 4], axis=1).astype(np.float32) - 8
        values[start : start + len(piece)] = unpacked * scales
    return values.reshape(dims)


def _describe(shape: _Shape) -> dict[str, object]:
    """Return the folder's JSON files by name."""
    steps = [("", "Transformer"), ("1_Pooling", "Pooling"), ("2_Normalize", "Normalize")]
    return {
        "config.json": {
            "architectures": ["BertModel"],
            "model_type": "bert",
            "vocab_size": shape.vocabulary,
            "hidden_size": shape.hidden,
            "num_hidden_layers": shape.layers,
            "num_attention_heads": shape.heads,
            "intermediate_size": shape.feed_forward,
            "hidden_act": "gelu",
            "max_position_embeddings": shape.positions,
            "type_vocab_size": shape.token_types,
            "layer_norm_eps": float(f"{shape.epsilon:.6g}"),
            "bos_token_id": shape.bos,
            "eos_token_id": shape.eos,
            "pad_token_id": shape.pad,
            "dtype": "float16",
        },
        "tokenizer_config.json": {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "bos_token": "<s>",
            "cls_token": "<s>",
            "eos_token": "</s>",
            "sep_token": "</s>",
            "unk_token": "<unk>",
            "pad_token": "<pad>",
            "mask_token": "<mask>",
            "model_max_length": _MAX_TOKENS,
            "padding_side": "right",
        },
        "sentence_bert_config.json": {"max_seq_length": _MAX_TOKENS, "do_lower_case": False},
        "config_sentence_transformers.json": {
            "prompts": {"query": "query: ", "passage": "passage: ", "document": "passage: "},
            "default_prompt_name": None,
            "similarity_fn_name": "cosine",
        },
        "modules.json": [
            {"idx": index, "name": str(index), "path": path, "type": f"sentence_transformers.models.{kind}"}
            for index, (path, kind) in enumerate(steps)
        ],
        "1_Pooling/config.json": {
            "word_embedding_dimension": shape.hidden,
            "pooling_mode_cls_token": False,
            "pooling_mode_mean_tokens": True,
            "pooling_mode_max_tokens": False,
            "pooling_mode_mean_sqrt_len_tokens": False,
        },
    }
