from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from kb.errors import NothingInScopeError
from kb.retrieval import Retrieval, Retriever
from kb.types import Calibration, Chunk, IndexParts, Scope
from tests.unit.kb.stand_ins import COLLECTION, DenseSide, LexicalSide, Library, make_chunk


def _library(*texts: str | Chunk, names: tuple[str, ...] = ()) -> Library:
    chunks = [
        text if isinstance(text, Chunk) else make_chunk(text, chunk_id=f"c{index}", index=index)
        for index, text in enumerate(texts)
    ]
    return Library(*((chunk, names[i] if names else "manual.pdf") for i, chunk in enumerate(chunks)))


def _make_retriever(library: Library, *, candidates: int = 10, **options: Any) -> Retriever:
    return Retriever(
        embedder=library,
        vectors=DenseSide(library),  # type: ignore[arg-type]
        lexical=LexicalSide(library),  # type: ignore[arg-type]
        catalog=library,  # type: ignore[arg-type]
        candidates=candidates,
        **options,
    )


def _retrieve(library: Library, query: str, *, top_k: int = 5, candidates: int = 10) -> Retrieval:
    return _make_retriever(library, candidates=candidates).retrieve(COLLECTION, query, top_k=top_k)


def _texts(found: Retrieval) -> list[str]:
    return [passage.chunk.text for passage in found.passages]


def test_an_empty_collection_gives_nothing() -> None:
    found = _retrieve(_library(), "E-0471 是什么？")

    assert found == Retrieval(passages=(), evidence=0.0)


def test_the_passage_about_the_question_comes_first_with_the_scores_of_each_stage() -> None:
    library = _library("冷却塔的风机皮带每年更换。", "液压油呈乳白色说明油中进水。", "电机轴承加注润滑脂。")

    found = _retrieve(library, "液压油变成乳白色怎么办？")

    assert _texts(found)[0] == "液压油呈乳白色说明油中进水。"
    assert found.evidence >= 0.5
    assert [passage.rank for passage in found.passages] == list(range(len(found.passages)))
    assert found.passages[0].scores["dense_rank"] == found.passages[0].scores["lexical_rank"] == 0.0
    assert found.passages[0].scores["dense"] > 0 < found.passages[0].scores["lexical"]
    assert "exact" not in found.passages[0].scores


def test_a_question_about_something_else_has_little_evidence() -> None:
    library = _library("冷却塔的风机皮带每年更换。", "液压油呈乳白色说明油中进水。")

    assert _retrieve(library, "法国现任总统是谁？").evidence < 0.5


def test_a_code_goes_ahead_of_everything_and_its_definition_ahead_of_a_mention() -> None:
    library = _library(
        "报警代码的原因和处理方法见下表，报警代码按编号排列。",
        "压力低于 4.5 MPa 时出现报警代码 E-0471。",
        make_chunk("E-0471 | 压力低", chunk_id="row", records=({"代码": "E-0471"},)),
    )

    found = _retrieve(library, "报警代码 ｅ０４７１ 的原因和处理方法？")

    assert _texts(found)[0] == "E-0471 | 压力低"
    assert "E-0471" in _texts(found)[1]
    assert found.passages[0].scores["exact"] == 1.0
    assert found.evidence >= 0.7
    assert found.unknown_codes == ()


def test_an_unknown_code_is_named_as_it_was_asked() -> None:
    found = _retrieve(_library("E-0471 | 压力低"), "Ｅ-0472 怎么处理？")

    assert found.unknown_codes == ("Ｅ-0472",)
    assert found.evidence < 0.5


def test_a_code_that_only_a_document_is_named_after_is_known() -> None:
    library = _library("过载时检查电机。", names=("VD300 manual.pdf",))

    assert _retrieve(library, "VD300 过载怎么办？").unknown_codes == ()


def test_a_code_inside_a_longer_word_of_a_candidate_is_known() -> None:
    found = _retrieve(_library("The DRV8825-based carrier needs 1900 ns."), "step time of DRV8825?")

    assert found.unknown_codes == ()
    assert found.passages[0].scores["exact"] == 1.0


def test_several_codes_each_get_their_row() -> None:
    rows = [
        make_chunk(f"{code} | 现象", chunk_id=code, records=({"代码": code},))
        for code in ("E-0471", "F30001")
    ]
    library = _library(*rows, "其他说明文字。")

    found = _retrieve(library, "E-0471 和 F30001 同时出现")

    assert set(_texts(found)[:2]) == {"E-0471 | 现象", "F30001 | 现象"}


