from __future__ import annotations

import pytest

from kb.types import RefusalReason
from kb.wording import get_refusal, get_sentence, is_refusal
from tests.unit.kb.stand_ins import make_passage


@pytest.mark.parametrize(
    "sentence",
    [
        "资料中没有说明。",
        "根据提供的资料，没有提到该型号的防护等级。",
        "抱歉，我无法回答这个问题。",
        "文档未提及此代码。",
        "没有足够的信息来回答。",
        "无法从资料中得知。",
        "The documents do not say.",
        "The passages don't mention the torque.",
        "There is no information about that.",
        "It is not specified in the manual.",
        "I'm sorry, but I cannot answer that.",
        "I don't know.",
        get_sentence("not_stated", "zh"),
        get_sentence("not_stated", "en"),
    ],
)
def test_a_models_refusal_is_recognised(sentence: str) -> None:
    assert is_refusal(sentence)


@pytest.mark.parametrize(
    "sentence",
    [
        "未找到限位开关，请增大最大行程。",
        "Could not find limit switch within search distances.",
        "变频器无显示时检查输入电源。",
        "The valve does not open when the coil is dead.",
        "没有油时不得起动油泵。",
        "资料" + "很长的一句话" * 30 + "没有说明",
    ],
)
def test_a_faults_description_is_no_refusal(sentence: str) -> None:
    assert not is_refusal(sentence)


@pytest.mark.parametrize("language", ["zh", "en"])
@pytest.mark.parametrize("reason", list(RefusalReason))
def test_every_refusal_has_words_and_names_the_nearest_place(reason: RefusalReason, language: str) -> None:
    text = get_refusal(
        reason, language, codes=("E-0472",), nearest=[make_passage("x", name="press.pdf", page=12)]
    )

    assert "press.pdf" in text
    assert "12" in text
    assert ("E-0472" in text) is (reason is RefusalReason.CODE_UNKNOWN)
    assert ("。" in text) is (language == "zh")


def test_a_place_is_named_once() -> None:
    nearest = [make_passage("a", rank=0), make_passage("b", rank=1)]

    assert get_refusal(RefusalReason.NOT_STATED, "en", nearest=nearest).count("manual.pdf") == 1


def test_an_unknown_language_is_answered_in_english() -> None:
    assert get_sentence("not_stated", "fr") == get_sentence("not_stated", "en")
