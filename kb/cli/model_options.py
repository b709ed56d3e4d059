"""Options that the commands of `kb model` share, and the plan that they describe."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from kb.runtime.cards import Card
    from kb.runtime.plan import MemoryPlan

ModelArgument = Annotated[
    Path,
    typer.Argument(
        metavar="DIR", exists=True, file_okay=False, help="Folder of the model.", show_default=False
    ),
]
GpuOption = Annotated[
    str | None,
    typer.Option(
        "--gpu",
        metavar="NAME",
        help='Plan for this card, such as "RTX 3060 12GB"; default is this machine\'s.',
    ),
]
VramOption = Annotated[
    str | None,
    typer.Option("--vram", metavar="SIZE", help="Plan for a card with so much memory, such as 12G."),
]
ContextOption = Annotated[
    int | None, typer.Option("--context", metavar="N", help="Tokens of prompt and answer together.")
]
ConcurrencyOption = Annotated[
    int | None, typer.Option("--concurrency", metavar="N", help="Requests at once.")
]
KvOption = Annotated[str, typer.Option("--kv-cache", metavar="TYPE", help="auto, fp8_e5m2 or fp8_e4m3.")]
GpusOption = Annotated[int, typer.Option("--gpus", metavar="N", help="Cards to use, all alike.")]
ShareOption = Annotated[
    str,
    typer.Option(
        "--share", metavar="SIZE", help="Memory left to other programs on the card, such as the embedder: 2G."
    ),
]


def find_plan(
    model: Path,
    *,
    gpu: str | None,
    vram: str | None,
    context: int | None,
    concurrency: int | None,
    kv_cache: str,
    gpus: int,
    share: str,
) -> MemoryPlan:
    """Return the plan for a folder; raises `ConfigurationError` or `CallerError`."""
    from kb.runtime.cards import card_of_memory
    from kb.runtime.checkpoint import count_weight_bytes, read_config, read_tensors
    from kb.runtime.plan import Wish, make_plan
    from kb.runtime.shape import read_shape

    config = read_config(model)
    ties = read_shape(config, weight_bytes=0).ties_embeddings
    shape = read_shape(config, weight_bytes=count_weight_bytes(read_tensors(model), ties_embeddings=ties))
    shared_mib = 0 if share in ("", "0") else card_of_memory(share, least_mib=1).memory_mib
    wish = Wish(
        context_tokens=context, concurrency=concurrency, kv_dtype=kv_cache, gpus=gpus, shared_mib=shared_mib
    )
    return make_plan(shape, find_card_for(gpu=gpu, vram=vram), wish)


def find_card_for(*, gpu: str | None, vram: str | None) -> Card:
    """Return the card that the options name, else the first of this machine.

    Raises `CallerError` for an unknown one, `ConfigurationError` when there is none.
    """
    from kb.errors import ConfigurationError
    from kb.runtime.cards import card_of_memory, find_card
    from kb.runtime.nvidia import list_gpus

    if gpu is not None:
        return find_card(gpu)
    if vram is not None:
        return card_of_memory(vram)
    found = list_gpus()
    if not found:
        raise ConfigurationError(
            "this machine shows no NVIDIA card",
            next_step='Name one with --gpu "RTX 3060 12GB" or --vram 12G; `kb doctor` says why none is seen.',
        )
    return min(found, key=lambda item: item.card.memory_mib).card
