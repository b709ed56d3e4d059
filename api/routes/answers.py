"""Route of answers in our own shape."""

from __future__ import annotations

from collections.abc import Iterator

from fastapi import APIRouter, Request, Response
from sse_starlette import ServerSentEvent

from api.access import CallerDep
from api.convert import build_answer, read_scope
from api.errors import document_errors, get_request_id
from api.services import ServicesDep
from api.streaming import AnswerStream, EventResponse, build_frame
from kb.errors import (
    CallerError,
    CollectionNotFoundError,
    IndexMismatchError,
    NothingInScopeError,
    QuestionTooLongError,
)
from kb.presets import get_sampling
from kb.schemas import AnswerOut, AskIn, ErrorOut
from kb.types import AnswerDelta, AnswerEvent, Message

router = APIRouter(prefix="/v1", tags=["Answers"])

_STREAM_DESCRIPTION = (
    "An answer or a refusal. With `stream: true` or `Accept: text/event-stream`: events `delta` "
    '(`{"text": …}`), then `answer` (this object), or `error` if it fails after the first event.'
)


@router.post(
    "/ask",
    summary="Ask a question",
    response_model=AnswerOut,
    responses={
        **document_errors(
            CollectionNotFoundError, NothingInScopeError, QuestionTooLongError, IndexMismatchError
        ),
        200: {"description": _STREAM_DESCRIPTION, "content": {"text/event-stream": {}}},
    },
)
async def ask(
    body: AskIn, request: Request, services: ServicesDep, caller: CallerDep
) -> AnswerOut | Response:
    """An answer with citations from the documents, or a refusal when they don't say."""
    caller.require_collection(body.collection)
    if not body.question.strip():
        raise CallerError("the question is empty", next_step="Send a question.")
    knowledge = services.knowledge
    history = tuple(Message(turn.role, turn.content) for turn in body.history)
    sampling = get_sampling(body.preset, max_tokens=body.max_tokens) if body.max_tokens else None

    def start() -> Iterator[AnswerEvent]:
        collection = knowledge.catalog.get_collection(body.collection)
        return knowledge.answerer.stream(
            collection,
            body.question,
            history=history,
            top_k=body.top_k,
            sampling=sampling,
            preset=body.preset,
            think=body.think,
            scope=read_scope(body.scope),
        )

    def encode(event: AnswerEvent) -> list[ServerSentEvent]:
        if isinstance(event, AnswerDelta):
            return [build_frame({"text": event.text}, event="delta")]
        answer = build_answer(event.answer, collection=body.collection)
        return [build_frame(answer.model_dump_json(), event="answer")]

    stream = AnswerStream(start, limiter=services.answer_limiter, metrics=knowledge.metrics)
    if not (body.stream or "text/event-stream" in request.headers.get("accept", "")):
        return build_answer(await stream.finish(request), collection=body.collection)
    await stream.open(patience_s=services.first_event_patience_s)
    return EventResponse(
        stream,
        encode=encode,
        encode_error=_encode_error,
        request_id=get_request_id(request),
        heartbeat_s=services.heartbeat_s,
    )


def _encode_error(error: ErrorOut) -> list[ServerSentEvent]:
    return [build_frame(error.model_dump_json(), event="error")]
