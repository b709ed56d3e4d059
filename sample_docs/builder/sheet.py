"""The inspection sheet as XLSX: a merged title, a header row and the rows of a CSV file on each sheet."""

from __future__ import annotations

import tomllib
from io import BytesIO
from pathlib import Path

from openpyxl import Workbook
from openpyxl.styles import Alignment, Border, Font, PatternFill, Side
from openpyxl.utils import get_column_letter
from openpyxl.worksheet.worksheet import Worksheet

from builder.archive import write_reproducibly
from builder.blocks import read_csv


def write_workbook(source: Path, target: Path) -> None:
    """Write the workbook that the TOML file describes; CSV files stand beside it."""
    described = tomllib.loads(source.read_text("utf-8"))
    workbook = Workbook()
    workbook.properties.title = described["title"]
    workbook.properties.creator = described["creator"]
    workbook.remove(workbook.worksheets[0])
    for sheet in described["sheet"]:
        rows = read_csv(source.parent / sheet["file"])
        _fill(workbook.create_sheet(sheet["name"]), sheet["title"], sheet["note"], rows, sheet["widths"])
    buffer = BytesIO()
    workbook.save(buffer)
    write_reproducibly(buffer.getvalue(), target)


def _fill(
    sheet: Worksheet, title: str, note: str, rows: tuple[tuple[str, ...], ...], widths: list[int]
) -> None:
    edge = Side(style="thin", color="7A8A9C")
    last = get_column_letter(len(rows[0]))
    for number, text in ((1, title), (2, note)):
        sheet.merge_cells(f"A{number}:{last}{number}")
        cell = sheet.cell(number, 1, text)
        cell.font = Font(bold=number == 1, size=16 if number == 1 else 10)
        cell.alignment = Alignment(horizontal="center" if number == 1 else "left", vertical="center")
    sheet.row_dimensions[1].height = 30
    for row_number, row in enumerate(rows, 3):
        for column, value in enumerate(row, 1):
            cell = sheet.cell(
                row_number, column, float(value) if value.replace(".", "", 1).isdigit() else value
            )
            cell.border = Border(left=edge, right=edge, top=edge, bottom=edge)
            cell.alignment = Alignment(vertical="center", wrap_text=True)
            if row_number == 3:
                cell.font = Font(bold=True, color="FFFFFF")
                cell.fill = PatternFill("solid", fgColor="1F3A5F")
    for column, width in enumerate(widths, 1):
        sheet.column_dimensions[get_column_letter(column)].width = width
    sheet.freeze_panes = "A4"
    sheet.page_setup.orientation = "landscape"
    sheet.page_setup.fitToWidth = 1