def test_the_name_of_a_machine_in_every_chunk_does_not_decide() -> None:
    library = _library(
        *(f"YL-315 液压机第 {n} 章说明，内容编号{'甲乙丙丁戊己庚'[n]}。" for n in range(7)),
        "顶出力为 630 kN。",
    )

    found = _retrieve(library, "YL-315 的顶出力是多少？", top_k=3)

    assert "顶出力为 630 kN。" in _texts(found)


def test_hidden_chunks_are_left_out_and_replaced_by_others() -> None:
    library = _library(*(f"检查油泵的滤芯，第{n}项。" for n in range(30)))
    library.hidden = {f"c{n}" for n in range(25)}

    found = _retrieve(library, "检查油泵的滤芯", candidates=4)

    assert {passage.chunk.id for passage in found.passages} <= {f"c{n}" for n in range(25, 30)}
    assert len(found.passages) >= 4


def test_looking_for_visible_chunks_ends() -> None:
    library = _library(*(f"检查油泵的滤芯，第{n}项。" for n in range(300)))
    library.hidden = set(library.chunks)

    assert _retrieve(library, "检查油泵的滤芯", candidates=2).passages == ()
    assert max(library.query_sizes) <= 2 * 16


def test_repeated_and_contained_chunks_are_shown_once() -> None:
    library = _library(
        "每班检查油位，并记录读数。停机后更换滤芯。",
        "每班检查油位，并记录读数。",
        "每班检查油位,并记录读数. 停机后更换滤芯。",
        "每班清洁滤网。",
    )

    found = _retrieve(library, "每班检查油位，并记录读数。停机后更换滤芯")

    assert len([text for text in _texts(found) if "油位" in text]) == 1


def test_equal_rows_under_different_headings_both_stay() -> None:
    library = _library(
        make_chunk("更换滤芯", chunk_id="a", context="1 号机"),
        make_chunk("更换滤芯", chunk_id="b", context="2 号机"),
    )

    assert len(_retrieve(library, "更换滤芯").passages) == 2


def test_the_other_language_is_reached_and_the_own_language_stays_first() -> None:
    chinese = [f"变频器过载保护说明第{n}条。" for n in range(12)]
    library = _library(*chinese, "The VFD overload relay trips at 150 %.")

    found = _retrieve(library, "变频器过载保护 VFD overload", candidates=6)

    assert found.passages[0].chunk.language == "zh"
    assert found.passages[1].chunk.language == "en"
    assert set(found.evidence_by_language) == {"zh", "en"}


def test_lines_of_dots_are_no_passages() -> None:
    library = _library("5.1 Keys . . . . . . . . . . . . . . . . . . . . . . 6", "The keys lock the panel.")

    assert _texts(_retrieve(library, "keys")) == ["The keys lock the panel."]


def test_what_says_the_same_in_the_other_language_follows_the_best_of_the_own() -> None:
    library = _library(
        "皮带每 4000 小时更换 SPZ1250",
        "Bearings are greased with 30 g.",
        "Valves are tested yearly.",
        "Belts SPZ1250 are replaced after 4000 hours.",
    )

    found = _retrieve(library, "皮带每多少小时更换？")

    assert found.evidence_by_language["zh"] >= 0.5
    assert _texts(found)[:2] == [
        "皮带每 4000 小时更换 SPZ1250",
        "Belts SPZ1250 are replaced after 4000 hours.",
    ]


def test_a_chunk_that_holds_more_of_the_question_goes_before_one_that_repeats_a_part() -> None:
    library = _library("油压 油压 油压 油压", "油压过低时检查滤芯", "皮带每年更换")

    assert _texts(_retrieve(library, "油压过低检查滤芯"))[0] == "油压过低时检查滤芯"


def test_a_bilingual_page_counts_as_the_questions_language() -> None:
    library = _library("Canteen / 食堂 opens at noon / 中午开门。")

    assert set(_retrieve(library, "食堂几点开门？").evidence_by_language) == {"zh"}
    assert set(_retrieve(library, "When does the canteen open?").evidence_by_language) == {"en"}


def test_asking_twice_gives_the_same() -> None:
    library = _library("液压油呈乳白色说明油中进水。", "Milky oil holds water.", "电机轴承加注润滑脂。")

    assert _retrieve(library, "液压油乳白色") == _retrieve(library, "液压油乳白色")


