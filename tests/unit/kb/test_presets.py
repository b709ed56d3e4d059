from __future__ import annotations

import pytest

from kb.presets import PRESET_NAMES, PresetName, get_sampling, split_model_name
from kb.resources import read_prompt


@pytest.mark.parametrize("preset", PRESET_NAMES)
def test_every_preset_has_sane_sampling_and_a_prompt_in_both_languages(preset: PresetName) -> None:
    sampling = get_sampling(preset, max_tokens=77)

    assert sampling.max_tokens == 77
    assert 1.05 <= sampling.repetition_penalty <= 1.15
    for language in ("zh", "en"):
        rules = read_prompt(f"system.{preset}.{language}")
        assert "{refusal}" in rules
        assert "[1]" in rules


def test_facts_are_written_with_little_freedom() -> None:
    assert (get_sampling("qa", max_tokens=1).temperature, get_sampling("qa", max_tokens=1).top_p) == (
        0.65,
        0.85,
    )
    assert all(get_sampling(name, max_tokens=1).temperature <= 0.5 for name in ("technical", "fault", "code"))
    assert get_sampling("creative", max_tokens=1).temperature > 0.65


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ("manuals", ("manuals", None)),
        ("manuals:fault", ("manuals", "fault")),
        ("a:b:code", ("a:b", "code")),
        ("manuals:other", ("manuals:other", None)),
        (":fault", (":fault", None)),
    ],
)
def test_a_model_is_a_collection_with_or_without_a_preset(
    model: str, expected: tuple[str, PresetName | None]
) -> None:
    assert split_model_name(model) == expected
