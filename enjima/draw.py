"""A query drawn as SVG: a box per operator, a schema on every edge."""

from collections.abc import Sequence
from html import escape

from enjima.operators import Operator

__all__ = ["svg"]

BOX_WIDTH, BOX_HEIGHT, GAP_X, GAP_Y, TOP = 190, 54, 130, 26, 24


def svg(operators: Sequence[Operator], edges: Sequence[tuple[int, int]]) -> str:
    """Left to right by distance from the source, one row per branch."""
    column, row = _places(len(operators), edges)
    width = (max(column, default=0) + 1) * (BOX_WIDTH + GAP_X) - GAP_X + 10
    height = (max(row, default=0) + 1) * (BOX_HEIGHT + GAP_Y) + TOP
    size = f'width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
    style = 'font-family="sans-serif" font-size="12" style="max-width: 100%; height: auto"'
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" {size} {style} role="img">']
    for upstream, downstream in edges:
        parts.append(
            _edge(operators[upstream], _corner(column, row, upstream), _corner(column, row, downstream))
        )
    for index, operator in enumerate(operators):
        parts.append(_box(operator, *_corner(column, row, index)))
    return "".join([*parts, "</svg>"])


def _places(count: int, edges: Sequence[tuple[int, int]]) -> tuple[list[int], list[int]]:
    """Behind the furthest of its inputs; in the row of the first it continues, or in one of its own."""
    column, row = [0] * count, [-1] * count
    taken: set[tuple[int, int]] = set()
    continued: set[int] = set()
    next_row = 0
    for index in range(count):
        inputs = [up for up, downstream in edges if downstream == index]
        column[index] = 1 + max((column[up] for up in inputs), default=-1)
        free = (up for up in inputs if up not in continued and (row[up], column[index]) not in taken)
        first = next(free, None)
        if first is None:
            row[index] = next_row
            next_row += 1
        else:
            continued.add(first)
            row[index] = row[first]
        taken |= {(row[index], reached) for reached in range(column[index] + 1)}
    return column, row


def _corner(column: list[int], row: list[int], index: int) -> tuple[int, int]:
    return column[index] * (BOX_WIDTH + GAP_X) + 5, row[index] * (BOX_HEIGHT + GAP_Y) + TOP


def _box(operator: Operator, x: int, y: int) -> str:
    name, what = escape(_cut(operator.name, 24)), escape(_cut(operator.describe(), 28))
    frame = f'x="{x}" y="{y}" width="{BOX_WIDTH}" height="{BOX_HEIGHT}" rx="6"'
    return (
        f"<g><title>{escape(operator.describe())}</title>"
        f'<rect {frame} fill="#eef3fb" stroke="#4c72b0"/>'
        f'<text x="{x + 10}" y="{y + 22}" font-weight="bold" fill="#222">{name}</text>'
        f'<text x="{x + 10}" y="{y + 41}" fill="#555" font-size="11">{what}</text></g>'
    )


def _edge(operator: Operator, start: tuple[int, int], end: tuple[int, int]) -> str:
    x1, y1 = start[0] + BOX_WIDTH, start[1] + BOX_HEIGHT // 2
    x2, y2 = end[0], end[1] + BOX_HEIGHT // 2
    middle = x1 + 12
    schema = operator.output
    labels = [f"{name}: {schema.dtype[name].str.lstrip('<|=')}" for name in schema.names] if schema else []
    shown = labels if len(labels) <= 4 else [*labels[:3], f"… {len(labels) - 3} more"]
    top = y2 - 6 - 11 * (len(shown) - 1)
    text = "".join(
        f'<text x="{x1 + 18}" y="{top + 11 * i}" fill="#777" font-size="10">{escape(_cut(label, 19))}</text>'
        for i, label in enumerate(shown)
    )
    title = f"<title>{escape(str(schema))}</title>"
    path = f'<path d="M{x1} {y1} H{middle} V{y2} H{x2 - 7}" fill="none" stroke="#4c72b0"/>'
    arrow = f'<path d="M{x2} {y2} l-8 -4 v8 z" fill="#4c72b0"/>'
    return f"<g>{title}{path}{arrow}{text}</g>"


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else text[: length - 1] + "…"
