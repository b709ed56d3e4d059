"""Puts the questions of a set to the service and compares what comes back with what was expected."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from rich.console import Console

    from kb.client import KbClient
    from kb.evaluation import Outcome, Question, Retrieved
    from kb.schemas import AnswerOut, CitationOut, PassageOut, SearchMode

PLAIN_INDEXES: tuple[SearchMode, ...] = ("lexical", "dense")
_PASSAGES, _DOCUMENTS = 10, 20
_PASSAGES_OF_DOCUMENTS = 50


@dataclass(frozen=True, slots=True)
class Measured:
    """Outcomes in the order of the questions, and the answers by question id."""

    outcomes: list[Outcome] = field(default_factory=list)
    answers: dict[str, AnswerOut] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Names:
    """What a set calls the documents: by their names, or by the ids of its texts."""

    ids: Mapping[str, tuple[str, ...]] | None = None

    def list_names(self, item: PassageOut | CitationOut) -> tuple[str, ...]:
        """Return what the document of a passage is called."""
        return (item.document_name,) if self.ids is None else self.ids.get(item.document_id, ())


def measure(
    client: KbClient,
    questions: Sequence[Question],
    *,
    collection: str,
    names: Names,
    answers: bool,
    compare: bool,
    console: Console,
) -> Measured:
    """Put each question to the service; with `compare` to each index alone as well."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from kb.cli.output import pad

    pages = PageTexts(client, collection)
    measured = Measured()
    with Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=console,
        disable=not console.is_terminal,
        transient=True,
    ) as progress:
        bar = progress.add_task("", total=len(questions))
        for question in questions:
            progress.update(bar, description=pad(question.text, 40))
            top_k = _PASSAGES_OF_DOCUMENTS if question.is_by_document else _PASSAGES

            def search(mode: SearchMode, text: str = question.text, top_k: int = top_k) -> list[PassageOut]:
                return client.search(text, collection=collection, top_k=top_k, mode=mode).passages

            started_s = time.perf_counter()
            passages = search("hybrid")
            searched_s = time.perf_counter()
            answer = client.ask(question.text, collection=collection) if answers else None
            answered_s = time.perf_counter()
            measured.outcomes.append(
                judge(
                    question,
                    _cover(question, passages, names),
                    answer,
                    pages,
                    plain={mode: _cover(question, search(mode), names) for mode in PLAIN_INDEXES}
                    if compare
                    else {},
                    search_s=searched_s - started_s,
                    answer_s=answered_s - searched_s if answers else None,
                )
            )
            if answer is not None:
                measured.answers[question.id] = answer
            progress.advance(bar)
    return measured


def judge(
    question: Question,
    retrieved: Retrieved,
    answer: AnswerOut | None,
    pages: PageTexts,
    *,
    plain: Mapping[str, Retrieved],
    search_s: float,
    answer_s: float | None,
) -> Outcome:
    """Compare what was retrieved and answered with what was expected."""
    from kb.evaluation import Outcome, contains_slots

    if answer is None:
        return Outcome(question, retrieved, plain, search_s=search_s)
    shown = [answer.answer, *(citation.quote for citation in answer.citations)]
    read = [passage.text for passage in answer.passages]
    expects = question.answerable and bool(question.answer_slots)
    return Outcome(
        question,
        retrieved,
        plain,
        refused=answer.refused,
        mode=answer.mode,
        citations=len(answer.citations),
        exact_citations=sum(1 for citation in answer.citations if pages.holds(citation)),
        answer_found=contains_slots(question.answer_slots, shown) if expects else None,
        evidence_found=contains_slots(question.answer_slots, read) if expects else None,
        search_s=search_s,
        answer_s=answer_s,
    )


def _cover(question: Question, passages: Sequence[PassageOut], names: Names) -> Retrieved:
    from kb.evaluation import rank_places

    found = (
        (name, [span.page_number for span in passage.spans])
        for passage in passages
        for name in names.list_names(passage)
    )
    ranked = rank_places(question, found)
    return ranked[:_DOCUMENTS] if question.is_by_document else ranked


def list_documents(retrieved: Retrieved) -> list[str]:
    """Return the documents in the order of their best result, each once."""
    return list(dict.fromkeys(_iter_documents(retrieved)))


def _iter_documents(retrieved: Retrieved) -> Iterator[str]:
    for places in retrieved:
        yield from islice(sorted({name for name, _ in places}), 1)


class PageTexts:
    """Stored page texts, each fetched once."""

    def __init__(self, client: KbClient, collection: str) -> None:
        self._client = client
        self._collection = collection
        self._texts = dict[tuple[str, int], str]()

    def holds(self, citation: CitationOut) -> bool:
        """Return whether the quote is exactly the slice of the page that the citation names."""
        from kb.client import ClientError
        from kb.evaluation import is_exact_quote

        key = (citation.document_id, citation.page_number)
        if key not in self._texts:
            try:
                page = self._client.get_page(self._collection, *key)
            except ClientError as error:
                if error.status != 404:
                    raise
                return False
            self._texts[key] = page.text
        return is_exact_quote(
            self._texts[key],
            quote=citation.quote,
            char_start=citation.char_start,
            char_end=citation.char_end,
        )