def test_small_letters_and_a_space_are_a_code_if_the_collection_knows_it() -> None:
    library = _library(
        "Read the display first.",
        make_chunk("F30050 | Safe torque off", chunk_id="row", records=({"Code": "F30050"},)),
    )

    found = _retrieve(library, "f 30050 will not reset")

    assert found.codes == ("F30050",)
    assert found.passages[0].chunk.id == "row"
    assert _retrieve(library, "see page 30051 again").unknown_codes == ()


def test_the_name_of_a_machine_is_no_code_to_look_up() -> None:
    titled = [
        make_chunk(f"VD300 chapter {n}.", chunk_id=f"c{n}", index=n, heading_path=("VD300 manual",))
        for n in range(4)
    ]
    library = _library(*titled, make_chunk("F30021 | Earth fault", chunk_id="row", index=9))

    assert _retrieve(library, "VD300 shows F30021").codes == ("F30021",)


def test_documents_that_name_the_asked_machine_are_preferred() -> None:
    own = [
        make_chunk(
            f"VD300 第{n}章 概述。", chunk_id=f"o{n}", document_id="own", index=n, heading_path=("VD300",)
        )
        for n in range(3)
    ]
    answer = make_chunk("最低频率设为 20 Hz。", chunk_id="own-answer", document_id="own", index=8)
    other = make_chunk("最低频率设为 5 Hz。", chunk_id="a-other", document_id="other", index=0)

    ids = [p.chunk.id for p in _retrieve(_library(*own, other, answer), "VD300 最低频率设为多少？").passages]

    assert ids.index("own-answer") < ids.index("a-other")


def test_a_machines_name_vouches_for_nothing() -> None:
    chunks = [f"YL-315 液压机第 {n} 章，内容编号{'甲乙丙丁戊己庚辛壬癸子丑寅卯'[n]}。" for n in range(14)]

    found = _retrieve(_library(*chunks, "主泵额定压力为 25 MPa。"), "YL-315 主泵的采购价格是多少？")

    assert found.evidence < 0.5


def test_one_index_alone_ranks_by_its_own_score_and_puts_no_code_ahead() -> None:
    library = _library("F30042 总线超时", "总线超时 总线超时 检查终端电阻", "皮带每年更换")
    retriever = _make_retriever(library, candidates=1)

    dense = retriever.rank_by("dense", COLLECTION, "总线超时 检查终端电阻 F30042", top_k=3)
    lexical = retriever.rank_by("lexical", COLLECTION, "检查终端电阻", top_k=2)

    assert [passage.chunk.id for passage in dense] == ["c1", "c0", "c2"]
    assert [passage.score for passage in dense] == sorted((p.score for p in dense), reverse=True)
    assert lexical[0].chunk.id == "c1"
    assert lexical[0].scores == {"lexical": lexical[0].score}


class Backwards:
    """A reranker to which the last of the passages is the best."""

    fingerprint = "backwards"

    def __init__(self) -> None:
        self.read: list[str] = []

    def score(self, query: str, texts: Sequence[str]) -> list[float]:
        self.read = list(texts)
        return [index / len(texts) for index in range(len(texts))]


def _pumps() -> Library:
    return _library(
        make_chunk("油泵滤芯每月检查。", chunk_id="a", document_id="press"),
        make_chunk("油泵滤芯每季更换。", chunk_id="b", document_id="lathe"),
        make_chunk("The oil pump filter is checked.", chunk_id="c", document_id="lathe"),
    )


def test_a_scope_leaves_out_other_documents_and_languages() -> None:
    retriever = _make_retriever(_pumps())

    def find(scope: Scope) -> set[str]:
        found = retriever.retrieve(COLLECTION, "油泵滤芯 oil pump filter", top_k=5, scope=scope)
        return {passage.chunk.id for passage in found.passages}

    assert find(Scope()) == {"a", "b", "c"}
    assert find(Scope(documents=("lathe",))) == {"b", "c"}
    assert find(Scope(documents=("lathe",), language="zh")) == {"b"}
    only = retriever.rank_by("dense", COLLECTION, "油泵", top_k=5, scope=Scope(documents=("press",)))
    assert [passage.chunk.id for passage in only] == ["a"]


def test_a_code_outside_the_scope_is_unknown() -> None:
    library = _library(
        make_chunk("E-0471 | 压力低", chunk_id="a", document_id="press"),
        make_chunk("油位报警", chunk_id="b", document_id="lathe"),
    )

    found = _make_retriever(library).retrieve(
        COLLECTION, "E-0471 怎么处理？", top_k=3, scope=Scope(documents=("lathe",))
    )

    assert found.unknown_codes == ("E-0471",)


