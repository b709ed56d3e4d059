"""Merges ranked lists into one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

RANK_CONSTANT = 60
"""k of reciprocal rank fusion (Cormack, Clarke and Büttcher, 2009)."""


def fuse(
    ranked: Sequence[Sequence[str]],
    *,
    weights: Sequence[float] | None = None,
    rank_constant: int = RANK_CONSTANT,
) -> dict[str, float]:
    """Return the reciprocal-rank score of each id, best first.

    An id gets weight / (rank_constant + rank), rank from 1, from each list that holds it; its first
    place in a list counts. Equal scores keep the order in which the ids were first seen, list by list.
    Raises ValueError unless there is one weight per list.
    """
    if weights is None:
        weights = [1.0] * len(ranked)
    if len(weights) != len(ranked):
        raise ValueError(f"{len(ranked)} lists need as many weights, got {len(weights)}")
    scores: dict[str, float] = {}
    for ids, weight in zip(ranked, weights, strict=True):
        for rank, item in enumerate(dict.fromkeys(ids), start=1):
            scores[item] = scores.get(item, 0.0) + weight / (rank_constant + rank)
    return dict(sorted(scores.items(), key=lambda entry: -entry[1]))


def combine(
    dense: Mapping[str, float], lexical: Mapping[str, float], *, floor: float, lexical_weight: float
) -> dict[str, float]:
    """Return the weighted mean, 0..1, of both scores, best first; equal ones in the order first seen.

    Each kind of score is put on a scale where its best is 1 and nothing is 0: for words no shared word,
    for cosines `floor`, that of unrelated text. A clear winner of one side then stays ahead, which ranks
    alone can't tell (Bruch, Gai and Ingber, 2023).
    """
    best_lexical = max(lexical.values(), default=0.0)
    best_dense = max(dense.values(), default=floor)
    scores = dict.fromkeys([*dense, *lexical], 0.0)
    for item in scores:
        if best_lexical > 0:
            scores[item] += lexical_weight * lexical.get(item, 0.0) / best_lexical
        if best_dense > floor:
            above = max(0.0, dense.get(item, floor) - floor)
            scores[item] += (1.0 - lexical_weight) * above / (best_dense - floor)
    return dict(sorted(scores.items(), key=lambda entry: -entry[1]))


def measure_margin(scores: Iterable[float], *, rank: int) -> float:
    """Return how far the best score stands out, 0..1: the share that the one at `rank` (from 0) lacks of it.

    All are at least 0; where there are no more than `rank` the best stands alone.
    """
    ordered = sorted(scores, reverse=True)
    if len(ordered) <= rank or ordered[0] <= 0:
        return 1.0
    return 1.0 - ordered[rank] / ordered[0]


def interleave(first: Sequence[str], second: Sequence[str]) -> list[str]:
    """Return both lists in turn, starting with `first`; each id once, at its better place."""
    merged: dict[str, None] = {}
    for index in range(max(len(first), len(second))):
        for ids in (first, second):
            if index < len(ids):
                merged.setdefault(ids[index])
    return list(merged)
