"""What of a model's configuration decides how much memory it takes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kb.errors import ModelCorruptError

_HYBRID_FULL = "full_attention"
_STATE_BYTES = 4
"""The recurrent state of linear attention is kept in fp32."""


@dataclass(frozen=True, slots=True)
class ModelShape:
    """Sizes of a decoder. `attention_layers` are those that keep a KV cache."""

    architecture: str
    layers: int
    attention_layers: int
    kv_heads: int
    head_dim: int
    hidden_size: int
    intermediate_size: int
    vocab_size: int
    max_context_tokens: int
    quantization: str
    has_rope_scaling: bool
    ties_embeddings: bool
    state_bytes_per_request: int
    weight_bytes: int

    def kv_bytes_per_token(self, *, element_bytes: float = 2) -> int:
        """Return what one token takes in the KV cache: keys and values of each attention layer."""
        return int(2 * self.attention_layers * self.kv_heads * self.head_dim * element_bytes)


def read_shape(config: Mapping[str, Any], *, weight_bytes: int) -> ModelShape:
    """Return the sizes out of a `config.json`; those of a `text_config` count where there is one.

    Raises `ModelCorruptError` that names what is missing.
    """
    text: Mapping[str, Any] = {**config, **_get_object(config, "text_config")}
    layers = _get_int(text, "num_hidden_layers")
    heads = _get_int(text, "num_attention_heads")
    hidden = _get_int(text, "hidden_size")
    kinds = text.get("layer_types")
    linear = 0
    if isinstance(kinds, list) and kinds:
        linear = sum(kind == "linear_attention" for kind in kinds)
    elif isinstance(interval := text.get("full_attention_interval"), int) and interval > 0:
        linear = layers - layers // interval
    quantization = _get_object(config, "quantization_config") or _get_object(text, "quantization_config")
    architectures = config.get("architectures") or [""]
    return ModelShape(
        architecture=str(architectures[0]),
        layers=layers,
        attention_layers=layers - linear,
        kv_heads=int(text.get("num_key_value_heads") or heads),
        head_dim=int(text.get("head_dim") or hidden // heads),
        hidden_size=hidden,
        intermediate_size=int(text.get("intermediate_size") or 4 * hidden),
        vocab_size=_get_int(text, "vocab_size"),
        max_context_tokens=_get_int(text, "max_position_embeddings"),
        quantization=str(quantization.get("quant_method", "")),
        has_rope_scaling=bool(_get_object(text, "rope_scaling").get("factor")),
        ties_embeddings=bool(text.get("tie_word_embeddings", config.get("tie_word_embeddings", False))),
        state_bytes_per_request=linear * _count_state_bytes(text) if linear else 0,
        weight_bytes=weight_bytes,
    )


def _count_state_bytes(text: Mapping[str, Any]) -> int:
    """Return the state of one linear-attention layer: a matrix a value head, and a short convolution.

    Gated DeltaNet (Yang et al. 2024) as Qwen3-Next and Qwen3.5 use it.
    """
    value_heads, key_heads = _get_int(text, "linear_num_value_heads"), _get_int(text, "linear_num_key_heads")
    key_dim, value_dim = _get_int(text, "linear_key_head_dim"), _get_int(text, "linear_value_head_dim")
    kernel = int(text.get("linear_conv_kernel_dim") or 4)
    matrix = value_heads * key_dim * value_dim * _STATE_BYTES
    convolution = (2 * key_heads * key_dim + value_heads * value_dim) * (kernel - 1) * 2
    return matrix + convolution


def _get_object(config: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = config.get(key)
    return value if isinstance(value, dict) else {}


def _get_int(config: Mapping[str, Any], key: str) -> int:
    value = config.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or value <= 0:
        raise ModelCorruptError(
            f"config.json has no usable {key}: {value!r}",
            next_step="Copy config.json again from where the model was published.",
        )
    return value
