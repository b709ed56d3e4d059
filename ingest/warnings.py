"""What a reader of a document should know about how it was read, in a few lines."""

from __future__ import annotations

import re

from kb.types import Page, ParsedDocument, Problem, TextSource

_CODED = re.compile(r"([a-z][a-z0-9_]*)(?::\s*(.*))?", re.DOTALL)

_BY_SOURCE = {
    TextSource.OCR: "ocr_used",
    TextSource.REPAIRED: "text_repaired",
    TextSource.NONE: "page_without_text",
}
_SENTENCES = {
    "ocr_used": ("read by OCR: {pages}", "Compare codes and numbers with the page before you rely on them."),
    "text_repaired": ("the text layer was damaged and was repaired: {pages}", "Compare with the page."),
    "page_without_text": (
        "no text found: {pages}",
        "If these pages show text, scan them again at 300 dpi and upload the document again.",
    ),
}


def summarise_warnings(parsed: ParsedDocument) -> list[Problem]:
    """Return one problem per kind of warning, with the pages it concerns.

    A parser's warning is a code, or a code and a sentence (`code: sentence`).
    """
    problems = [Problem(code, detail or code) for code, detail in map(_split, parsed.warnings)]
    pages_by_kind: dict[tuple[str, str], list[int]] = {}
    for page in parsed.pages:
        for kind in _iter_kinds(page):
            pages = pages_by_kind.setdefault(kind, [])
            if page.page_number not in pages:
                pages.append(page.page_number)
    for (code, detail), pages in sorted(pages_by_kind.items(), key=lambda item: (item[1][0], item[0])):
        sentence, next_step = _SENTENCES.get(code, ((detail or code) + ": {pages}", ""))
        problems.append(Problem(code, sentence.replace("{pages}", format_pages(pages)), next_step))
    return problems


def format_pages(page_numbers: list[int]) -> str:
    """Return ascending page numbers as `page 3` or `pages 1, 4-6`."""
    runs: list[list[int]] = []
    for number in page_numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1][1:] = [number]
        else:
            runs.append([number])
    listed = ", ".join("-".join(map(str, run)) for run in runs)
    return f"{'page' if len(page_numbers) == 1 else 'pages'} {listed}"


def _iter_kinds(page: Page) -> list[tuple[str, str]]:
    """Return code and sentence of each warning of a page; one that has its own sentence drops its text."""
    kinds = [_split(warning) for warning in page.quality.warnings]
    source = _BY_SOURCE.get(page.source)
    if source:
        kinds.append((source, ""))
    return [(code, "" if code in _SENTENCES else detail) for code, detail in kinds]


def _split(warning: str) -> tuple[str, str]:
    coded = _CODED.fullmatch(warning)
    return (coded[1], coded[2] or "") if coded else ("parser_warning", warning)
