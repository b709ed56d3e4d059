"""Answer events to server-sent events, from a synchronous answerer to an asynchronous client."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, Final

import anyio
import structlog
from anyio.to_thread import run_sync
from sse_starlette import EventSourceResponse, ServerSentEvent
from starlette.requests import ClientDisconnect, Request
from starlette.types import Receive, Scope, Send

from api.errors import ShuttingDownError, build_crash, build_error
from kb.errors import KbError
from kb.metrics import Metrics
from kb.schemas import ErrorOut
from kb.types import Answer, AnswerDelta, AnswerEvent, AnswerFinished

FAREWELL_S: Final = 4.0
"""How long an answer may go on after the service was told to stop, before it is ended by an error."""

_CUT_S: Final = FAREWELL_S + 1.0
_HEADERS: Final = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
# line ends for some clients that split a stream by Unicode lines; JSON itself leaves them as they are
_LINE_ENDS: Final = {0x85: "\\u0085", 0x2028: "\\u2028", 0x2029: "\\u2029"}

_log = structlog.get_logger("api.streaming")


class AnswerStream:
    """Runs the iterator of an answer in threads, one event at a time, and closes it in any case.

    `start` is called in a thread too: it may look things up and makes the iterator.
    """

    def __init__(
        self,
        start: Callable[[], Iterator[AnswerEvent]],
        *,
        limiter: anyio.CapacityLimiter,
        metrics: Metrics,
    ) -> None:
        self._start = start
        self._limiter = limiter
        self._metrics = metrics
        self._iterator: Iterator[AnswerEvent] | None = None
        self._first: asyncio.Task[AnswerEvent | None] | None = None
        self._started_at = time.perf_counter()
        self._has_text = False
        self._ended = False
        self._closed = False
        # a thread that was left behind by a cancelled request may still be inside the iterator
        self._lock = threading.Lock()

    async def open(self, *, patience_s: float) -> None:
        """Start the answer; raises what goes wrong before the first event within `patience_s`.

        If the first event takes longer, a later failure is raised by `read`.
        """
        self._first = asyncio.create_task(self._advance_in_thread())
        try:
            done, _ = await asyncio.wait({self._first}, timeout=patience_s)
        except BaseException:
            self.close()
            raise
        if done:
            self._first.result()

    async def read(self) -> AnswerEvent | None:
        """Return the next event, None after the last one."""
        first, self._first = self._first, None
        return await (first or self._advance_in_thread())

    async def finish(self, request: Request) -> Answer:
        """Return the whole answer; raises `ClientDisconnect` as soon as the client leaves."""
        work = asyncio.create_task(self._read_answer())
        leaving = asyncio.create_task(_wait_until_left(request))
        try:
            await asyncio.wait({work, leaving}, return_when=asyncio.FIRST_COMPLETED)
            if work.done():
                return work.result()
            raise ClientDisconnect
        finally:
            work.cancel()
            leaving.cancel()
            self.close()

    def close(self) -> None:
        """Stop the answerer. Returns at once; a step that is under way is let finish first."""
        if self._first is not None:
            self._first.cancel()
            self._first = None
        if self._ended or self._closed:
            return
        self._closed = True
        self._metrics.count_left_answer()
        threading.Thread(target=self._close_iterator, name="answer-close", daemon=True).start()

    async def _read_answer(self) -> Answer:
        answer: Answer | None = None
        while (event := await self.read()) is not None:
            if isinstance(event, AnswerFinished):
                answer = event.answer
        assert answer is not None, "an answerer ends with AnswerFinished"
        return answer

    async def _advance_in_thread(self) -> AnswerEvent | None:
        event = await run_sync(self._advance, limiter=self._limiter, abandon_on_cancel=True)
        if isinstance(event, AnswerDelta) and not self._has_text:
            self._has_text = True
            self._metrics.observe_first_text(time.perf_counter() - self._started_at)
        return event

    def _advance(self) -> AnswerEvent | None:
        """Return the next event, None after the last one."""
        with self._lock:
            if self._ended or self._closed:
                return None
            try:
                if self._iterator is None:
                    self._iterator = self._start()
                event = next(self._iterator, None)
            except BaseException:
                self._ended = True
                raise
            if event is None:
                self._ended = True
            elif isinstance(event, AnswerFinished):
                seconds = time.perf_counter() - self._started_at
                self._metrics.count_answer(event.answer, seconds=seconds)
            return event

    def _close_iterator(self) -> None:
        with self._lock:
            close = getattr(self._iterator, "close", None)
            if callable(close):
                try:
                    close()
                except Exception:
                    _log.exception("answer_close_failed")


class EventResponse(EventSourceResponse):
    """Server-sent events that stay alive through proxies and end in an orderly way.

    `encode` turns events into frames, `encode_error` an error that came after the status was sent.
    """

    def __init__(
        self,
        stream: AnswerStream,
        *,
        encode: Callable[[AnswerEvent], list[ServerSentEvent]],
        encode_error: Callable[[ErrorOut], list[ServerSentEvent]],
        request_id: str,
        heartbeat_s: float,
    ) -> None:
        stopping = anyio.Event()
        super().__init__(
            _iter_frames(stream, encode, encode_error, request_id=request_id, stopping=stopping),
            headers=_HEADERS,
            sep="\n",
            ping=heartbeat_s,
            ping_message_factory=_build_heartbeat,
            shutdown_event=stopping,
            shutdown_grace_period=_CUT_S,
        )
        self._answer_stream = stream

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the frames; the answerer is stopped even if the client left before the first one."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._answer_stream.close()


def build_frame(data: dict[str, Any] | str, *, event: str | None = None) -> ServerSentEvent:
    """Return one frame; its data is one line, for a client that splits lines at any Unicode line end."""
    text = data if isinstance(data, str) else json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    return ServerSentEvent(text.translate(_LINE_ENDS), event=event, sep="\n")


async def _iter_frames(
    stream: AnswerStream,
    encode: Callable[[AnswerEvent], list[ServerSentEvent]],
    encode_error: Callable[[ErrorOut], list[ServerSentEvent]],
    *,
    request_id: str,
    stopping: anyio.Event,
) -> AsyncIterator[ServerSentEvent]:
    """Yield the frames of an answer; an error or a stop of the service becomes the last frame."""
    farewell = asyncio.create_task(_wait_for_farewell(stopping))
    try:
        while True:
            step = asyncio.create_task(stream.read())
            try:
                await asyncio.wait({step, farewell}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                if not step.done():
                    step.cancel()
            if not step.done():
                raise ShuttingDownError("the service is being stopped")
            event = step.result()
            if event is None:
                return
            for frame in encode(event):
                yield frame
    except KbError as error:
        _log.error("answer_failed", code=error.code, exc_info=error)
        for frame in encode_error(build_error(error, request_id=request_id)):
            yield frame
    except Exception:
        _log.exception("answer_crashed")
        for frame in encode_error(build_crash(request_id=request_id)):
            yield frame
    finally:
        farewell.cancel()
        stream.close()


async def _wait_for_farewell(stopping: anyio.Event) -> None:
    await stopping.wait()
    await asyncio.sleep(FAREWELL_S)


async def _wait_until_left(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _build_heartbeat() -> ServerSentEvent:
    return ServerSentEvent(comment="keep-alive", sep="\n")
