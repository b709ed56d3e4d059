"""Ruled tables of a PDF page: PDFium's lines, pdfplumber's geometry of cells, the glyphs inside each cell."""

from __future__ import annotations

import bisect
import ctypes
import itertools
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pypdfium2.raw as pdfium_c
from pdfplumber.table import cells_to_tables, edges_to_intersections, intersections_to_cells, merge_edges

from ingest.characters import join_lines
from ingest.lines import PlacedTable, group_rows
from ingest.pdf_glyphs import Glyph, ToPage, make_line, split_at_gaps
from ingest.tables import Cell, lay_out
from kb.types import Box

Rectangle = tuple[float, float, float, float]

_MIN_EDGE_POINTS = 4.0
_MIN_OPEN_RULES = 3
_SNAP_POINTS = 3.0
# Glyphs of one word are closer than this share of their height.
_TOUCH = 0.12
# Drawings with more strokes than this are plans or charts, and their geometry would take minutes.
_MAX_EDGES = 4000
_MAX_SEGMENTS = 40000
_MAX_FORM_DEPTH = 6


@dataclass(frozen=True, slots=True)
class CellGroup:
    """The cells of one ruled table, by their rectangles (x0, y0, x1, y1)."""

    cells: tuple[Rectangle, ...]


def find_cell_groups(page: Any, to_page: ToPage) -> list[CellGroup]:
    """Return the ruled tables of at least two rows and two columns."""
    edges = list(itertools.islice(_edges(page, to_page), _MAX_EDGES + 1))
    if len(edges) < 4 or len(edges) > _MAX_EDGES:
        return []
    merged = _merge(edges)
    merged = _merge([*merged, *_closing_edges(merged)])
    cells = intersections_to_cells(edges_to_intersections(merged, _SNAP_POINTS, _SNAP_POINTS))
    return [
        CellGroup(tuple(members))
        for members in cells_to_tables(cells)
        if len(_borders(members, 0, 2)) > 2 and len(_borders(members, 1, 3)) > 2
    ]


def _merge(edges: list[dict[str, Any]]) -> list[dict[str, Any]]:
    merged: list[dict[str, Any]] = merge_edges(
        edges,
        snap_x_tolerance=_SNAP_POINTS,
        snap_y_tolerance=_SNAP_POINTS,
        join_x_tolerance=_SNAP_POINTS,
        join_y_tolerance=_SNAP_POINTS,
    )
    return merged


