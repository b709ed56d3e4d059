"""Answers a question from the documents of a collection: with citations, or with a refusal."""

from __future__ import annotations

import secrets
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Literal

from kb.citations import CitationChecker
from kb.completion import QuestionCompleter
from kb.conflicts import ConflictFinder
from kb.drafts import AnswerLog, Draft, measure_ms
from kb.errors import GeneratorUnavailableError, QuestionTooLongError
from kb.evidence import contains_code
from kb.facts import asks_number, asks_what_to_do, iter_numbers
from kb.found import find_languages
from kb.language import detect_language
from kb.ports import Generator, PromptCounter
from kb.presets import DEFAULT_PRESET, PresetName, get_sampling
from kb.prompt import build_prompt
from kb.receipts import ReceiptBook
from kb.relevance import Relevance
from kb.retrieval import ANY, PassageRetriever, Retrieval
from kb.revisions import prefer_newest
from kb.safety import list_unsaid_precautions
from kb.sentences import MARKER, SentenceBuffer, ends_sentence
from kb.tokens import TokenBudget
from kb.types import (
    Answer,
    AnswerDelta,
    AnswerEvent,
    AnswerFinished,
    Collection,
    ConflictingValue,
    GenerationDelta,
    GenerationEnd,
    GenerationEvent,
    GenerationRequest,
    Message,
    Passage,
    Refusal,
    RefusalReason,
    Sampling,
    Scope,
)
from kb.units import list_units
from kb.wording import get_conflict, get_refusal, get_sentence, is_refusal

UnsupportedPolicy = Literal["drop", "mark", "refuse"]
"""What becomes of a sentence that no passage supports."""

_NEAREST = 3
_MOST_REPEATS = 2
_LEAST_IN_OWN = 0.4
"""Share of the question's content in one unit from which on its own language is read beside another."""
_THINKING_TOKENS = 1024
"""Room for thoughts beside that for the answer."""
_STATED = 0.85
"""Share of the question's content that one unit must cover before a model's refusal is doubted."""


