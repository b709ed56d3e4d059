"""The starter generator: a Qwen2 GGUF file to a CTranslate2 folder with its tokenizer."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from kb.errors import ModelCorruptError
from kb.model_files import ByteProgress

# The pattern by which Qwen2 splits text before byte-pair encoding (Qwen team, tokenizer.json).
_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_ORDINARY_TOKEN = 1
_ROWS_AT_ONCE = 8192  # bounds the memory of the largest tensor
_BEGIN = "<|endoftext|>"
_END = "<|im_end|>"
# Added tokens that a reader may see; all others are control tokens.
_VISIBLE = frozenset(
    f"<{name}>"
    for name in (
        "tool_call",
        "/tool_call",
        "|fim_prefix|",
        "|fim_middle|",
        "|fim_suffix|",
        "|fim_pad|",
        "|repo_name|",
        "|file_sep|",
    )
)


def convert_generator(weights: Path, target: Path, *, name: str, progress: ByteProgress) -> None:
    """Write the model in 8 bits, its tokenizer and its chat template to the empty folder `target`.

    `name` is what answers show as the model's name. `progress` counts tensors. Raises
    `ModelCorruptError`. Peak memory is about 2 GB, half of it the file itself, which is mapped.
    """
    from gguf import GGUFReader

    try:
        source = _Gguf(GGUFReader(weights))
        if source.get("general.architecture") != "qwen2":
            raise ValueError(f"architecture {source.get('general.architecture')!r}")
        tokens: list[str] = source.get("tokenizer.ggml.tokens")
        _write_tokenizer(source, tokens, target)
        _write_tokenizer_config(source, target, name)
        _write_weights(source, tokens, target, progress)
    except (ValueError, KeyError, IndexError) as error:
        raise ModelCorruptError(f"{str(weights)!r} can't be converted: {error}") from error


class _Gguf:
    """The fields and tensors of a GGUF file by name."""

    def __init__(self, reader: Any) -> None:
        self._fields = reader.fields
        self._tensors = {tensor.name: tensor for tensor in reader.tensors}

    def __contains__(self, name: str) -> bool:
        return name in self._tensors

    def get(self, name: str) -> Any:
        return self._fields[name].contents()

    def read(self, name: str) -> npt.NDArray[np.float32]:
        return np.concatenate(list(self.iter_rows(name)))

    def iter_rows(self, name: str) -> Iterator[npt.NDArray[np.float32]]:
        """Yield the tensor a few thousand rows at a time."""
        from gguf.quants import dequantize

        tensor = self._tensors[name]
        for start in range(0, len(tensor.data), _ROWS_AT_ONCE):
            rows = dequantize(tensor.data[start : start + _ROWS_AT_ONCE], tensor.tensor_type)
            yield rows.astype(np.float32, copy=False)


def _write_weights(source: _Gguf, tokens: list[str], target: Path, progress: ByteProgress) -> None:
    from ctranslate2.specs import common_spec, transformer_spec

    layers = source.get("qwen2.block_count")
    spec = transformer_spec.TransformerDecoderModelSpec.from_config(
        layers,
        source.get("qwen2.attention.head_count"),
        activation=common_spec.Activation.SWISH,
        pre_norm=True,
        ffn_glu=True,
        rms_norm=True,
        rotary_dim=0,
        rotary_interleave=False,
        rotary_base=source.get("qwen2.rope.freq_base"),
        num_heads_kv=source.get("qwen2.attention.head_count_kv"),
    )
    decoder = spec.decoder
    decoder.scale_embeddings = False
    # The matrix of the embeddings is that of the output; the published files hold it twice, and the
    # output's copy is the finer one.
    shared = "output.weight" if "output.weight" in source else "token_embd.weight"
    _set_weight(decoder.embeddings, source, shared)
    decoder.projection.weight = decoder.embeddings.weight
    decoder.projection.weight_scale = decoder.embeddings.weight_scale
    decoder.layer_norm.gamma = source.read("output_norm.weight")
    for index, layer in enumerate(decoder.layer):
        prefix = f"blk.{index}"
        three = [f"{prefix}.{part}" for part in ("attn_q", "attn_k", "attn_v")]
        layer.self_attention.layer_norm.gamma = source.read(f"{prefix}.attn_norm.weight")
        layer.ffn.layer_norm.gamma = source.read(f"{prefix}.ffn_norm.weight")
        fused, output = layer.self_attention.linear
        _set_weight(fused, source, *(f"{name}.weight" for name in three))
        fused.bias = np.concatenate([source.read(f"{name}.bias") for name in three])
        _set_weight(output, source, f"{prefix}.attn_output.weight")
        _set_weight(layer.ffn.linear_0, source, f"{prefix}.ffn_gate.weight")
        _set_weight(layer.ffn.linear_0_noact, source, f"{prefix}.ffn_up.weight")
        _set_weight(layer.ffn.linear_1, source, f"{prefix}.ffn_down.weight")
        progress(index + 1, layers + 1)
    spec.register_vocabulary(tokens)
    spec.config.bos_token = _BEGIN
    spec.config.eos_token = _END
    spec.config.unk_token = ""
    spec.config.layer_norm_epsilon = float(f"{source.get('qwen2.attention.layer_norm_rms_epsilon'):.6g}")
    spec.validate()
    spec.optimize()  # stores the shared matrix once
    spec.save(str(target))
    progress(layers + 1, layers + 1)


def _set_weight(linear: Any, source: _Gguf, *names: str) -> None:
    """Set the rows of all named tensors in 8 bits, each row with its own scale.

    The same arithmetic as CTranslate2's own quantisation, here a few rows at a time, since the whole
    model in full precision would need three times the memory.
    """
    weights, scales = [], []
    for name in names:
        for rows in source.iter_rows(name):
            largest = np.abs(rows).max(axis=1)
            largest[largest == 0] = 127.0
            scale = (127.0 / largest).astype(np.float32)
            weights.append(np.rint(rows * scale[:, None]).astype(np.int8))
            scales.append(scale)
    linear.weight = np.concatenate(weights)
    linear.weight_scale = np.concatenate(scales)


def _write_tokenizer(source: _Gguf, tokens: list[str], target: Path) -> None:
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

    kinds = source.get("tokenizer.ggml.token_type")
    merges = [tuple(merge.split(" ")) for merge in source.get("tokenizer.ggml.merges")]
    ordinary = {token: index for index, token in enumerate(tokens) if kinds[index] == _ORDINARY_TOKEN}
    tokenizer = Tokenizer(models.BPE(vocab=ordinary, merges=merges, fuse_unk=False, byte_fallback=False))
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_WORDS), behavior="isolated", invert=False),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    for index, token in enumerate(tokens):
        if kinds[index] == _ORDINARY_TOKEN or token.startswith("[PAD"):
            continue
        added = AddedToken(token, normalized=False, special=token not in _VISIBLE)
        if token in _VISIBLE:
            tokenizer.add_tokens([added])
        else:
            tokenizer.add_special_tokens([added])
        if tokenizer.token_to_id(token) != index:
            raise ValueError(f"token {token!r} is not at its place {index}")
    tokenizer.save(str(target / "tokenizer.json"))


def _write_tokenizer_config(source: _Gguf, target: Path, name: str) -> None:
    begin = source.get("tokenizer.ggml.bos_token_id")
    end = source.get("tokenizer.ggml.eos_token_id")
    description = {
        "tokenizer_class": "Qwen2Tokenizer",
        "name_or_path": name,
        "bos_token": None,
        "eos_token": _END,
        "pad_token": _BEGIN,
        "unk_token": None,
        "add_prefix_space": False,
        "clean_up_tokenization_spaces": False,
        "errors": "replace",
        "model_max_length": source.get("qwen2.context_length"),
        "chat_template": source.get("tokenizer.chat_template"),
    }
    generation = {
        "bos_token_id": begin,
        "eos_token_id": [end, begin],
        "pad_token_id": begin,
        "do_sample": False,
    }
    for file_name, content in (
        ("tokenizer_config.json", description),
        ("generation_config.json", generation),
    ):
        text = json.dumps(content, ensure_ascii=False, indent=1)
        (target / file_name).write_text(f"{text}\n", encoding="utf-8")
