"""Merges ranked lists into one."""

from __future__ import annotations

from collections.abc import Sequence

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


def interleave(first: Sequence[str], second: Sequence[str]) -> list[str]:
    """Return both lists in turn, starting with `first`; each id once, at its better place."""
    merged: dict[str, None] = {}
    for index in range(max(len(first), len(second))):
        for ids in (first, second):
            if index < len(ids):
                merged.setdefault(ids[index])
    return list(merged)
