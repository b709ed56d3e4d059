"""A manual as PDF: title page, contents, running header and footer, bookmarks, ruled tables."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from pathlib import Path

from reportlab.lib import colors
from reportlab.lib.pagesizes import A4
from reportlab.lib.styles import ParagraphStyle
from reportlab.lib.units import mm
from reportlab.pdfgen.canvas import Canvas
from reportlab.platypus import (
    BaseDocTemplate,
    CondPageBreak,
    Flowable,
    Frame,
    KeepTogether,
    NextPageTemplate,
    PageBreak,
    PageTemplate,
    Paragraph,
    Spacer,
    Table,
    TableStyle,
)
from reportlab.platypus.tableofcontents import TableOfContents

from builder import blocks
from builder.drawing import draw
from builder.fonts import CJK, break_lines

_INK = colors.HexColor("#1f3a5f")
_RULE = colors.HexColor("#7a8a9c")
_WARN = colors.HexColor("#b3261e")
_LEFT, _RIGHT, _TOP, _BOTTOM = 22 * mm, 20 * mm, 26 * mm, 22 * mm
_WIDTH = A4[0] - _LEFT - _RIGHT
_GAP = 9 * mm
_TEXT_ROOM, _TABLE_ROOM = 70, 150  # a heading stays with what it announces
_CHAPTER_ROOM = 75 * mm  # a chapter that would begin lower on the page begins on the next one
_COLUMN = (_WIDTH - _GAP) / 2


def write_manual(source: blocks.Source, target: Path) -> None:
    """Write the manual; the same source, font and library give the same bytes."""
    _Manual(source.head, target).write(source.blocks)


class _Template(BaseDocTemplate):
    """Numbers pages from the title page on and tells contents and bookmarks of each heading."""

    chapter = ""

    def beforeDocument(self) -> None:  # noqa: N802 - reportlab's name
        self.chapter = ""

    def afterFlowable(self, flowable: Flowable) -> None:  # noqa: N802 - reportlab's name
        heading = getattr(flowable, "heading", None)
        if heading is None:
            return
        key = f"h-{heading.text.split()[0]}"
        self.canv.bookmarkPage(key)
        self.canv.addOutlineEntry(heading.text, key, heading.level - 1, closed=heading.level > 1)
        if heading.level == 1:
            self.chapter = heading.text
        if heading.level <= 2:
            self.notify("TOCEntry", (heading.level - 1, heading.text, self.page, key))


class _Manual:
    """Turns blocks into flowables; one instance makes one file."""

    def __init__(self, head: Mapping[str, str], target: Path) -> None:
        self._head = head
        self._chinese = head["language"].startswith("zh")
        self._font = CJK if self._chinese else "Helvetica"
        self._bold = CJK if self._chinese else "Helvetica-Bold"
        self._width = _WIDTH
        self._document = _Template(
            str(target),
            pagesize=A4,
            invariant=1,
            title=head["title"],
            author=head["publisher"],
            subject=head["subtitle"],
            keywords=head["number"],
            lang=head["language"],
        )
        height = A4[1] - _TOP - _BOTTOM
        edge = {"leftPadding": 0, "rightPadding": 0, "topPadding": 0, "bottomPadding": 0}
        single = Frame(_LEFT, _BOTTOM, _WIDTH, height, **edge)
        halves = [Frame(_LEFT + i * (_COLUMN + _GAP), _BOTTOM, _COLUMN, height, **edge) for i in (0, 1)]
        self._document.addPageTemplates(
            [
                PageTemplate("cover", [single], onPageEnd=self._draw_cover),
                PageTemplate("single", [single], onPageEnd=self._draw_margins),
                PageTemplate("columns", halves, onPageEnd=self._draw_margins),
            ]
        )

    def write(self, content: tuple[blocks.Block, ...]) -> None:
        """Lay out everything, in as many passes as the page numbers of the contents need."""
        contents = TableOfContents(dotsMinLevel=0)
        contents.tableStyle = TableStyle(
            [("TOPPADDING", (0, 0), (-1, -1), 1), ("BOTTOMPADDING", (0, 0), (-1, -1), 2)]
        )
        contents.levelStyles = [
            self._style(10, leading=13.5, before=2, color=_INK, bold=True),
            self._style(9, leading=11, leftIndent=14),
        ]
        story: list[Flowable] = [NextPageTemplate("single"), PageBreak()]
        story += [
            Paragraph(self._head["contents"], self._style(17, after=12, color=_INK, bold=True)),
            contents,
        ]
        for number, block in enumerate(content):
            previous = content[number - 1] if number else None
            begins_chapter = isinstance(block, blocks.Heading) and block.level == 1
            if begins_chapter and previous is None:
                story.append(PageBreak())
            elif begins_chapter:
                story += [CondPageBreak(_CHAPTER_ROOM), Spacer(1, 14)]
            follows = content[number + 1] if number + 1 < len(content) else None
            if isinstance(block, blocks.Heading):
                story.append(CondPageBreak(_TABLE_ROOM if isinstance(follows, blocks.Table) else _TEXT_ROOM))
            story += self._flowables(block)
        self._document.multiBuild(story)

    def _flowables(self, block: blocks.Block) -> list[Flowable]:
        match block:
            case blocks.Layout("page"):
                return [PageBreak()]
            case blocks.Layout(kind):
                self._width = _COLUMN if kind == "columns" else _WIDTH
                return [NextPageTemplate(kind), PageBreak()]
            case blocks.Heading():
                return self._heading(block)
            case blocks.Paragraph(text):
                return [self._text(text, self._style(10.5, leading=17, after=6))]
            case blocks.Item(marker, text):
                style = self._style(10.5, leading=17, after=3, leftIndent=18, bulletIndent=3)
                # reportlab encodes Helvetica's bullet as the control character 7F, which some readers keep.
                dash = marker == "•" and not self._chinese
                return [self._text(text, style, bullet="–" if dash else marker)]
            case blocks.Warning():
                return [self._warning(block), Spacer(1, 7)]
            case blocks.Table():
                return self._table(block)
            case blocks.Figure(caption, description):
                drawing = draw(description, font=self._font, width=self._width)
                return [KeepTogether([Spacer(1, 4), drawing, self._caption(caption)])]
        raise ValueError(f"unknown block {block!r}")

    def _heading(self, block: blocks.Heading) -> list[Flowable]:
        size = {1: 16.0, 2: 12.5, 3: 10.5}[block.level]
        style = self._style(
            size, leading=size * 1.4, before=(0, 9, 5)[block.level - 1], after=6, color=_INK, bold=True
        )
        style.keepWithNext = 1
        flowable = self._text(block.text, style)
        flowable.heading = block
        return [flowable]

    def _warning(self, block: blocks.Warning) -> Flowable:
        width = self._width - 22
        parts = [self._text(block.title, self._style(10.5, after=3, color=_WARN, bold=True), width=width)]
        parts += [
            self._text(p, self._style(9.5, leading=14.5, after=2), width=width) for p in block.paragraphs
        ]
        style = [
            ("LINEBEFORE", (0, 0), (0, -1), 3, _WARN),
            ("BACKGROUND", (0, 0), (-1, -1), colors.HexColor("#fdf1f0")),
            ("LEFTPADDING", (0, 0), (-1, -1), 12),
            ("TOPPADDING", (0, 0), (-1, -1), 5),
            ("BOTTOMPADDING", (0, 0), (-1, -1), 5),
        ]
        return Table([[parts]], colWidths=[self._width], style=TableStyle(style), spaceBefore=3)

    def _table(self, block: blocks.Table) -> list[Flowable]:
        widths = [self._width * share / sum(block.widths) for share in block.widths]
        head, body = self._style(9, leading=12.5, bold=True, color=colors.white), self._style(9, leading=12.5)
        cells = [
            [
                self._text(cell, head if number == 0 else body, width=width - 10.5)
                for cell, width in zip(row, widths, strict=True)
            ]
            for number, row in enumerate(block.rows)
        ]
        style = [
            ("GRID", (0, 0), (-1, -1), 0.5, _RULE),
            ("BACKGROUND", (0, 0), (-1, 0), _INK),
            ("ROWBACKGROUNDS", (0, 1), (-1, -1), [colors.white, colors.HexColor("#f4f7fa")]),
            ("VALIGN", (0, 0), (-1, -1), "MIDDLE"),
            ("LEFTPADDING", (0, 0), (-1, -1), 5),
            ("RIGHTPADDING", (0, 0), (-1, -1), 5),
            ("TOPPADDING", (0, 0), (-1, -1), 3),
            ("BOTTOMPADDING", (0, 0), (-1, -1), 4),
        ]
        table = Table(cells, colWidths=widths, repeatRows=1, style=TableStyle(style))
        caption = self._caption(block.caption)
        if len(block.rows) <= 16:
            return [KeepTogether([caption, table]), Spacer(1, 8)]
        return [caption, table, Spacer(1, 8)]

    def _caption(self, text: str) -> Paragraph:
        return self._text(text, self._style(9, before=4, after=4, color=colors.HexColor("#44546a")))

    def _style(
        self,
        size: float,
        *,
        leading: float | None = None,
        before: float = 0,
        after: float = 0,
        color: colors.Color = colors.black,
        bold: bool = False,
        leftIndent: float = 0,  # noqa: N803 - reportlab's name
        bulletIndent: float = 0,  # noqa: N803 - reportlab's name
    ) -> ParagraphStyle:
        return ParagraphStyle(
            "text",
            fontName=self._bold if bold else self._font,
            fontSize=size,
            leading=leading or size * 1.35,
            spaceBefore=before,
            spaceAfter=after,
            textColor=color,
            leftIndent=leftIndent,
            bulletIndent=bulletIndent,
            bulletFontName=self._font,
            bulletFontSize=size,
            allowWidows=0,
            allowOrphans=0,
        )

    def _text(
        self, text: str, style: ParagraphStyle, *, width: float | None = None, bullet: str | None = None
    ) -> Paragraph:
        if self._chinese:
            room = (width or self._width) - style.leftIndent - 1
            lines = break_lines(text, style.fontSize, room)
        else:
            lines = text.split("\n")
        return Paragraph("<br/>".join(escape(line) for line in lines), style, bulletText=bullet)

    def _draw_cover(self, canvas: Canvas, _document: BaseDocTemplate) -> None:
        head = self._head
        canvas.saveState()
        canvas.setFillColor(_INK)
        canvas.rect(0, A4[1] - 62 * mm, A4[0], 62 * mm, stroke=0, fill=1)
        canvas.setFillColor(colors.white)
        canvas.setFont(self._font, 13)
        canvas.drawString(_LEFT, A4[1] - 30 * mm, head["publisher"])
        canvas.setFillColor(_INK)
        canvas.setFont(self._bold, 27)
        canvas.drawString(_LEFT, A4[1] - 100 * mm, head["product"])
        canvas.setFont(self._bold, 19)
        canvas.drawString(_LEFT, A4[1] - 114 * mm, head["subtitle"])
        canvas.setFillColor(colors.black)
        self._lines(canvas, head["cover"], A4[1] - 138 * mm, 11, 19)
        canvas.setFillColor(_WARN)
        self._lines(canvas, head["notice"], 48 * mm, 9, 14)
        canvas.restoreState()

    def _lines(self, canvas: Canvas, text: str, y: float, size: float, leading: float) -> None:
        canvas.setFont(self._font, size)
        for number, line in enumerate(text.strip().split("\n")):
            canvas.drawString(_LEFT, y - number * leading, line)

    def _draw_margins(self, canvas: Canvas, document: BaseDocTemplate) -> None:
        canvas.saveState()
        canvas.setFont(self._font, 8.5)
        canvas.setFillColor(colors.HexColor("#44546a"))
        canvas.setStrokeColor(_RULE)
        canvas.setLineWidth(0.5)
        top, bottom, right = A4[1] - 19 * mm, 16 * mm, A4[0] - _RIGHT
        canvas.drawString(_LEFT, top + 4, self._head["title"])
        canvas.drawRightString(right, top + 4, getattr(document, "chapter", "") or self._head["contents"])
        canvas.line(_LEFT, top, right, top)
        canvas.line(_LEFT, bottom, right, bottom)
        canvas.drawString(_LEFT, bottom - 11, self._head["number"])
        canvas.drawRightString(right, bottom - 11, self._head["page"].format(document.page))
        canvas.restoreState()
