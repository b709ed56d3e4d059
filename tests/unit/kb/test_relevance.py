from __future__ import annotations

from kb.relevance import Relevance
from kb.units import list_units
from tests.unit.kb.stand_ins import make_passage


def _rows(*rows: tuple[str, str]) -> tuple[str, tuple[dict[str, str], ...]]:
    return "\n".join(" | ".join(row) for row in rows), tuple({"项目": a, "参数值": b} for a, b in rows)


def test_the_row_that_was_asked_for_scores_best() -> None:
    text, records = _rows(("公称力", "3150 kN"), ("顶出力", "630 kN"), ("顶出缸行程", "250 mm"))
    units = list_units([make_passage(text, context="技术参数\n项目 | 参数值", records=records)])

    relevance = Relevance("YL-315 的顶出力是多少？", units, names=["YL315"])

    scores = {unit.text: relevance.score(unit) for unit in units}
    assert max(scores, key=lambda text: scores[text]) == "顶出力 | 630 kN"
    assert relevance.best == max(scores.values())


def test_headers_and_neighbours_count_less_than_the_unit_itself() -> None:
    passage = make_passage("Grease the bearing. Use 15 g. Close the cover.", context="Spindle")
    units = list_units([passage])
    relevance = Relevance("spindle bearing", units)

    scores = [relevance.score(unit) for unit in units]

    assert scores[0] > scores[1] > scores[2] > 0


def test_a_question_without_content_scores_nothing() -> None:
    units = list_units([make_passage("Grease the bearing.")])
    relevance = Relevance("what is it?", units)

    assert not relevance.has_content
    assert relevance.score(units[0]) == 0.0
    assert Relevance("bearing", []).best == 0.0


def test_a_code_is_defined_by_its_row_unless_more_was_asked() -> None:
    record = {"件号": "MF-400-7", "名称": "密封组件"}
    units = list_units(
        [
            make_passage("MF-400-7 | 密封组件", context="件号 | 名称", records=(record,)),
            make_passage("装入 MF-400-7。法兰螺栓的拧紧力矩为 1350 N·m。", rank=1),
        ]
    )

    assert list(Relevance("MF-400-7 是什么件？", units).list_defining(["MF4007"])) == ["MF4007"]
    asked = "更换 MF-400-7 时法兰螺栓的拧紧力矩是多少？"
    assert Relevance(asked, units).list_defining(["MF4007"]) == {}
    assert list(Relevance("How tight are the bolts of MF-400-7?", units).list_defining(["MF4007"])) == [
        "MF4007"
    ]


def test_a_span_of_time_answers_how_often() -> None:
    units = list_units([make_passage("LH-330 is a return filter.\nReturn filter LH-330: every 6 months.")])

    relevance = Relevance("How often is return filter LH-330 changed?", units)

    assert relevance.score(units[1]) > relevance.score(units[0])
