"""The order in which people read what stands on a page: column by column, else row by row."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from ingest.lines import Item, PlacedTable, TextLine, group_rows

# An item at least this wide, as a share of its region, may be a title or a picture across columns.
_WIDE = 0.6
_MIN_GUTTER_POINTS = 7.0
# The share of narrow items that may stand across a gutter.
_MAX_ACROSS = 0.08
_MIN_COLUMN_LINES = 3
_MIN_COLUMN_EMS = 9.0
_MIN_FILL = 0.5
_MAX_DEPTH = 12


def in_reading_order(items: Sequence[Item]) -> list[Item]:
    """Return the items in reading order (recursive cuts at gutters, after Nagy and Seth 1984)."""
    lines = [item for item in items if isinstance(item, TextLine)]
    if lines and sum(line.is_vertical for line in lines) * 2 > len(lines):
        return sorted(items, key=lambda item: (-item.box.x1, item.box.y0))
    return _order(list(items), depth=0)


def _order(items: list[Item], *, depth: int) -> list[Item]:
    if len(items) < 2 or depth > _MAX_DEPTH:
        return _by_rows(items)
    gutter = _find_gutter(items)
    if gutter is None:
        return _by_rows(items)
    left = [item for item in items if item.box.x1 <= gutter]
    right = [item for item in items if item.box.x0 >= gutter]
    across = sorted(
        (item for item in items if item.box.x0 < gutter < item.box.x1), key=lambda item: item.box.y0
    )
    result: list[Item] = []
    for separator in [*across, None]:
        limit = float("inf") if separator is None else (separator.box.y0 + separator.box.y1) / 2
        for column in (left, right):
            band = [item for item in column if (item.box.y0 + item.box.y1) / 2 < limit]
            column[:] = [item for item in column if (item.box.y0 + item.box.y1) / 2 >= limit]
            result.extend(_order(band, depth=depth + 1))
        if separator is not None:
            result.append(separator)
    return result


def _by_rows(items: Sequence[Item]) -> list[Item]:
    """Return the items from top to bottom, those of one baseline from left to right."""
    rows = group_rows([item for item in items if isinstance(item, TextLine)])
    placed: list[tuple[float, float, Item]] = []
    for row in rows:
        top = min(line.box.y0 for line in row)
        placed.extend((top, line.box.x0, line) for line in row)
    placed.extend((item.box.y0, item.box.x0, item) for item in items if isinstance(item, PlacedTable))
    return [item for _, _, item in sorted(placed, key=lambda entry: entry[:2])]


def _find_gutter(items: Sequence[Item]) -> float | None:
    """Return the x of the best gap between two columns of text, None if there is none.

    A gap is a stretch of x that hardly any narrow item covers; the few that do (a centred title, a page
    number) stand across the columns.
    """
    left_edge = min(item.box.x0 for item in items)
    region = max(item.box.x1 for item in items) - left_edge
    narrow = [item for item in items if item.box.x1 - item.box.x0 < _WIDE * region]
    if len(narrow) < 2 * _MIN_COLUMN_LINES:
        return None
    allowed = max(1, int(len(narrow) * _MAX_ACROSS))
    best: tuple[float, float] | None = None
    for start, end in _sparse_stretches(narrow, allowed):
        if end - start < _MIN_GUTTER_POINTS or (best is not None and end - start <= best[0]):
            continue
        middle = (start + end) / 2
        left = [item for item in narrow if item.box.x1 <= middle]
        right = [item for item in narrow if item.box.x0 >= middle]
        if _is_column(left, right) and _is_column(right, left):
            best = end - start, middle
    return None if best is None else best[1]


def _sparse_stretches(items: Sequence[Item], allowed: int) -> list[tuple[float, float]]:
    """Return the inner stretches of x that at most `allowed` items cover."""
    events = sorted([(item.box.x0, 1) for item in items] + [(item.box.x1, -1) for item in items])
    stretches: list[tuple[float, float]] = []
    covering, begun, start = 0, 0, 0.0
    for number, (x, change) in enumerate(events):
        before = covering
        covering += change
        begun += change > 0
        if before > allowed >= covering:
            start = x
        elif before <= allowed < covering and begun > allowed + 1 and number:
            stretches.append((start, x))
    return [stretch for stretch in stretches if stretch[0] > 0.0]


def _is_column(group: Sequence[Item], other: Sequence[Item]) -> bool:
    """Return whether the group is a column of running text and not one column of a table."""
    if any(isinstance(item, PlacedTable) for item in group):
        return True
    lines = [item for item in group if isinstance(item, TextLine)]
    if len(lines) < _MIN_COLUMN_LINES:
        return False
    size = statistics.median(line.size for line in lines)
    width = max(line.box.x1 for line in lines) - min(line.box.x0 for line in lines)
    if width < _MIN_COLUMN_EMS * size:
        return False
    fill = statistics.median(line.box.x1 - line.box.x0 for line in lines) / width
    return fill >= _MIN_FILL or _shared_baselines(lines, other) < 0.4


def _shared_baselines(lines: Sequence[TextLine], other: Sequence[Item]) -> float:
    """Return the share of lines that have a line of the other group beside them, 0..1."""
    tops = sorted(item.box.y0 for item in other)
    tolerance = 0.3 * statistics.median(line.size for line in lines)
    shared = sum(1 for line in lines if any(abs(top - line.box.y0) <= tolerance for top in tops))
    return shared / len(lines)
