"""The sentences that readers of answers see, in Chinese and English."""

from __future__ import annotations

import re
from collections.abc import Sequence

from kb.types import Citation, ConflictingValue, Passage, RefusalReason

_SENTENCES = {
    "empty_collection": {
        "zh": "这个知识库里还没有可检索的文档。请先上传文档，等处理完成后再提问。",
        "en": "No document here is searchable yet. Upload some, then ask again when they are ready.",
    },
    "code_unknown": {
        "zh": "文档中没有出现 {codes}。请核对代码，或上传包含该代码的手册。",
        "en": "The documents do not mention {codes}. Check the code, or upload the manual that lists it.",
    },
    "below_threshold": {
        "zh": "文档中没有找到这个问题的答案。请换一种说法，或上传相关的文档。",
        "en": "The documents do not answer this question. Try other words, or upload a document about it.",
    },
    "not_stated": {
        "zh": "资料中没有说明。",
        "en": "The documents do not say.",
    },
    "unsupported": {
        "zh": "没有能够用原文证实的回答，因此不予回答。请查看最接近的原文。",
        "en": "No answer could be confirmed by the documents, so none is given. See the nearest content.",
    },
    "nearest": {"zh": "最接近的内容：{places}。", "en": "Nearest content: {places}."},
    "place": {"zh": "《{document}》第 {page} 页", "en": "“{document}”, page {page}"},
    "generator_down": {
        "zh": "回答模型暂时不可用，以下为原文摘录。",
        "en": "The answering model is not available; this is quoted from the documents.",
    },
    "generator_unsupported": {
        "zh": "模型的回答无法用原文证实，以下为原文摘录。",
        "en": "The model's answer could not be confirmed by the documents; this is quoted from them.",
    },
    "generator_refused": {
        "zh": "模型没有找到答案，以下为与问题最吻合的原文摘录。",
        "en": "The model found no answer; this is the passage that matches the question best.",
    },
    "precaution": {
        "zh": "原文中的安全要求：“{clause}”",
        "en": "Precaution in the source: “{clause}”",
    },
    "conflict": {
        "zh": "资料说法不一致：{statements}。",
        "en": "The documents disagree: {statements}.",
    },
    "conflicting_value": {
        "zh": "{place}为“{value}”{marker}",
        "en": "{place} has “{value}” {marker}",
    },
    "superseded": {
        "zh": "采用较新版本《{newer}》，未采用《{older}》。",
        "en": "The newer revision “{newer}” is used; “{older}” is not.",
    },
    "sentences_dropped": {
        "zh": "有 {count} 句话因原文不支持而被略去。",
        "en": "{count} sentence(s) that the documents do not support were left out.",
    },
    "unsupported_mark": {"zh": "（原文未证实）", "en": " (not confirmed by the documents)"},
    "sentences_marked": {
        "zh": "有 {count} 句话没有原文证实，已在文中标出。",
        "en": "{count} sentence(s) that the documents do not support are marked.",
    },
    "cut_off": {
        "zh": "回答达到长度上限，可能不完整。",
        "en": "The answer reached its length limit and may be incomplete.",
    },
}
_SEPARATORS = {"zh": "、", "en": ", "}
_MOST_PLACES = 3
_MOST_REFUSAL_CHARS = 120

# A refusal speaks about the documents; a bare 未找到 or "not found" may be a fault's own description.
_REFUSALS = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        r"(?:资料|文档|文件|手册|文中|文本|段落|上下文|内容|信息|知识库).{0,30}?(?:没有|未|并无|无法|不包含|不含|没)"
        r".{0,12}?(?:说明|提到|提及|提供|包含|找到|给出|记载|涉及|指出|描述|明确|列出|答案|相关|介绍|规定|得知|确定|回答)",
        r"(?:没有|未能?|无法)(?:在|从|根据|依据).{0,20}?(?:资料|文档|文件|手册|文本|内容|信息).{0,10}?"
        r"(?:找到|得到|得知|获得|获取|回答|确定|提到|提及|说明|中)",
        r"(?:没有|缺乏|缺少)(?:足够|相关|任何)的?.{0,6}?(?:资料|信息|内容|说明)",
        r"^(?:很?抱歉|对不起).{0,40}?(?:无法|不能|没有|不知道|未)",
        r"^我?(?:不知道|无法回答|不清楚)",
        r"\b(?:documents?|passages?|text|context|information|materials?|sources?|manuals?)\b.{0,40}?"
        r"\b(?:do|does|did|is|are|was|were|has|have|can)(?: not|n[o']t)\b.{0,40}?"
        r"\b(?:say|state|mention|provide|contain|specify|include|hold|give|describe|answer|cover|list|indicate|"
        r"mentioned|stated|provided|specified|found|available|given|explicitly|address|discuss)",
        r"\b(?:not|n't|isn't) (?:explicitly )?(?:mentioned|stated|specified|provided|found|given|answered|"
        r"contained|available|listed|covered)\b.{0,20}?\b(?:in|by)\b.{0,20}?"
        r"\b(?:documents?|passages?|text|context|information|materials?|sources?|manuals?)\b",
        r"\b(?:there is|there's|i have|i found) no (?:information|mention|answer|passage|details?)\b",
        r"\bno (?:information|mention|answer|details?)\b.{0,40}?"
        r"\b(?:documents?|passages?|text|context|materials?|sources?|manuals?)\b",
        r"^(?:i'?m |i am )?(?:sorry|unable)\b.{0,60}?\b(?:not?|can't|cannot|unable|don't|couldn't|answer)\b",
        r"^i (?:do not|don't|cannot|can't) (?:know|answer|find|determine)",
    )
)


def get_sentence(name: str, language: str, **values: object) -> str:
    """Return the named sentence; languages other than `zh` are answered in English."""
    return _SENTENCES[name]["zh" if language == "zh" else "en"].format(**values)


def get_place(document_name: str, page_number: int, language: str) -> str:
    """Return how a page of a document is named in a sentence."""
    return get_sentence("place", language, document=document_name, page=page_number)


def get_conflict(conflict: Sequence[ConflictingValue], citations: Sequence[Citation], language: str) -> str:
    """Return the sentence that shows each value with its document; `citations` are those of the answer."""
    statements = []
    for one in conflict:
        citation = citations[one.citation - 1]
        place = get_place(citation.document_name, citation.page_number, language)
        statements.append(
            get_sentence(
                "conflicting_value", language, place=place, value=one.value, marker=f"[{one.citation}]"
            )
        )
    separator = "；" if language == "zh" else "; "
    return get_sentence("conflict", language, statements=separator.join(statements))


def get_refusal(
    reason: RefusalReason, language: str, *, codes: Sequence[str] = (), nearest: Sequence[Passage] = ()
) -> str:
    """Return the text of a refusal: why, what to do next, and where the nearest content lies."""
    separator = _SEPARATORS["zh" if language == "zh" else "en"]
    text = get_sentence(reason.value, language, codes=separator.join(codes))
    places = dict.fromkeys(
        get_place(passage.document_name, passage.chunk.page_start, language) for passage in nearest
    )
    if not places:
        return text
    gap = "" if language == "zh" else " "
    return (
        f"{text}{gap}{get_sentence('nearest', language, places=separator.join(list(places)[:_MOST_PLACES]))}"
    )


def is_refusal(sentence: str) -> bool:
    """Return whether a model's sentence says that the documents don't say, in either language."""
    bare = sentence.strip().strip("\"'“”「」")
    return len(bare) <= _MOST_REFUSAL_CHARS and any(pattern.search(bare) for pattern in _REFUSALS)
