"""How the memory of a card is split for a model: pure arithmetic.

The runtime's static part (weights and KV cache) is a fraction of what is free once CUDA has started.
What is left must hold activations, decode graphs and a reserve: too little of it is the most common
death at start.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from kb.errors import CallerError
from kb.runtime.cards import Card, load_cards
from kb.runtime.shape import ModelShape

MIB = 1024 * 1024
LEAST_CONTEXT_TOKENS = 1024
DEFAULT_CONTEXT_TOKENS = 8192
_MOST_CONCURRENCY = 256

_CONTEXT_BASE_MIB = 400
_CONTEXT_SHARE = 0.01
"""CUDA context and what the driver keeps. Fits an H200 (138.6 of 140.4 GiB free) and cards of 24 GB (23.3 GiB)."""
_LOADED_SHARE = 1.04
"""Weights in memory over weights on disk: repacked kernels and their workspaces; 2.58 of 2.48 GiB on an H200."""
_WORKSPACE_MIB = 512
"""Buffers of the attention backend; the constant that SGLang's own rule of thumb uses."""
_GRAPHS_BASE_MIB = 128
_GRAPH_MIB = 2.0
"""Decode graphs: SGLang's rule of thumb is 2 MiB for each sequence of the largest one."""
_RESERVE_SHARE = 0.02
_RESERVE_BASE_MIB = 128
_MOST_FRACTION = 0.92

KV_ELEMENT_BYTES = {"auto": 2.0, "fp8_e5m2": 1.0, "fp8_e4m3": 1.0}


@dataclass(frozen=True, slots=True)
class Wish:
    """What is asked of a plan; None is left to it. `shared_mib` is kept free for other programs."""

    context_tokens: int | None = None
    concurrency: int | None = None
    kv_dtype: str = "auto"
    gpus: int = 1
    shared_mib: int = 0
    graph_batch: int | None = None


@dataclass(frozen=True, slots=True)
class Tuning:
    """Choices that follow from the card."""

    chunk_tokens: int
    graph_batch: int


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """Where the memory of each card goes, in MiB, and what that allows.

    `kv_tokens` counts all cards together; `nearest` are plans that fit, if this one doesn't.
    """

    card: Card
    shape: ModelShape
    wish: Wish
    tuning: Tuning
    tensor_parallel: int
    data_parallel: int
    driver_mib: float
    weights_mib: float
    state_mib: float
    kv_mib: float
    activations_mib: float
    graphs_mib: float
    reserve_mib: float
    kv_bytes_per_token: int
    kv_tokens: int
    context_tokens: int
    concurrency: int
    problem: str = ""
    nearest: tuple[Proposal, ...] = ()

    @property
    def fits(self) -> bool:
        """True when the card holds what was asked."""
        return not self.problem

    @property
    def available_mib(self) -> float:
        """What is free on the card once CUDA has started."""
        return self.card.memory_mib - self.driver_mib

    @property
    def mem_fraction_static(self) -> float:
        """The runtime's own measure: weights, state and KV cache over what is free, rounded down."""
        share = (self.weights_mib + self.state_mib + self.kv_mib) / self.available_mib
        return max(0.01, math.floor(share * 1000) / 1000)


@dataclass(frozen=True, slots=True)
class Proposal:
    """Something that fits instead, in words, with the wish or card that gives it."""

    text: str
    wish: Wish
    card: Card


def make_plan(shape: ModelShape, card: Card, wish: Wish) -> MemoryPlan:
    """Return the plan for the wish; when it doesn't fit, one with `problem` and `nearest` set.

    Raises `CallerError` for numbers that make no sense.
    """
    _check(wish, shape)
    made = _split(shape, card, wish)
    if made.fits:
        return made
    return replace(made, nearest=tuple(_iter_proposals(made)))


def largest_context(plan: MemoryPlan, concurrency: int) -> int:
    """Return the longest context, in whole 256 tokens, at which so many requests fit at once."""
    per_request = plan.kv_tokens // max(1, concurrency)
    limit = min(per_request, plan.shape.max_context_tokens)
    return limit // 256 * 256