class Answerer:
    """Question to cited answer. May be used from several threads at once."""

    def __init__(
        self,
        *,
        retriever: PassageRetriever,
        generator: Generator,
        fallback: Generator | None,
        counter: PromptCounter,
        context_tokens: int,
        answer_tokens: int,
        top_k: int,
        on_unsupported: UnsupportedPolicy = "drop",
        receipts: ReceiptBook | None = None,
        fingerprint_model: Callable[[], str] = str,
    ) -> None:
        """`fingerprint_model` names the files of the generator's model, for receipts."""
        self._retriever = retriever
        self._generator = generator
        self._fallback = fallback
        self._counter = counter
        self._context_tokens = context_tokens
        self._answer_tokens = answer_tokens
        self._top_k = top_k
        self._on_unsupported = on_unsupported
        self._receipts = receipts
        self._fingerprint_model = fingerprint_model
        self._completer = QuestionCompleter(generator=generator, counter=counter)

    def answer(
        self,
        collection: Collection,
        question: str,
        *,
        history: Sequence[Message] = (),
        system: str = "",
        top_k: int | None = None,
        sampling: Sampling | None = None,
        preset: PresetName = DEFAULT_PRESET,
        think: bool = False,
        scope: Scope = ANY,
    ) -> Answer:
        """Return the answer as a whole; the same text, citations and notices as `stream`."""
        events = self.stream(
            collection,
            question,
            history=history,
            system=system,
            top_k=top_k,
            sampling=sampling,
            preset=preset,
            think=think,
            scope=scope,
        )
        return next(event.answer for event in events if isinstance(event, AnswerFinished))

    def stream(
        self,
        collection: Collection,
        question: str,
        *,
        history: Sequence[Message] = (),
        system: str = "",
        top_k: int | None = None,
        sampling: Sampling | None = None,
        preset: PresetName = DEFAULT_PRESET,
        think: bool = False,
        scope: Scope = ANY,
    ) -> Iterator[AnswerEvent]:
        """Return the answer's text sentence by sentence, each one checked, then the answer.

        Retrieval and packing are done before this returns, so whatever is wrong with the request or with
        the indexes is raised here. The iterator raises `GeneratorUnavailableError` only after text was
        emitted, or when there is no fallback. Closing the iterator stops the generator.
        """
        started = time.perf_counter()
        language = detect_language(question)
        context_tokens = self._get_context_tokens()
        sampling = sampling or get_sampling(preset, max_tokens=self._answer_tokens)
        if sampling.seed is None and sampling.temperature > 0:
            # streaming or not, the same question gets the same answer where the runtime keeps to a seed
            sampling = replace(sampling, seed=zlib.crc32(question.encode()))
        max_tokens = sampling.max_tokens + (_THINKING_TOKENS if think else 0)
        limited = replace(sampling, max_tokens=min(max_tokens, context_tokens // 2))
        budget = TokenBudget(context_tokens=context_tokens, answer_tokens=limited.max_tokens)
        question_tokens = self._counter.count_text(question)
        if question_tokens > budget.prompt_tokens:
            raise QuestionTooLongError(tokens=question_tokens, limit_tokens=budget.prompt_tokens)
        query = self._completer.complete(question, history)
        begun = time.perf_counter()
        found = self._retriever.retrieve(collection, query, top_k=top_k or self._top_k, scope=scope)
        log = AnswerLog(
            collection=collection,
            history=tuple(history),
            system=system,
            top_k=top_k or self._top_k,
            preset=preset,
            think=think,
            sampling=sampling,
            found=found,
            started=started,
            retrieval_ms=measure_ms(begun),
        )
        blank = Answer(
            id=f"ans_{secrets.token_hex(8)}",
            question=question,
            query=query,
            text="",
            mode="refused",
            language=language,
        )
        reason = self._find_refusal(found)
        if reason is not None:
            return self._record(iter(_refuse(blank, reason, found=found)), log)
        focused, superseded = prefer_newest(focus(found, query=query), question=query)
        notices = tuple(
            get_sentence("superseded", language, newer=each.newer, older=each.older) for each in superseded
        )
        prompt = build_prompt(
            query,
            focused,
            language=language,
            budget=budget,
            counter=self._counter,
            history=history,
            system=system,
            preset=preset,
        )
        request = GenerationRequest(
            messages=prompt.messages,
            question=query,
            passages=prompt.passages,
            language=language,
            sampling=limited,
            codes=found.codes,
            think=think,
        )
        # quotes cost no tokens, so they may come from what the prompt had no room for
        quotable = replace(request, passages=tuple(focused))
        blank = replace(blank, passages=prompt.passages, notices=notices)
        log = replace(log, prompt=prompt)
        return self._record(self._write(blank, request, quotable, found=found), log)

    def _record(self, events: Iterator[AnswerEvent], log: AnswerLog) -> Iterator[AnswerEvent]:
        """Pass the events on; keep the receipt before the last one, which tells its id."""
        if self._receipts is None:
            return events
        return self._iter_recorded(events, log, self._receipts)

    def _iter_recorded(
        self, events: Iterator[AnswerEvent], log: AnswerLog, receipts: ReceiptBook
    ) -> Iterator[AnswerEvent]:
        timings = {"retrieval": log.retrieval_ms}
        try:
            for event in events:
                if isinstance(event, AnswerFinished):
                    timings["total"] = measure_ms(log.started)
                    model = self._fingerprint_model() if event.answer.mode == "generated" else ""
                    receipts.keep(
                        log.build_receipt(
                            event.answer,
                            now=receipts.now(),
                            threshold=log.found.threshold,
                            model_fingerprint=model,
                            timings_ms=timings,
                        )
                    )
                else:
                    timings.setdefault("first_text", measure_ms(log.started))
                yield event
        finally:
            _close(events)

    def list_read(self, question: str, found: Retrieval) -> tuple[Passage, ...]:
        """Return the passages that the model would read for a question; none if it would not be asked."""
        if self._find_refusal(found) is not None:
            return ()
        context_tokens = self._get_context_tokens()
        budget = TokenBudget(
            context_tokens=context_tokens, answer_tokens=min(self._answer_tokens, context_tokens // 2)
        )
        focused, _superseded = prefer_newest(focus(found, query=question), question=question)
        return build_prompt(
            question,
            focused,
            language=detect_language(question),
            budget=budget,
            counter=self._counter,
        ).passages

    def _find_refusal(self, found: Retrieval) -> RefusalReason | None:
        if not found.passages:
            return RefusalReason.EMPTY_COLLECTION
        if found.unknown_codes:
            return RefusalReason.CODE_UNKNOWN
        if found.evidence < found.threshold:
            return RefusalReason.BELOW_THRESHOLD
        return None

    def _get_context_tokens(self) -> int:
        """Return the smaller of the configured and the runtime's limit; a runtime that is down has none."""
        try:
            return min(self._context_tokens, self._generator.get_context_limit())
        except GeneratorUnavailableError:
            return self._context_tokens

    def _write(
        self, blank: Answer, request: GenerationRequest, quotable: GenerationRequest, *, found: Retrieval
    ) -> Iterator[AnswerEvent]:
        draft = Draft(blank, _make_checker(request), notices=list(blank.notices))
        writer, notice = self._generator, ""
        try:
            pieces = self._generate(writer, request, draft)
            if self._on_unsupported == "refuse":
                # nothing may be shown before all of it is known to hold
                pieces = iter(list(pieces))
            if draft.unsupported and self._on_unsupported == "refuse":
                yield from _refuse(blank, RefusalReason.UNSUPPORTED, found=found, draft=draft)
                return
            yield from pieces
        except GeneratorUnavailableError:
            if draft.text or self._fallback is None:
                raise
            notice = "generator_down"
        if draft.refused_by_model and self._is_stated(quotable):
            # a small model that doesn't see what a passage says outright
            notice = "generator_refused"
        elif draft.refused_by_model:
            yield from _refuse(blank, RefusalReason.NOT_STATED, found=found, draft=draft)
            return
        if not draft.text and not notice:
            notice = "generator_unsupported"
        if notice and self._fallback is not None and self._fallback is not writer:
            writer = self._fallback
            blank = replace(blank, passages=quotable.passages)
            draft.checker = _make_checker(quotable)
            draft.unsupported = []
            draft.refused_by_model = False
            draft.notices.append(get_sentence(notice, blank.language))
            yield from self._generate(writer, quotable, draft)
        if not draft.text:
            doubted = notice == "generator_refused" or self._generator.mode == "extractive"
            reason = RefusalReason.NOT_STATED if doubted else RefusalReason.UNSUPPORTED
            yield from _refuse(blank, reason, found=found, draft=draft)
            return
        if asks_what_to_do(blank.query):
            yield from _add_precautions(draft)
        conflict = _find_conflict(draft, quotable)
        if conflict:
            yield draft.append(f"\n{get_conflict(conflict, draft.checker.citations, blank.language)}")
        if draft.unsupported:
            name = "sentences_marked" if self._on_unsupported == "mark" else "sentences_dropped"
            draft.notices.append(get_sentence(name, blank.language, count=len(draft.unsupported)))
        if writer.mode == "extractive" and not draft.prompt_tokens:
            # no model ran; clients that add up tokens still want to know what went in and out
            draft.prompt_tokens = self._counter.count_messages(request.messages)
            draft.completion_tokens = self._counter.count_text(draft.text)
        if draft.finish_reason == "length":
            draft.notices.append(get_sentence("cut_off", blank.language))
        yield AnswerFinished(
            replace(
                blank,
                text=draft.text,
                mode=writer.mode,
                citations=draft.checker.citations,
                notices=tuple(draft.notices),
                conflict=conflict,
                unsupported=tuple(draft.unsupported),
                model=writer.name,
                finish_reason=draft.finish_reason,
                prompt_tokens=draft.prompt_tokens,
                completion_tokens=draft.completion_tokens,
            )
        )

    def _is_stated(self, request: GenerationRequest) -> bool:
        """Return whether one row or sentence holds all that was asked, so that a refusal is doubtful."""
        if self._fallback is None:
            return False
        units = [unit for unit in list_units(request.passages) if unit.language == request.language]
        relevance = Relevance(request.question, units)
        numbers = asks_number(request.question)
        return any(
            relevance.score(unit) >= _STATED
            for unit in units
            if not numbers or any(number.value not in request.question for number in iter_numbers(unit.text))
        )

    def _generate(
        self, generator: Generator, request: GenerationRequest, draft: Draft
    ) -> Iterator[AnswerDelta]:
        """Emit the generator's sentences that hold; a refusal or a loop ends it early."""
        buffer, raw = SentenceBuffer(), ""
        events = generator.stream(request)
        try:
            for event in events:
                if isinstance(event, GenerationEnd):
                    sentences = _finish(event, buffer, draft)
                else:
                    raw += event.text
                    sentences = buffer.feed(event.text)
                for sentence in sentences:
                    draft.refused_by_model = not draft.text and is_refusal(sentence)
                    checked = self._check(sentence, draft)
                    if draft.refused_by_model or draft.checker.repeat_count >= _MOST_REPEATS:
                        if isinstance(event, GenerationDelta):
                            draft.prompt_tokens += self._counter.count_messages(request.messages)
                            draft.completion_tokens += self._counter.count_text(raw)
                        return
                    piece = draft.add(sentence, checked)
                    if piece:
                        yield AnswerDelta(piece)
        finally:
            _close(events)

    def _check(self, sentence: str, draft: Draft) -> str:
        """Return the sentence as it may be shown, empty if not; note it if nothing supports it."""
        dropped = draft.checker.dropped_count
        checked = draft.checker.check(sentence)
        if draft.checker.dropped_count == dropped:
            return checked
        bare = MARKER.sub("", sentence)
        draft.unsupported.append(bare.strip())
        if self._on_unsupported != "mark" or is_refusal(sentence):
            return ""
        mark = get_sentence("unsupported_mark", draft.answer.language)
        return f"{bare.rstrip()}{mark}{bare[len(bare.rstrip()) :]}"


def _add_precautions(draft: Draft) -> Iterator[AnswerDelta]:
    """Say what a cited passage demands for safety and the answer left out, in the passage's words."""
    language = draft.answer.language
    for citation in draft.checker.citations:
        for clause in list_unsaid_precautions(citation.quote, said=draft.text):
            line = f"\n{get_sentence('precaution', language, clause=' '.join(clause.split()))}"
            yield draft.append(f"{line}{'' if language == 'zh' else ' '}[{citation.number}]")


def _find_conflict(draft: Draft, quotable: GenerationRequest) -> tuple[ConflictingValue, ...]:
    """Return the values that other documents have for what the answer says, its own first; cite each."""
    units = list_units(quotable.passages)
    statements = ConflictFinder(quotable.question, units).find(draft.checker.cited, said=draft.text)
    return tuple(
        ConflictingValue(statement.value, draft.checker.cite([statement.unit])) for statement in statements
    )


def _finish(event: GenerationEnd, buffer: SentenceBuffer, draft: Draft) -> list[str]:
    """Note what the generation cost; a sentence that the length limit cut is left out."""
    draft.prompt_tokens += event.prompt_tokens
    draft.completion_tokens += event.completion_tokens
    draft.finish_reason = event.finish_reason
    rest = buffer.flush()
    if event.finish_reason == "length" and rest and not ends_sentence(rest[-1]):
        rest.pop()
    return rest


def focus(found: Retrieval, *, query: str) -> list[Passage]:
    """Return the passages in languages in which there is evidence, and those that hold an asked code.

    What was found in the other language is only the nearest there is. The question's own language stays
    if a sentence or row there holds much of what was asked: across languages evidence is a weaker sign.
    """
    languages = {
        language for language, evidence in found.evidence_by_language.items() if evidence >= found.threshold
    }
    own = detect_language(query)
    if languages and own not in languages:
        readable = [passage for passage in found.passages if own in find_languages(passage.chunk)]
        if Relevance(query, list_units(readable)).best >= _LEAST_IN_OWN:
            languages.add(own)
    kept = [
        passage
        for passage in found.passages
        if not languages.isdisjoint(find_languages(passage.chunk))
        or any(contains_code(passage.chunk.indexed_text, code) for code in found.codes)
    ]
    return kept or list(found.passages)


def _refuse(
    blank: Answer, reason: RefusalReason, *, found: Retrieval, draft: Draft | None = None
) -> list[AnswerEvent]:
    nearest = found.passages[:_NEAREST]
    text = get_refusal(reason, blank.language, codes=found.unknown_codes, nearest=nearest)
    answer = replace(blank, text=text, mode="refused", refusal=Refusal(reason=reason, nearest=nearest))
    if draft is not None:
        answer = replace(
            answer,
            prompt_tokens=draft.prompt_tokens,
            completion_tokens=draft.completion_tokens,
            unsupported=tuple(draft.unsupported),
        )
    return [AnswerDelta(text), AnswerFinished(answer)]


def _make_checker(request: GenerationRequest) -> CitationChecker:
    return CitationChecker(request.passages, question=request.question, codes=request.codes)


def _close(events: Iterator[GenerationEvent] | Iterator[AnswerEvent]) -> None:
    close = getattr(events, "close", None)
    if close is not None:
        close()
