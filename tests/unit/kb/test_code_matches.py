from __future__ import annotations

import pytest

from kb.code_matches import find_labels, list_codes


def _find(query: str, *, series: tuple[str, ...] = ()) -> list[str]:
    labels = find_labels(query, list_codes(query), has_relatives=lambda letters: letters in series)
    return [label.text for label in labels]


@pytest.mark.parametrize(
    "note",
    [
        "PH639 REPL TRANS TEMP SENSOR",
        "bottom left hoist cylinder leak JA0341",
        "MB119 更换左侧提升油缸软管",
    ],
)
def test_the_number_of_a_vehicle_on_a_note_is_a_label(note: str) -> None:
    (label,) = _find(note)

    assert label in note


@pytest.mark.parametrize(
    "query",
    [
        "What does PH639 mean for the transmission sensor?",
        "PH639 transmission temperature sensor, how to replace",
        "PH639 变速箱温度传感器怎么更换",
        "PH639 报警，变速箱温度传感器",
        "alarm PH639 transmission temperature sensor",
        "PH639 fault transmission temperature sensor",
        "PH639 sensor",
        "E0471 hydraulic pressure low accumulator",
        "replace PH639 transmission temperature sensor",
        "SRVO-050 collision detect alarm stop",
        "ERR14 spindle drive over temperature stop",
    ],
)
def test_what_may_be_asked_for_is_no_label(query: str) -> None:
    assert _find(query) == []


def test_a_code_with_relatives_in_the_collection_may_be_one_of_them() -> None:
    assert _find("PH639 REPL TRANS TEMP SENSOR", series=("PH",)) == []
