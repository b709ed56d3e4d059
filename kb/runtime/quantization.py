"""Whether the tensors are packed as the configuration says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kb.runtime.checkpoint import Tensor
from kb.runtime.checks import FAIL, INFO, OK, Check

_PER_INT32 = 8
"""4-bit values in one 32-bit integer."""
_GET_AWQ = "Get an AWQ version of the model: 4 bits, safetensors."
_MIXED = "Use config.json and weights from the same place."
_SCALES = ("F16", "BF16")


def check_quantization(config: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Check:
    """Return whether method, bits and group size fit the shapes of all packed tensors."""
    text = config.get("text_config")
    settings = config.get("quantization_config") or (
        text.get("quantization_config") if isinstance(text, dict) else None
    )
    packed = [name for name in tensors if name.endswith((".qweight", ".weight_packed"))]
    if not isinstance(settings, dict):
        if packed:
            return Check(
                "quantization",
                FAIL,
                f"{len(packed)} packed tensors, but config.json has no quantization_config",
                _MIXED,
            )
        dtypes = "/".join(sorted({tensor.dtype for tensor in tensors.values()}))
        return Check("quantization", INFO, f"none: {dtypes}, about four times the memory of 4 bits")
    method = settings.get("quant_method")
    if method == "awq":
        return _check_awq(settings, tensors)
    if method == "compressed-tensors":
        return _check_compressed(settings, tensors)
    if method == "gptq":
        return Check("quantization", INFO, "GPTQ: runs, but AWQ is what is measured here")
    return Check("quantization", FAIL, f"the method {method!r} is not one that is served here", _GET_AWQ)


def _check_awq(settings: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Check:
    bits, group = (
        settings.get("bits", settings.get("w_bit")),
        settings.get("group_size", settings.get("q_group_size")),
    )
    if bits != 4 or not isinstance(group, int) or group not in (32, 64, 128):
        return Check("quantization", FAIL, f"AWQ with {bits} bits in groups of {group}", _GET_AWQ)
    if str(settings.get("version", "gemm")).lower() != "gemm":
        return Check("quantization", FAIL, f"AWQ in the layout {settings['version']!r}, not gemm", _GET_AWQ)
    stems = [name.removesuffix(".qweight") for name in tensors if name.endswith(".qweight")]
    for stem in stems:
        weight = tensors[f"{stem}.qweight"]
        zeros, scales = tensors.get(f"{stem}.qzeros"), tensors.get(f"{stem}.scales")
        if scales is None or (zeros is None and settings.get("zero_point", True)):
            return Check("quantization", FAIL, f"{stem} lacks its scales or zero points", _MIXED)
        rows, columns = (weight.shape[0], weight.shape[1] * _PER_INT32) if len(weight.shape) == 2 else (0, 0)
        expected = (rows // group, columns)
        if (
            weight.dtype != "I32"
            or not rows
            or rows % group
            or scales.shape != expected
            or scales.dtype not in _SCALES
        ):
            return Check("quantization", FAIL, _describe(stem, weight, scales, group=group), _MIXED)
        if zeros is not None and zeros.shape != (rows // group, weight.shape[1]):
            return Check("quantization", FAIL, _describe(stem, weight, zeros, group=group), _MIXED)
    return _conclude("AWQ", len(stems), group)


def _check_compressed(settings: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Check:
    groups = settings.get("config_groups")
    first: Mapping[str, Any] = next(iter(groups.values()), {}) if isinstance(groups, dict) else {}
    weights = first.get("weights") or {}
    bits, group = weights.get("num_bits"), weights.get("group_size") or -1
    if bits != 4 or weights.get("type", "int") != "int" or first.get("input_activations"):
        return Check(
            "quantization",
            FAIL,
            f"compressed-tensors with {bits} bits, not weights of 4 bits alone",
            _GET_AWQ,
        )
    if settings.get("format", "pack-quantized") != "pack-quantized":
        return Check(
            "quantization", FAIL, f"compressed-tensors in the format {settings['format']!r}", _GET_AWQ
        )
    stems = [name.removesuffix(".weight_packed") for name in tensors if name.endswith(".weight_packed")]
    for stem in stems:
        weight, scales = tensors[f"{stem}.weight_packed"], tensors.get(f"{stem}.weight_scale")
        if scales is None:
            return Check("quantization", FAIL, f"{stem} lacks its scales", _MIXED)
        columns = weight.shape[-1] * _PER_INT32
        per_row = 1 if group == -1 else columns // group
        if weight.dtype != "I32" or scales.shape != (weight.shape[0], per_row):
            return Check("quantization", FAIL, _describe(stem, weight, scales, group=group), _MIXED)
    return _conclude("compressed-tensors W4A16", len(stems), group)


def _conclude(method: str, count: int, group: int) -> Check:
    if not count:
        return Check("quantization", FAIL, f"config.json says {method}, but no tensor is packed", _MIXED)
    return Check("quantization", OK, f"{method}, 4 bits in groups of {group}, {count} packed matrices")


def _describe(stem: str, weight: Tensor, other: Tensor, *, group: int) -> str:
    part = other.name.rsplit(".", 1)[-1]
    return (
        f"{stem}: {weight.dtype} {list(weight.shape)} with {part} {other.dtype} {list(other.shape)} "
        f"is not 4 bits in groups of {group}"
    )
