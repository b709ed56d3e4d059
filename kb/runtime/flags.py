"""The runtime's options that follow from a plan, each with its reason."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import dataclass

from kb.runtime.plan import MemoryPlan

_MODERN = (8, 0)
_HALF, _BRAIN = "half", "bfloat16"


@dataclass(frozen=True, slots=True)
class Flag:
    """One option of the runtime; `value` is "" for a switch, several values stand on lines of their own."""

    name: str
    value: str
    reason: str

    @property
    def words(self) -> tuple[str, ...]:
        """The option as words of a command line."""
        return (self.name, *self.value.splitlines())


def choose_flags(plan: MemoryPlan) -> list[Flag]:
    """Return the options that `kb model serve` uses for the plan."""
    return [
        *_choose_kernels(plan),
        Flag(
            "--mem-fraction-static",
            f"{plan.mem_fraction_static:g}",
            "weights and KV cache over what is free; the rest is for activations and decode graphs",
        ),
        *_choose_context(plan),
        *_choose_concurrency(plan),
        *_choose_parallel(plan),
        Flag("--enable-metrics", "", "queue, running requests and cache use can be watched"),
        Flag("--enable-cache-report", "", "answers say how many prompt tokens came from the cache"),
    ]


def to_words(flags: Iterable[Flag]) -> list[str]:
    """Return the options as words of a command line."""
    return [word for flag in flags for word in flag.words]


def _choose_kernels(plan: MemoryPlan) -> list[Flag]:
    capability = plan.card.capability
    shown = f"compute capability {capability[0]}.{capability[1]}"
    modern = capability >= _MODERN
    flags = []
    if plan.shape.quantization == "awq":
        flags.append(
            Flag("--quantization", "awq_marlin", f"fastest 4-bit kernel; {shown} has it")
            if modern
            else Flag(
                "--quantization", "awq", f"the Marlin kernel needs 8.0, {shown}: the plain one is slower"
            )
        )
    elif plan.shape.quantization == "gptq":
        flags.append(Flag("--quantization", "gptq_marlin", f"fastest 4-bit kernel; {shown} has it"))
    flags.append(
        Flag("--dtype", _BRAIN, f"{shown} computes in bf16")
        if modern and plan.shape.quantization != "gptq"
        else Flag(
            "--dtype", _HALF, f"{shown}: bf16 needs 8.0" if not modern else "GPTQ kernels compute in fp16"
        )
    )
    flags.append(Flag("--attention-backend", "triton", "needs no CUDA compiler on this machine"))
    flags.append(Flag("--sampling-backend", "pytorch", "needs no CUDA compiler on this machine"))
    return flags


def _choose_context(plan: MemoryPlan) -> list[Flag]:
    flags = [
        Flag(
            "--context-length",
            str(plan.context_tokens),
            f"{plan.kv_tokens:,} tokens fit, {plan.kv_bytes_per_token / 1024:.0f} KiB each",
        )
    ]
    if plan.context_tokens > plan.shape.max_context_tokens:
        factor = math.ceil(plan.context_tokens / plan.shape.max_context_tokens)
        override = {
            "rope_scaling": {
                "rope_type": "yarn",
                "factor": float(factor),
                "original_max_position_embeddings": plan.shape.max_context_tokens,
            }
        }
        flags.append(
            Flag(
                "--json-model-override-args",
                json.dumps(override),
                f"YaRN stretches the {plan.shape.max_context_tokens:,} tokens of the training by {factor}; "
                "short prompts get slightly worse",
            )
        )
    flags.append(
        Flag(
            "--chunked-prefill-size",
            str(plan.tuning.chunk_tokens),
            f"long prompts are read in pieces, which bounds activations to {plan.activations_mib:,.0f} MiB",
        )
    )
    if plan.wish.kv_dtype != "auto":
        flags.append(
            Flag(
                "--kv-cache-dtype",
                plan.wish.kv_dtype,
                "half the memory for a token; check answers with `kb eval`",
            )
        )
    return flags


def _choose_concurrency(plan: MemoryPlan) -> list[Flag]:
    flags = [
        Flag("--max-running-requests", str(plan.concurrency), "as many as the KV cache holds; others wait")
    ]
    if plan.tuning.graph_batch:
        flags.append(
            Flag(
                "--cuda-graph-max-bs-decode",
                str(plan.tuning.graph_batch),
                f"decode graphs up to this batch take about {plan.graphs_mib:,.0f} MiB",
            )
        )
    else:
        flags.append(
            Flag("--disable-cuda-graph", "", "no memory is left for decode graphs; tokens come slower")
        )
    flags.append(
        Flag("--disable-prefill-cuda-graph", "", "made no difference when measured, and takes memory")
    )
    return flags


def _choose_parallel(plan: MemoryPlan) -> list[Flag]:
    if plan.tensor_parallel > 1:
        return [Flag("--tp-size", str(plan.tensor_parallel), "one card can't hold the model")]
    if plan.data_parallel > 1:
        return [Flag("--dp-size", str(plan.data_parallel), "a copy on each card answers more requests")]
    return []
