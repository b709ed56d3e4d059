"""Whether the tokenizer and the chat template in a folder belong to its model."""

from __future__ import annotations

from pathlib import Path

from kb.adapters.chat_tokenizer import ChatTokenizer
from kb.errors import KbError
from kb.model_files import read_json_object
from kb.runtime.checks import FAIL, INFO, OK, WARN, Check
from kb.runtime.shape import ModelShape
from kb.types import Message

_AGAIN = "Copy tokenizer.json and tokenizer_config.json from where the model was published."
_TURN_MARKS = ("<|im_start|>", "<|im_end|>")
_ROUND_TRIP = "液压油温度超过 65 °C，请清洗冷却器。E-0471 检查风扇！"
_CONVERSATION = (
    Message("system", "SYSTEM-TEXT"),
    Message("user", "USER-TEXT"),
    Message("assistant", "ASSISTANT-TEXT"),
    Message("user", "LAST-TEXT"),
)


def check_tokenizer(folder: Path, shape: ModelShape) -> list[Check]:
    """Return the checks of vocabulary, special tokens, chat template and thinking switch."""
    tokenizer = ChatTokenizer(path=folder)
    try:
        backend = tokenizer.backend
    except KbError as error:
        return [Check("tokenizer", FAIL, error.message, _AGAIN)]
    checks = [_check_vocabulary(tokenizer, shape)]
    checks.append(_check_end(folder, tokenizer))
    if shape.architecture.startswith("Qwen"):
        missing = [mark for mark in _TURN_MARKS if backend.token_to_id(mark) is None]
        checks.append(
            Check("special tokens", FAIL, f"{' and '.join(missing)} is no token", _AGAIN)
            if missing
            else Check(
                "special tokens", OK, ", ".join(f"{mark} {backend.token_to_id(mark)}" for mark in _TURN_MARKS)
            )
        )
    checks.append(_check_template(tokenizer))
    return checks


def _check_vocabulary(tokenizer: ChatTokenizer, shape: ModelShape) -> Check:
    backend = tokenizer.backend
    highest = max(backend.get_vocab(with_added_tokens=True).values(), default=-1) + 1
    if highest > shape.vocab_size:
        return Check(
            "tokenizer",
            FAIL,
            f"{highest:,} tokens, but the model has {shape.vocab_size:,}: it belongs to another model",
            _AGAIN,
        )
    encoded = tokenizer.encode_text(_ROUND_TRIP)
    if backend.decode(list(encoded.ids), skip_special_tokens=False) != _ROUND_TRIP:
        return Check("tokenizer", FAIL, "Chinese text does not come back as it was", _AGAIN)
    if highest < 0.9 * shape.vocab_size:
        return Check(
            "tokenizer",
            WARN,
            f"{highest:,} tokens for a model with {shape.vocab_size:,}",
            "Check that it belongs to this model.",
        )
    return Check(
        "tokenizer", OK, f"{highest:,} tokens of {shape.vocab_size:,}; Chinese text comes back as it was"
    )


def _check_end(folder: Path, tokenizer: ChatTokenizer) -> Check:
    generation = read_json_object(folder / "generation_config.json")
    found = generation.get("eos_token_id")
    ends = found if isinstance(found, list) else [] if found is None else [found]
    turn_end = tokenizer.backend.token_to_id(_TURN_MARKS[1])
    if turn_end is not None and turn_end not in ends:
        said = (
            "is missing"
            if not generation
            else f"ends answers at {ends}, not at {_TURN_MARKS[1]} ({turn_end})"
        )
        return Check(
            "end of answer",
            WARN,
            f"generation_config.json {said}",
            "Copy generation_config.json from where the model was published, or answers may not end.",
        )
    if not tokenizer.end_ids:
        return Check("end of answer", FAIL, "no token ends an answer", _AGAIN)
    return Check("end of answer", OK, f"token {', '.join(str(end) for end in sorted(tokenizer.end_ids))}")


def _check_template(tokenizer: ChatTokenizer) -> Check:
    try:
        plain = tokenizer.encode_messages(_CONVERSATION, {"enable_thinking": False})
        thinking = tokenizer.encode_messages(_CONVERSATION, {"enable_thinking": True})
    except KbError as error:
        return Check("chat template", FAIL, error.message, error.next_step)
    rendered = tokenizer.backend.decode(plain, skip_special_tokens=False)
    places = [rendered.find(message.content) for message in _CONVERSATION]
    if -1 in places or places != sorted(places):
        lost = [message.role for message, place in zip(_CONVERSATION, places, strict=True) if place < 0]
        return Check(
            "chat template",
            FAIL,
            f"does not render the turns of {', '.join(lost) or 'a conversation'} in order",
            _AGAIN,
        )
    if plain == thinking:
        return Check("chat template", INFO, "renders all roles; has no switch for thinking")
    return Check("chat template", OK, "renders all roles; thinking can be switched off")
