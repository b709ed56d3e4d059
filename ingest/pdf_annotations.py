"""Annotations of a PDF page: which of them hold text, and the files that are pinned to the page."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pypdfium2
import pypdfium2.raw as pdfium_c

_MAX_ANNOTATIONS = 1000
_WITHOUT_TEXT = (pdfium_c.FPDF_ANNOT_LINK, pdfium_c.FPDF_ANNOT_POPUP)


def has_text_annotations(page: Any) -> bool:
    """Return whether an annotation may show text that PDFium leaves out of the page's own."""
    return any(kind not in _WITHOUT_TEXT for kind, _ in _iter_annotations(page))


def count_pinned_files(page: Any) -> int:
    """Return how many files are pinned to the page; not to be asked of a flattened page, which has none."""
    return sum(kind == pdfium_c.FPDF_ANNOT_FILEATTACHMENT for kind, _ in _iter_annotations(page))


def iter_pinned_files(document: Any) -> Iterator[Any]:
    """Yield the files that are pinned to pages, as pypdfium2's attachments; broken pages have none."""
    for index in range(len(document)):
        try:
            page = document[index]
        except pypdfium2.PdfiumError:
            continue
        try:
            for kind, annotation in _iter_annotations(page):
                if kind == pdfium_c.FPDF_ANNOT_FILEATTACHMENT:
                    found = pdfium_c.FPDFAnnot_GetFileAttachment(annotation)
                    if found:
                        yield pypdfium2.PdfAttachment(found, document)
        finally:
            page.close()


def _iter_annotations(page: Any) -> Iterator[tuple[int, Any]]:
    for index in range(min(max(pdfium_c.FPDFPage_GetAnnotCount(page.raw), 0), _MAX_ANNOTATIONS)):
        with _open_annotation(page, index) as annotation:
            if annotation:
                yield pdfium_c.FPDFAnnot_GetSubtype(annotation), annotation


@contextmanager
def _open_annotation(page: Any, index: int) -> Iterator[Any]:
    annotation = pdfium_c.FPDFPage_GetAnnot(page.raw, index)
    try:
        yield annotation
    finally:
        if annotation:
            pdfium_c.FPDFPage_CloseAnnot(annotation)
