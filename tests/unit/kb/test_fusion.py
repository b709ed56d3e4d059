from __future__ import annotations

import pytest

from kb.fusion import fuse, interleave


def test_fusion_follows_the_worked_example() -> None:
    scores = fuse([["a", "b"], ["b", "c"]])

    assert list(scores) == ["b", "a", "c"]
    assert scores["b"] == pytest.approx(1 / 62 + 1 / 61)
    assert scores["a"] == pytest.approx(1 / 61)


def test_weights_decide_between_lists() -> None:
    assert list(fuse([["a"], ["b"]], weights=[1.0, 1.5])) == ["b", "a"]


def test_equal_scores_keep_the_order_of_first_sight() -> None:
    assert list(fuse([["x"], ["y"]])) == ["x", "y"]


def test_an_id_counts_once_a_list_at_its_first_place() -> None:
    assert fuse([["a", "a"]])["a"] == pytest.approx(1 / 61)


def test_fusion_of_nothing_is_empty() -> None:
    assert fuse([]) == {}
    assert fuse([[], []]) == {}


def test_a_missing_weight_is_an_error() -> None:
    with pytest.raises(ValueError, match="2 lists"):
        fuse([["a"], ["b"]], weights=[1.0])


def test_interleaving_alternates_and_never_repeats() -> None:
    assert interleave(["a", "b", "c"], ["x", "a"]) == ["a", "x", "b", "c"]
    assert interleave([], ["x"]) == ["x"]