def _closing_edges(edges: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield the missing sides of tables drawn open: where several rules end together, but meet none.

    Tables often have no outer borders at the left and right, or none at the foot of a page on which
    they don't end.
    """
    for component in _components(edges):
        for orientation, ends, across in (("v", ("top", "bottom"), "x0"), ("h", ("x0", "x1"), "top")):
            for end in ends:
                rules = [edge for edge in component if edge["orientation"] == orientation]
                for members in _ending_together(rules, end):
                    first, last = min(m[across] for m in members), max(m[across] for m in members)
                    place = members[0][end]
                    if orientation == "v":
                        side = _edge("h", first, place, last, place)
                    else:
                        side = _edge("v", place, first, place, last)
                    if not any(_covers(edge, side) for edge in component):
                        yield side


def _ending_together(rules: Sequence[dict[str, Any]], end: str) -> list[list[dict[str, Any]]]:
    groups: dict[int, list[dict[str, Any]]] = {}
    for rule in rules:
        groups.setdefault(round(rule[end] / _SNAP_POINTS), []).append(rule)
    return [members for members in groups.values() if len(members) >= _MIN_OPEN_RULES]


def _covers(edge: dict[str, Any], side: dict[str, Any]) -> bool:
    """Return whether an edge lies along the whole side, within the snapping distance."""
    return bool(
        edge["orientation"] == side["orientation"]
        and edge["x0"] <= side["x0"] + _SNAP_POINTS
        and edge["x1"] >= side["x1"] - _SNAP_POINTS
        and edge["top"] <= side["top"] + _SNAP_POINTS
        and edge["bottom"] >= side["bottom"] - _SNAP_POINTS
    )


def _components(edges: Sequence[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """Return the edges by what they touch: the rules of one table are one component."""
    vertical = [edge for edge in edges if edge["orientation"] == "v"]
    horizontal = sorted((edge for edge in edges if edge["orientation"] == "h"), key=lambda edge: edge["top"])
    tops = [edge["top"] for edge in horizontal]
    parent = list(range(len(vertical) + len(horizontal)))

    def root(number: int) -> int:
        while parent[number] != number:
            parent[number] = parent[parent[number]]
            number = parent[number]
        return number

    for number, rule in enumerate(vertical):
        first = bisect.bisect_left(tops, rule["top"] - _SNAP_POINTS)
        last = bisect.bisect_right(tops, rule["bottom"] + _SNAP_POINTS)
        for other in range(first, last):
            crossed = horizontal[other]
            if crossed["x0"] - _SNAP_POINTS <= rule["x0"] <= crossed["x1"] + _SNAP_POINTS:
                parent[root(len(vertical) + other)] = root(number)
    components: dict[int, list[dict[str, Any]]] = {}
    for number, edge in enumerate([*vertical, *horizontal]):
        components.setdefault(root(number), []).append(edge)
    return list(components.values())


def read_tables(
    groups: Sequence[CellGroup], lines: Sequence[Sequence[Glyph]], text_page: Any
) -> tuple[list[PlacedTable], list[list[Glyph]]]:
    """Return the tables, and as lines of glyphs all that stands in no cell of theirs.

    A group in which fewer than two rows hold two filled cells is a frame, not a table: its glyphs
    stay where they are.
    """
    places = _CellFinder(groups)
    contents: dict[int, dict[int, list[list[Glyph]]]] = {}
    for line in lines:
        for place, run in _runs(line, places, range(len(groups))):
            if place is not None:
                contents.setdefault(place[0], {}).setdefault(place[1], []).append(run)
    tables: list[PlacedTable] = []
    kept: set[int] = set()
    for number, group in enumerate(groups):
        table = _read_table(group, contents.get(number, {}), text_page)
        if table is not None:
            tables.append(table)
            kept.add(number)
    rest = [run for line in lines for place, run in _runs(line, places, kept) if place is None]
    return tables, rest


class _CellFinder:
    """Finds the smallest cell around the middle of a glyph."""

    _BAND_POINTS = 12.0

    def __init__(self, groups: Sequence[CellGroup]) -> None:
        self._bands: dict[int, list[tuple[float, int, int, Rectangle]]] = {}
        for number, group in enumerate(groups):
            for index, cell in enumerate(group.cells):
                area = (cell[2] - cell[0]) * (cell[3] - cell[1])
                first, last = int(cell[1] // self._BAND_POINTS), int(cell[3] // self._BAND_POINTS)
                for band in range(first, last + 1):
                    self._bands.setdefault(band, []).append((area, number, index, cell))
        for entries in self._bands.values():
            entries.sort()

    def find(self, glyph: Glyph, among: Container[int]) -> tuple[int, int] | None:
        """Return (group, cell), None when the glyph is in no cell of the groups `among`."""
        x, y = (glyph.x0 + glyph.x1) / 2, (glyph.y0 + glyph.y1) / 2
        for _, number, index, (x0, y0, x1, y1) in self._bands.get(int(y // self._BAND_POINTS), ()):
            if x0 <= x <= x1 and y0 <= y <= y1 and number in among:
                return number, index
        return None


def _runs(
    line: Sequence[Glyph], places: _CellFinder, among: Container[int]
) -> Iterator[tuple[tuple[int, int] | None, list[Glyph]]]:
    """Yield the line in stretches of one place each; spaces go with the glyph before them.

    A word that runs over the border of its cell stays whole: glyphs that touch belong together.
    """
    place: tuple[int, int] | None = None
    former: Glyph | None = None
    run: list[Glyph] = []
    for glyph in line:
        if glyph.text.isspace():
            former = None
        else:
            if former is None or not _touch(former, glyph):
                found = places.find(glyph, among)
                if run and found != place:
                    yield place, run
                    run = []
                place = found
            former = glyph
        run.append(glyph)
    if run:
        yield place, run


def _touch(former: Glyph, glyph: Glyph) -> bool:
    """Return whether two glyphs stand side by side without any gap."""
    size = max(glyph.y1 - glyph.y0, 1.0)
    return (
        -size < glyph.x0 - former.x1 < _TOUCH * size
        and min(glyph.y1, former.y1) - max(glyph.y0, former.y0) > 0.5 * size
    )


def _read_table(
    group: CellGroup, contents: dict[int, list[list[Glyph]]], text_page: Any
) -> PlacedTable | None:
    xs, ys = _borders(group.cells, 0, 2), _borders(group.cells, 1, 3)
    cells: list[Cell] = []
    for index, (x0, y0, x1, y1) in enumerate(group.cells):
        column, row = _nearest(xs, x0), _nearest(ys, y0)
        text = _cell_text(contents.get(index, []), text_page)
        cells.append(
            Cell(
                row,
                column,
                text,
                max(_nearest(ys, y1) - row, 1),
                max(_nearest(xs, x1) - column, 1),
                Box(round(x0, 2), round(y0, 2), round(x1, 2), round(y1, 2)),
            )
        )
    grid = lay_out(cells)
    filled_by_row: dict[int, int] = {}
    for cell in grid.cells:
        if cell.text:
            for row in range(cell.row, cell.row + cell.row_span):
                filled_by_row[row] = filled_by_row.get(row, 0) + 1
    if grid.width < 2 or sum(1 for count in filled_by_row.values() if count > 1) < 2:
        return None
    box = Box(round(xs[0], 2), round(ys[0], 2), round(xs[-1], 2), round(ys[-1], 2))
    return PlacedTable(grid, box, tuple(xs))


def _cell_text(runs: Sequence[Sequence[Glyph]], text_page: Any) -> str:
    """Return the text of a cell, line by line from the top."""
    parts = [make_line(part, text_page) for run in runs for part in split_at_gaps(run)]
    rows = group_rows([part for part in parts if part is not None])
    return join_lines([" ".join(line.text for line in row) for row in rows])


def _borders(cells: Sequence[Rectangle], first: int, second: int) -> list[float]:
    """Return the distinct borders along one axis; those within the snapping distance are one."""
    values = sorted({value for cell in cells for value in (cell[first], cell[second])})
    borders: list[float] = []
    for value in values:
        if not borders or value - borders[-1] > _SNAP_POINTS:
            borders.append(value)
    return borders


def _nearest(borders: Sequence[float], value: float) -> int:
    return min(range(len(borders)), key=lambda number: abs(borders[number] - value))


def _edges(page: Any, to_page: ToPage) -> Iterator[dict[str, Any]]:
    """Yield horizontal and vertical strokes, and the sides of rectangles, in pdfplumber's form."""
    for x0, y0, x1, y1 in _strokes(page, to_page):
        if abs(y1 - y0) <= 1.0 and abs(x1 - x0) >= _MIN_EDGE_POINTS:
            top = (y0 + y1) / 2
            yield _edge("h", min(x0, x1), top, max(x0, x1), top)
        elif abs(x1 - x0) <= 1.0 and abs(y1 - y0) >= _MIN_EDGE_POINTS:
            middle = (x0 + x1) / 2
            yield _edge("v", middle, min(y0, y1), middle, max(y0, y1))


def _edge(orientation: str, x0: float, top: float, x1: float, bottom: float) -> dict[str, Any]:
    return {
        "orientation": orientation,
        "x0": x0,
        "x1": x1,
        "top": top,
        "bottom": bottom,
        "width": x1 - x0,
        "height": bottom - top,
    }


def _strokes(page: Any, to_page: ToPage) -> Iterator[Rectangle]:
    """Yield the straight segments of all paths, forms opened, in page coordinates."""
    budget = _MAX_SEGMENTS
    identity = (1.0, 0.0, 0.0, 1.0, 0.0, 0.0)
    stack: list[tuple[Any, tuple[float, ...], int]] = [
        (pdfium_c.FPDFPage_GetObject(page.raw, number), identity, 0)
        for number in range(max(pdfium_c.FPDFPage_CountObjects(page.raw), 0))
    ]
    while stack and budget > 0:
        budget -= 1
        raw, outer, depth = stack.pop()
        kind = pdfium_c.FPDFPageObj_GetType(raw)
        if kind not in (pdfium_c.FPDF_PAGEOBJ_PATH, pdfium_c.FPDF_PAGEOBJ_FORM):
            continue
        matrix = _concat(_matrix(raw), outer)
        if kind == pdfium_c.FPDF_PAGEOBJ_FORM:
            if depth < _MAX_FORM_DEPTH:
                stack.extend(
                    (pdfium_c.FPDFFormObj_GetObject(raw, number), matrix, depth + 1)
                    for number in range(min(max(pdfium_c.FPDFFormObj_CountObjects(raw), 0), budget))
                )
            continue
        points = _path_points(raw, matrix, to_page)
        budget -= len(points)
        yield from _thin_or_sides(points)


def _path_points(raw: Any, matrix: Sequence[float], to_page: ToPage) -> list[list[tuple[float, float]]]:
    """Return the path's polylines; a curve ends the one it stands in."""
    a, b, c, d, e, f = matrix
    polylines: list[list[tuple[float, float]]] = []
    x, y = ctypes.c_float(), ctypes.c_float()
    for number in range(min(max(pdfium_c.FPDFPath_CountSegments(raw), 0), _MAX_SEGMENTS)):
        segment = pdfium_c.FPDFPath_GetPathSegment(raw, number)
        pdfium_c.FPDFPathSegment_GetPoint(segment, x, y)
        point = to_page(a * x.value + c * y.value + e, b * x.value + d * y.value + f)
        kind = pdfium_c.FPDFPathSegment_GetType(segment)
        if kind == pdfium_c.FPDF_SEGMENT_LINETO and polylines:
            polylines[-1].append(point)
        else:
            polylines.append([point])
        if pdfium_c.FPDFPathSegment_GetClose(segment) and polylines:
            polylines[-1].append(polylines[-1][0])
    return polylines


def _thin_or_sides(polylines: Sequence[Sequence[tuple[float, float]]]) -> Iterator[Rectangle]:
    """Yield a segment per side; a thin filled rectangle, often drawn for a line, is one segment."""
    for points in polylines:
        if len(points) >= 4:
            xs, ys = [x for x, _ in points], [y for _, y in points]
            width, height = max(xs) - min(xs), max(ys) - min(ys)
            if min(width, height) <= 2.0 < max(width, height):
                if height <= width:
                    middle = (min(ys) + max(ys)) / 2
                    yield min(xs), middle, max(xs), middle
                else:
                    middle = (min(xs) + max(xs)) / 2
                    yield middle, min(ys), middle, max(ys)
                continue
        for (xa, ya), (xb, yb) in itertools.pairwise(points):
            yield xa, ya, xb, yb


def _matrix(raw: Any) -> tuple[float, ...]:
    matrix = pdfium_c.FS_MATRIX()
    if not pdfium_c.FPDFPageObj_GetMatrix(raw, ctypes.byref(matrix)):
        return 1.0, 0.0, 0.0, 1.0, 0.0, 0.0
    return matrix.a, matrix.b, matrix.c, matrix.d, matrix.e, matrix.f


def _concat(inner: Sequence[float], outer: Sequence[float]) -> tuple[float, ...]:
    """Return the matrix that applies `inner`, then `outer`."""
    a, b, c, d, e, f = inner
    p, q, r, s, t, u = outer
    return a * p + b * r, a * q + b * s, c * p + d * r, c * q + d * s, e * p + f * r + t, e * q + f * s + u
