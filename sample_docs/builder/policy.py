"""The IT policy as DOCX: headings, lists, a table, a header and a footer."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path

from docx import Document
from docx.document import Document as DocumentType
from docx.shared import Pt

from builder import blocks
from builder.archive import DATE, write_reproducibly


def write_policy(source: blocks.Source, target: Path) -> None:
    """Write the document; warnings become paragraphs in italics after a bold heading."""
    document = Document()
    head = source.head
    document.core_properties.title = head["title"]
    document.core_properties.author = head["publisher"]
    document.core_properties.created = document.core_properties.modified = DATE
    document.styles["Normal"].font.name = "Calibri"
    document.styles["Normal"].font.size = Pt(11)
    section = document.sections[0]
    section.header.paragraphs[0].text = head["header"]
    section.footer.paragraphs[0].text = head["footer"]
    document.add_heading(head["title"], 0)
    document.add_paragraph(head["cover"].strip())
    for block in source.blocks:
        _add(document, block)
    buffer = BytesIO()
    document.save(buffer)
    write_reproducibly(buffer.getvalue(), target)


def _add(document: DocumentType, block: blocks.Block) -> None:
    match block:
        case blocks.Heading(level, text):
            document.add_heading(text, level)
        case blocks.Paragraph(text):
            document.add_paragraph(text)
        case blocks.Item(marker, text):
            document.add_paragraph(text, style="List Bullet" if marker == "•" else "List Number")
        case blocks.Warning(title, paragraphs):
            document.add_paragraph().add_run(title).bold = True
            for paragraph in paragraphs:
                document.add_paragraph().add_run(paragraph).italic = True
        case blocks.Table(caption, _, rows):
            document.add_paragraph(caption, style="Caption")
            table = document.add_table(rows=0, cols=len(rows[0]), style="Table Grid")
            for number, row in enumerate(rows):
                for cell, text in zip(table.add_row().cells, row, strict=True):
                    cell.paragraphs[0].add_run(text).bold = number == 0
        case _:
            raise ValueError(f"no place in a DOCX for {block!r}")