def largest_concurrency(plan: MemoryPlan, context_tokens: int) -> int:
    """Return how many requests of that length fit at once."""
    return min(_MOST_CONCURRENCY, plan.kv_tokens // max(1, context_tokens))


def choose_tuning(card: Card, *, concurrency: int) -> Tuning:
    """Return prefill chunk and largest decode graph by the size of the card.

    From 20 GB on these are the sizes that SGLang takes itself; smaller cards get less.
    """
    gib = card.memory_mib / 1024
    for below, chunk_tokens, graph_batch in (
        (10, 1024, 4),
        (20, 2048, 8),
        (35, 2048, 24),
        (60, 4096, 32),
    ):
        if gib < below:
            return Tuning(chunk_tokens, min(graph_batch, max(1, concurrency)))
    return Tuning(8192, min(128, max(1, concurrency)))


def _check(wish: Wish, shape: ModelShape) -> None:
    if wish.kv_dtype not in KV_ELEMENT_BYTES:
        raise CallerError(
            f"no KV cache of the type {wish.kv_dtype!r}",
            next_step=f"Use one of {', '.join(KV_ELEMENT_BYTES)}.",
        )
    if wish.context_tokens is not None and wish.context_tokens < LEAST_CONTEXT_TOKENS:
        raise CallerError(
            f"a context of {wish.context_tokens} tokens is too short for passages and an answer",
            next_step=f"Ask for at least {LEAST_CONTEXT_TOKENS}.",
        )
    if (wish.context_tokens or 0) > 4 * shape.max_context_tokens:
        raise CallerError(
            f"the model was trained on {shape.max_context_tokens} tokens; {wish.context_tokens} is beyond four times that",
            next_step="Ask for a shorter context.",
        )
    if (wish.concurrency is not None and wish.concurrency < 1) or wish.gpus < 1 or wish.shared_mib < 0:
        raise CallerError(
            "concurrency and cards are at least 1, shared memory at least 0", next_step="Correct the options."
        )


def _split(shape: ModelShape, card: Card, wish: Wish) -> MemoryPlan:
    """Return the plan on all cards: a copy of the model on each where that fits, else one model over all."""
    if wish.gpus == 1:
        return _split_for(shape, card, wish, tensor=1, data=1)
    copies = _split_for(shape, card, wish, tensor=1, data=wish.gpus)
    if copies.fits or shape.kv_heads % wish.gpus:
        return copies
    return _split_for(shape, card, wish, tensor=wish.gpus, data=1)


def _split_for(shape: ModelShape, card: Card, wish: Wish, *, tensor: int, data: int) -> MemoryPlan:
    asked_context = wish.context_tokens
    guess = wish.concurrency or _MOST_CONCURRENCY
    tuning = choose_tuning(card, concurrency=math.ceil(guess / data))
    if wish.graph_batch is not None:
        tuning = replace(tuning, graph_batch=wish.graph_batch)
    running = wish.concurrency or tuning.graph_batch * data
    driver = _CONTEXT_BASE_MIB + _CONTEXT_SHARE * card.memory_mib + wish.shared_mib
    weights = shape.weight_bytes * _LOADED_SHARE / MIB / tensor
    # one more than run at once, so that a new request can be prepared
    state = shape.state_bytes_per_request * (math.ceil(running / data) + 1) / MIB / tensor
    activations = _count_activations(shape, card, tuning)
    graphs = _GRAPHS_BASE_MIB + _GRAPH_MIB * tuning.graph_batch if tuning.graph_batch else 0.0
    reserve = _RESERVE_BASE_MIB + _RESERVE_SHARE * card.memory_mib
    available = card.memory_mib - driver
    kv = min(
        available - weights - state - activations - graphs - reserve,
        _MOST_FRACTION * available - weights - state,
    )
    kv = max(0.0, kv)
    per_token = shape.kv_bytes_per_token(element_bytes=KV_ELEMENT_BYTES[wish.kv_dtype])
    tokens = int(kv * MIB / per_token * tensor) * data
    context = asked_context or min(
        DEFAULT_CONTEXT_TOKENS,
        shape.max_context_tokens,
        tokens // data // max(1, math.ceil((wish.concurrency or 1) / data)),
    )
    plan = MemoryPlan(
        card=card,
        shape=shape,
        wish=wish,
        tuning=tuning,
        tensor_parallel=tensor,
        data_parallel=data,
        driver_mib=driver,
        weights_mib=weights,
        state_mib=state,
        kv_mib=kv,
        activations_mib=activations,
        graphs_mib=graphs,
        reserve_mib=reserve,
        kv_bytes_per_token=per_token,
        kv_tokens=tokens,
        context_tokens=context // 256 * 256 if asked_context is None else context,
        concurrency=0,
    )
    each = largest_concurrency(plan, max(1, plan.context_tokens) * data)  # whole requests on each card
    concurrency = wish.concurrency or max(1, min(each * data, _MOST_CONCURRENCY))
    plan = replace(plan, concurrency=concurrency)
    return replace(plan, problem=_find_problem(plan))


def _count_activations(shape: ModelShape, card: Card, tuning: Tuning) -> float:
    """Return the peak of one forward pass: a chunk through the widest layer, and the logits to sample from."""
    layer = (3 * shape.intermediate_size + 6 * shape.hidden_size) * 2 * tuning.chunk_tokens
    logits = max(8, tuning.graph_batch) * shape.vocab_size * 4 * 3
    unpacked = 0
    if shape.quantization and card.capability < (
        8,
        0,
    ):  # the plain kernel unpacks a whole matrix for a prefill
        unpacked = 2 * shape.intermediate_size * shape.hidden_size * 2
    return _WORKSPACE_MIB + (layer + logits + unpacked) / MIB


def _find_problem(plan: MemoryPlan) -> str:
    if plan.shape.quantization in ("compressed-tensors", "gptq") and plan.card.capability < (8, 0):
        return (
            f"{plan.shape.quantization} weights need compute capability 8.0; "
            f"{plan.card.name} has {plan.card.capability[0]}.{plan.card.capability[1]}"
        )
    if plan.kv_mib <= 0:
        needed = plan.weights_mib + plan.activations_mib + plan.graphs_mib + plan.reserve_mib
        return f"the weights leave no room for a KV cache: {needed:,.0f} MiB needed, {plan.available_mib:,.0f} there"
    if plan.context_tokens < LEAST_CONTEXT_TOKENS:
        return f"only {plan.kv_tokens:,} tokens fit beside the weights, for {plan.concurrency} requests"
    needed_tokens = (
        plan.context_tokens * math.ceil(plan.concurrency / plan.data_parallel) * plan.data_parallel
    )
    if needed_tokens > plan.kv_tokens:
        return (
            f"{plan.concurrency} × {plan.context_tokens:,} tokens need {needed_tokens:,} in the KV cache, "
            f"{plan.kv_tokens:,} fit"
        )
    return ""


def _iter_proposals(plan: MemoryPlan) -> list[Proposal]:
    """Return what fits instead, nearest first."""
    wish, shape, card = plan.wish, plan.shape, plan.card
    found: list[Proposal] = []

    def offer(text: str, changed: Wish, other: Card = card) -> bool:
        made = _split(shape, other, changed)
        if not made.fits:
            return False
        found.append(Proposal(text.format(plan=made), changed, other))
        return True

    longest = largest_context(plan, plan.concurrency)
    if longest >= LEAST_CONTEXT_TOKENS:
        offer(
            "{plan.concurrency} at once with {plan.context_tokens:,} tokens each",
            replace(wish, context_tokens=longest, concurrency=plan.concurrency),
        )
    most = largest_concurrency(plan, plan.context_tokens)
    if most >= 1 and plan.context_tokens >= LEAST_CONTEXT_TOKENS:
        offer(
            "{plan.context_tokens:,} tokens with {plan.concurrency} at once",
            replace(wish, context_tokens=plan.context_tokens, concurrency=most),
        )
    if wish.kv_dtype == "auto" and card.capability >= (8, 9):
        offer("an 8-bit KV cache (--kv-cache fp8_e5m2)", replace(wish, kv_dtype="fp8_e5m2"))
    if not found:
        small = replace(wish, graph_batch=1, concurrency=1, context_tokens=None)
        offer(
            "one request at a time with {plan.context_tokens:,} tokens and the smallest decode graph", small
        )
    for other in load_cards():
        if other.memory_mib > card.memory_mib and offer(f"the same on {other.name}", wish, other):
            break
    return found
