"""Presets: how tokens are drawn and which instructions are given, by kind of task."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Literal, get_args

from kb.types import Sampling

PresetName = Literal["qa", "fault", "technical", "creative", "code"]
PRESET_NAMES: tuple[PresetName, ...] = get_args(PresetName)
DEFAULT_PRESET: PresetName = "technical"
"""The one that writes the likeliest words: the same question gets the same answer."""

# Ranges that suit Qwen's chat models; facts and codes want little freedom. A penalty above 1.15 makes
# them avoid the very codes that an answer has to repeat.
_SAMPLINGS: Mapping[PresetName, Sampling] = MappingProxyType(
    {
        "qa": Sampling(temperature=0.65, top_p=0.85, repetition_penalty=1.05),
        "fault": Sampling(temperature=0.3, top_p=0.85, repetition_penalty=1.05),
        "technical": Sampling(temperature=0.0, top_p=1.0, repetition_penalty=1.05),
        "creative": Sampling(temperature=0.9, top_p=0.95, repetition_penalty=1.1),
        "code": Sampling(temperature=0.2, top_p=0.9, repetition_penalty=1.05),
    }
)


def get_sampling(preset: PresetName, *, max_tokens: int) -> Sampling:
    """Return the preset's sampling with room for an answer of `max_tokens`."""
    return replace(_SAMPLINGS[preset], max_tokens=max_tokens)


def split_model_name(name: str) -> tuple[str, PresetName | None]:
    """Return collection and preset of a model name such as `manuals:fault`; None if it names no preset."""
    collection, _, suffix = name.rpartition(":")
    preset = next((preset for preset in PRESET_NAMES if preset == suffix), None)
    return (collection, preset) if collection and preset else (name, None)