def test_a_scope_without_documents_is_an_error() -> None:
    with pytest.raises(NothingInScopeError):
        _make_retriever(_pumps()).retrieve(COLLECTION, "油泵滤芯", top_k=5, scope=Scope(documents=("mill",)))


def test_the_number_of_a_vehicle_on_a_note_does_not_refuse_it() -> None:
    library = _library("Replace the transmission temperature sensor.", "Bucket teeth are worn.")

    found = _retrieve(library, "PH639 REPLACE TRANSMISSION TEMPERATURE SENSOR")

    assert (found.unknown_codes, found.labels) == ((), ("PH639",))
    assert found.evidence >= found.threshold
    assert _retrieve(library, "PH639 transmission temperature sensor?").unknown_codes == ("PH639",)


def test_a_reranker_orders_the_best_and_leaves_codes_ahead() -> None:
    library = _library(
        make_chunk("E-0471 | 油泵压力低", chunk_id="row", records=({"代码": "E-0471"},)),
        "油泵压力低时检查滤芯。",
        "油泵的压力由溢流阀调节。",
    )
    reranker = Backwards()
    plain = _make_retriever(library).retrieve(COLLECTION, "E-0471 油泵压力低", top_k=3)

    found = _make_retriever(library, reranker=reranker).retrieve(COLLECTION, "E-0471 油泵压力低", top_k=3)

    assert _texts(found) == [_texts(plain)[0], *reversed(_texts(plain)[1:])]
    assert sorted(reranker.read) == sorted(_texts(plain))
    assert all("rerank" in passage.scores for passage in found.passages)


def test_the_collections_own_threshold_holds_until_its_parts_change() -> None:
    parts = IndexParts("words", "", "1")
    calibration = Calibration(0.9, 0.05, 0.0, 0.0, 9, 9, parts, datetime(2026, 1, 1, tzinfo=UTC))
    collection = replace(COLLECTION, calibration=calibration)

    def find(now: IndexParts) -> tuple[float, bool]:
        retriever = _make_retriever(_pumps(), evidence_threshold=0.4, get_parts=lambda: now)
        found = retriever.retrieve(collection, "油泵滤芯", top_k=1)
        return found.threshold, found.is_calibration_stale

    assert find(parts) == (0.9, False)
    assert find(replace(parts, chunker="2")) == (0.4, True)


def test_a_trace_names_every_stage_and_the_better_of_two_equal_chunks() -> None:
    library = _library("油泵滤芯每月检查。", "油泵滤芯每月检查", "电机轴承每年润滑。")

    trace = _make_retriever(library).trace(COLLECTION, "油泵滤芯多久检查？", top_k=3)

    (repeat,) = trace.repeats
    assert {repeat, trace.repeats[repeat]} == {"c0", "c1"}
    assert set(trace.found) == {"c0", "c1", "c2"}
    assert {"dense", "dense_rank", "fused"} <= set(trace.scores)
    assert list(trace.ranked) == list(trace.order)
    assert repeat not in [passage.chunk.id for passage in trace.result.passages]


def test_words_that_many_chunks_share_leave_the_order_to_meaning() -> None:
    news = [f"台风山竹登陆消息第{number}条，台风山竹台风山竹登陆。" for number in "一二三四五六七"]
    library = _library(*news, "台风山竹于十七时登陆江门。")
    lone = _library("台风山竹登陆台风山竹。", "台风山竹于十七时登陆江门。", "今天食堂供应鱼。")

    def weigh(found: Library) -> float:
        """Return how much more the words of the best count than the meaning of the last."""
        trace = _make_retriever(found).trace(COLLECTION, "台风山竹几时登陆", top_k=9)
        best = max(trace.scores["lexical"], key=trace.scores["lexical"].__getitem__)
        return trace.scores["fused"][best]

    assert weigh(library) < weigh(lone)


def test_another_language_without_evidence_comes_after_the_first_five() -> None:
    own = [f"油泵滤芯第{number}号每月检查并记录。" for number in "一二三四五六"]
    library = _library(*own, "The canteen opens at noon.", "Parking is free of charge.")

    languages = [chunk.chunk.language for chunk in _retrieve(library, "油泵滤芯每月检查", top_k=8).passages]

    assert languages[:5] == ["zh"] * 5
    assert "en" in languages[5:]
