from __future__ import annotations

import pytest

from kb.fusion import combine, fuse, interleave, measure_margin


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


def test_combining_puts_both_kinds_of_score_on_one_scale() -> None:
    scores = combine({"a": 0.9, "b": 0.85}, {"b": 12.0, "c": 6.0}, floor=0.8, lexical_weight=0.6)

    assert list(scores) == ["b", "a", "c"]
    assert scores["b"] == pytest.approx(0.6 + 0.4 * 0.5)
    assert scores["a"] == pytest.approx(0.4)
    assert scores["c"] == pytest.approx(0.3)


def test_a_cosine_below_the_floor_counts_as_nothing() -> None:
    assert combine({"a": 0.7, "b": 0.9}, {}, floor=0.8, lexical_weight=0.5) == {"b": 0.5, "a": 0.0}


def test_combining_where_one_side_found_nothing_follows_the_other() -> None:
    assert list(combine({}, {"a": 1.0, "b": 3.0}, floor=0.8, lexical_weight=0.5)) == ["b", "a"]
    assert combine({}, {}, floor=0.8, lexical_weight=0.5) == {}
    assert combine({"a": 0.7}, {}, floor=0.8, lexical_weight=0.5) == {"a": 0.0}


def test_the_margin_is_what_a_later_score_lacks_of_the_best() -> None:
    assert measure_margin([4.0, 1.0, 3.0], rank=1) == 0.25
    assert measure_margin([4.0, 4.0], rank=1) == 0.0
    assert measure_margin([4.0, 3.0], rank=2) == 1.0
    assert measure_margin([], rank=0) == measure_margin([0.0, 0.0], rank=1) == 1.0
