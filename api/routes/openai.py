"""Routes in the shape of OpenAI: a collection is a model.

Frames have no `event:` line, because some clients end the stream at a frame that is not JSON. What
OpenAI has no field for (citations, refusal, mode) stands in fields that its clients ignore.
"""

from __future__ import annotations

import contextlib
import time
import uuid
from collections.abc import Iterator
from dataclasses import asdict, replace
from typing import Any, Literal

from fastapi import APIRouter, Request, Response
from sse_starlette import ServerSentEvent

from api.access import CallerDep
from api.convert import build_citation, build_usage
from api.errors import ModelNotFoundError, document_errors, get_request_id
from api.services import ServicesDep
from api.streaming import AnswerStream, EventResponse, build_frame
from kb.access import Caller
from kb.errors import CallerError, CollectionNotFoundError, IndexMismatchError, QuestionTooLongError
from kb.ports import Catalog
from kb.presets import DEFAULT_PRESET, PresetName, get_sampling, split_model_name
from kb.schemas import (
    ChatChoiceOut,
    ChatCompletionIn,
    ChatCompletionOut,
    ChatMessageIn,
    ChatMessageOut,
    ErrorOut,
    ModelOut,
    ModelsOut,
)
from kb.types import Answer, AnswerDelta, AnswerEvent, Collection, Message, Sampling

router = APIRouter(prefix="/v1", tags=["OpenAI"])

_DONE = "[DONE]"


@router.get("/models", summary="List collections as models", responses=document_errors())
def list_models(services: ServicesDep, caller: CallerDep) -> ModelsOut:
    """Every collection of the caller as a model that can be named in a chat completion."""
    return ModelsOut(
        data=[
            ModelOut(id=collection.name, created=int(collection.created_at.timestamp()))
            for collection in services.knowledge.catalog.list_collections()
            if caller.may_use(collection.name)
        ]
    )


@router.post(
    "/chat/completions",
    summary="Ask in the shape of OpenAI",
    response_model=ChatCompletionOut,
    responses={
        **document_errors(ModelNotFoundError, QuestionTooLongError, IndexMismatchError),
        200: {
            "description": "The answer. With `stream: true`: frames of `chat.completion.chunk`, the last "
            "with `finish_reason` and the vendor fields, then `[DONE]`.",
            "content": {"text/event-stream": {}},
        },
    },
)
async def create_completion(
    body: ChatCompletionIn, request: Request, services: ServicesDep, caller: CallerDep
) -> ChatCompletionOut | Response:
    """The last user message is the question, earlier turns are its history.

    System messages are passed on to the generator beside the service's own instructions.
    """
    if body.n not in (None, 1):
        raise CallerError("n must be 1: there is one answer to a question", next_step="Leave n out.")
    system, history, question = _split_messages(body.messages)
    knowledge = services.knowledge

    def start() -> Iterator[AnswerEvent]:
        collection, preset = _find_model(knowledge.catalog, body.model, caller)
        return knowledge.answerer.stream(
            collection,
            question,
            history=history,
            system=system,
            sampling=_build_sampling(body, preset, answer_tokens=services.answer_tokens),
            preset=preset,
            think=body.chat_template_kwargs.get("enable_thinking") is True,
        )

    completion = _Completion(model=body.model, with_usage=_wants_usage(body))
    stream = AnswerStream(start, limiter=services.answer_limiter, metrics=knowledge.metrics)
    if not body.stream:
        return completion.build(await stream.finish(request))
    await stream.open(patience_s=services.first_event_patience_s)
    return EventResponse(
        stream,
        encode=completion.encode,
        encode_error=_encode_error,
        request_id=get_request_id(request),
        heartbeat_s=services.heartbeat_s,
    )


