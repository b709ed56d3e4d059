from __future__ import annotations

import pytest

from kb.errors import CallerError
from kb.runtime.cards import Card, CardUnknownError, card_of_memory, find_card, load_cards
from kb.runtime.flags import Flag, choose_flags
from kb.runtime.plan import MIB, MemoryPlan, Wish, largest_concurrency, largest_context, make_plan
from kb.runtime.shape import ModelShape, read_shape
from tests.checkpoints import QWEN3_4B, build_config

# a Qwen3 of 4 billion parameters, 4 bits: bf16 embedding, and 0.5 + 2.5 / 128 bytes for each packed weight
WEIGHTS_4B = 151936 * 2560 * 2 + int(
    36 * (2560 * 4096 * 2 + 2 * 2560 * 1024 + 3 * 2560 * 9728) * (0.5 + 2.5 / 128)
)
HYBRID = {
    "architectures": ["Qwen3_5ForConditionalGeneration"],
    "text_config": {
        "num_hidden_layers": 32,
        "layer_types": (["linear_attention"] * 3 + ["full_attention"]) * 8,
        "num_attention_heads": 16,
        "num_key_value_heads": 4,
        "head_dim": 256,
        "hidden_size": 2560,
        "intermediate_size": 9216,
        "vocab_size": 248320,
        "max_position_embeddings": 262144,
        "linear_num_value_heads": 32,
        "linear_num_key_heads": 16,
        "linear_key_head_dim": 128,
        "linear_value_head_dim": 128,
        "linear_conv_kernel_dim": 4,
    },
}


def shape_4b() -> ModelShape:
    return read_shape(build_config(QWEN3_4B, method="awq"), weight_bytes=WEIGHTS_4B)


def plan(card: str, **wish: int | str) -> MemoryPlan:
    return make_plan(shape_4b(), find_card(card), Wish(**wish))  # type: ignore[arg-type]  # mixed values of a test


def flags_of(made: MemoryPlan) -> dict[str, Flag]:
    return {flag.name: flag for flag in choose_flags(made)}


def test_a_token_takes_keys_and_values_of_each_layer() -> None:
    assert shape_4b().kv_bytes_per_token() == 2 * 36 * 8 * 128 * 2 == int(0.140625 * MIB)


def test_a_hybrid_keeps_a_cache_in_every_fourth_layer_and_a_state_for_each_request() -> None:
    shape = read_shape(HYBRID, weight_bytes=1)

    assert shape.kv_bytes_per_token() == 2 * 8 * 4 * 256 * 2
    assert shape.state_bytes_per_request == 24 * (32 * 128 * 128 * 4 + (2 * 16 * 128 + 32 * 128) * 3 * 2)


def test_weights_and_tokens_are_those_measured_on_an_h200() -> None:
    made = plan("H200")

    tokens = (0.10 * made.available_mib - made.weights_mib) * MIB / made.kv_bytes_per_token

    assert made.weights_mib / 1024 == pytest.approx(2.58, abs=0.01)
    assert tokens == pytest.approx(82_100, rel=0.01)


@pytest.mark.parametrize("card", load_cards(), ids=lambda card: card.name)
def test_the_parts_never_exceed_any_card(card: Card) -> None:
    made = make_plan(shape_4b(), card, Wish())

    parts = (
        made.driver_mib
        + made.weights_mib
        + made.kv_mib
        + made.activations_mib
        + made.graphs_mib
        + made.reserve_mib
    )
    assert made.fits
    assert parts <= card.memory_mib + 0.001
    assert made.kv_tokens == int(made.kv_mib * MIB / 147456)
    assert made.context_tokens * made.concurrency <= made.kv_tokens
    assert made.mem_fraction_static * made.available_mib <= made.weights_mib + made.kv_mib


def test_context_and_concurrency_are_each_others_reverse() -> None:
    made = plan("RTX 3060")

    assert largest_concurrency(made, largest_context(made, 4)) == 4


def test_what_does_not_fit_comes_with_what_does() -> None:
    made = plan("RTX 3050", context_tokens=16000, concurrency=8)

    assert not made.fits
    assert made.nearest
    assert all(make_plan(shape_4b(), item.card, item.wish).fits for item in made.nearest)


@pytest.mark.parametrize(
    ("card", "kernel", "dtype"),
    [("2080 Ti", "awq", "half"), ("3060", "awq_marlin", "bfloat16"), ("H200", "awq_marlin", "bfloat16")],
)
def test_kernel_and_dtype_follow_the_compute_capability(card: str, kernel: str, dtype: str) -> None:
    flags = flags_of(plan(card))

    assert (flags["--quantization"].value, flags["--dtype"].value) == (kernel, dtype)
    assert all(flag.reason for flag in flags.values())


def test_a_context_beyond_the_training_is_stretched() -> None:
    flags = flags_of(plan("4090", context_tokens=81920, concurrency=1))

    assert '"factor": 2.0' in flags["--json-model-override-args"].value


def test_several_cards_hold_a_copy_each_where_one_can() -> None:
    assert flags_of(plan("3060", gpus=2))["--dp-size"].value == "2"


@pytest.mark.parametrize(
    "wish", [Wish(context_tokens=100), Wish(concurrency=0), Wish(kv_dtype="int3"), Wish(context_tokens=10**6)]
)
def test_wishes_that_make_no_sense_are_refused(wish: Wish) -> None:
    with pytest.raises(CallerError):
        make_plan(shape_4b(), find_card("3060"), wish)


@pytest.mark.parametrize("name", ["3060", "NVIDIA GeForce RTX 3060", "rtx 3060 12 GB"])
def test_a_card_has_many_names(name: str) -> None:
    assert find_card(name).name == "RTX 3060 12GB"


def test_unknown_cards_and_amounts_are_refused() -> None:
    with pytest.raises(CardUnknownError):
        find_card("RTX")
    with pytest.raises(CallerError):
        card_of_memory("twelve")
    assert card_of_memory("12G").memory_mib == 12288