class _Completion:
    """One completion, whole or in chunks; its id is its own."""

    def __init__(self, *, model: str, with_usage: bool) -> None:
        self._id = f"chatcmpl-{uuid.uuid4().hex}"
        self._created = int(time.time())
        self._model = model
        self._with_usage = with_usage
        self._started = False

    def build(self, answer: Answer) -> ChatCompletionOut:
        """Return the completion as one object."""
        vendor = _build_vendor_fields(answer)
        return ChatCompletionOut(
            id=self._id,
            created=self._created,
            model=self._model,
            choices=[
                ChatChoiceOut(
                    message=ChatMessageOut(content=answer.text, citations=vendor["citations"]),
                    finish_reason=_get_finish_reason(answer),
                )
            ],
            usage=build_usage(answer),
            **vendor,
        )

    def encode(self, event: AnswerEvent) -> list[ServerSentEvent]:
        """Return the frames of an event; the first one also opens the message."""
        frames = []
        if not self._started:
            self._started = True
            frames.append(self._build_chunk({"role": "assistant", "content": ""}))
        if isinstance(event, AnswerDelta):
            return [*frames, self._build_chunk({"content": event.text})]
        vendor = _build_vendor_fields(event.answer)
        last = self._build_chunk(
            {"citations": vendor["citations"]}, finish_reason=_get_finish_reason(event.answer), vendor=vendor
        )
        frames.append(last)
        if self._with_usage:
            usage = build_usage(event.answer).model_dump()
            frames.append(build_frame({**self._build_head(), "choices": [], "usage": usage}))
        return [*frames, build_frame(_DONE)]

    def _build_head(self) -> dict[str, Any]:
        return {
            "id": self._id,
            "object": "chat.completion.chunk",
            "created": self._created,
            "model": self._model,
        }

    def _build_chunk(
        self,
        delta: dict[str, Any],
        *,
        finish_reason: str | None = None,
        vendor: dict[str, Any] | None = None,
    ) -> ServerSentEvent:
        choice = {"index": 0, "delta": delta, "finish_reason": finish_reason}
        usage = {"usage": None} if self._with_usage else {}
        return build_frame({**self._build_head(), "choices": [choice], **usage, **(vendor or {})})


def _encode_error(error: ErrorOut) -> list[ServerSentEvent]:
    return [build_frame(error.model_dump_json()), build_frame(_DONE)]


def _build_vendor_fields(answer: Answer) -> dict[str, Any]:
    return {
        "citations": [build_citation(citation).model_dump() for citation in answer.citations],
        "refused": answer.refused,
        "refusal_reason": answer.refusal.reason.value if answer.refusal else None,
        "mode": answer.mode,
        "notices": list(answer.notices),
        "unsupported": list(answer.unsupported),
        "flags": list(answer.flags),
        "answer_id": answer.id,
        "query": answer.query or answer.question,
        "conflict": [asdict(value) for value in answer.conflict],
    }


def _get_finish_reason(answer: Answer) -> Literal["stop", "length"]:
    return "length" if answer.finish_reason == "length" else "stop"


def _wants_usage(body: ChatCompletionIn) -> bool:
    return body.stream_options is not None and body.stream_options.include_usage


def _split_messages(messages: list[ChatMessageIn]) -> tuple[str, tuple[Message, ...], str]:
    """Return the system text, the earlier turns, and the last user message."""
    texts = [(message.role, _read_text(message)) for message in messages]
    system = "\n\n".join(text for role, text in texts if role in ("system", "developer") and text.strip())
    turns = [Message(role, text) for role, text in texts if role in ("user", "assistant")]
    last = max((place for place, turn in enumerate(turns) if turn.role == "user"), default=None)
    if last is None or not turns[last].content.strip():
        raise CallerError(
            "messages hold no question", next_step="Let a message of the role user hold the question."
        )
    history = tuple(turn for turn in turns[:last] if turn.content.strip())
    return system, history, turns[last].content


def _read_text(message: ChatMessageIn) -> str:
    if message.content is None or isinstance(message.content, str):
        return message.content or ""
    texts = []
    for part in message.content:
        if part.get("type") != "text" or not isinstance(part.get("text"), str):
            raise CallerError(
                "messages may hold parts of type text only", next_step="Leave pictures and files out."
            )
        texts.append(part["text"])
    return "\n".join(texts)


def _find_model(catalog: Catalog, name: str, caller: Caller) -> tuple[Collection, PresetName]:
    """Return the collection and preset that a model's name stands for; a collection's own name goes first.

    Raises `AccessDeniedError` before it looks, if no reading of the name is a collection of the caller.
    """
    bare, preset = split_model_name(name)
    readings: list[tuple[str, PresetName]] = [(name, DEFAULT_PRESET), *([(bare, preset)] if preset else [])]
    allowed = [reading for reading in readings if caller.may_use(reading[0])]
    if not allowed:
        caller.require_collection(name)
    for collection, wanted in allowed:
        with contextlib.suppress(CollectionNotFoundError):
            return catalog.get_collection(collection), wanted
    raise ModelNotFoundError(name)


def _build_sampling(body: ChatCompletionIn, preset: PresetName, *, answer_tokens: int) -> Sampling | None:
    """Return the preset's sampling with what the request says otherwise, None if it says nothing."""
    max_tokens = body.max_completion_tokens or body.max_tokens
    stop = (body.stop,) if isinstance(body.stop, str) else tuple(body.stop or ())
    wanted = {
        "max_tokens": max_tokens,
        "temperature": body.temperature,
        "top_p": body.top_p,
        "repetition_penalty": body.repetition_penalty,
        "seed": body.seed,
        "stop": stop or None,
    }
    sent: dict[str, Any] = {name: value for name, value in wanted.items() if value is not None}
    return replace(get_sampling(preset, max_tokens=answer_tokens), **sent) if sent else None
