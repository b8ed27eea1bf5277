"""Curves of importance as SVG: for each pruned table the share of importance by the share of its seen rows. Deterministic text."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from trainer.planning.kept_importance import KeptImportance

_WIDTH, _HEIGHT, _LEFT, _TOP, _SIZE = 860, 520, 64, 56, 400
_MOST_TABLES = 12


def importance_svg(tables: Sequence[KeptImportance]) -> str:
    """The drawing of the tables with the most seen rows; a dot marks where a table's kept rows end."""
    shown = sorted((one for one in tables if one.seen_rows), key=lambda one: (-one.seen_rows, one.name))[:_MOST_TABLES]
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" width="{_WIDTH}" height="{_HEIGHT}" '
        'font-family="monospace" font-size="12" role="img">',
        f"<title>Importance of the rows of {len(shown)} tables</title>",
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="#ffffff"/>',
        _text(_LEFT, 26, "share of importance by share of the seen rows, the most important ones first", size=15),
        f'<rect x="{_LEFT}" y="{_TOP}" width="{_SIZE}" height="{_SIZE}" fill="none" stroke="#888"/>',
    ]
    for tick in range(0, 101, 25):
        at = _SIZE * tick / 100
        parts += [
            _text(_LEFT + at - 10, _TOP + _SIZE + 18, f"{tick} %"),
            _text(16, _TOP + _SIZE - at + 4, f"{tick:>3} %"),
        ]
        if tick not in (0, 100):
            parts += [
                _line(_LEFT + at, _TOP, _LEFT + at, _TOP + _SIZE),
                _line(_LEFT, _TOP + at, _LEFT + _SIZE, _TOP + at),
            ]
    for k, table in enumerate(shown):
        colour = f"hsl({round(360 * k / len(shown))} 62% 45%)"
        parts += _curve(table, colour)
        y = _TOP + 14 + 30 * k
        kept = min(table.kept_rows / table.seen_rows, 1.0)
        parts += [
            f'<rect x="{_LEFT + _SIZE + 28}" y="{y - 10}" width="12" height="12" fill="{colour}"/>',
            _text(_LEFT + _SIZE + 48, y, table.name if len(table.name) <= 34 else table.name[:33] + "…"),
            _text(
                _LEFT + _SIZE + 48,
                y + 14,
                f"kept {kept:.0%} of {table.seen_rows:,} rows, {table.importance_share:.0%} of importance",
                size=11,
            ),
        ]
    return "\n".join([*parts, "</svg>"])


def _curve(table: KeptImportance, colour: str) -> list[str]:
    last = len(table.curve) - 1
    points = " ".join(
        f"{_LEFT + _SIZE * k / last:.1f},{_TOP + _SIZE * (1 - share):.1f}" for k, share in enumerate(table.curve)
    )
    x, y = _LEFT + _SIZE * min(table.kept_rows / table.seen_rows, 1.0), _TOP + _SIZE * (1 - table.importance_share)
    name = escape(table.name)
    return [
        f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"><title>{name}</title></polyline>',
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="5" fill="{colour}"><title>{name}: {table.kept_rows:,} rows are kept</title></circle>',
    ]


def _line(x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="#e4e4e4"/>'


def _text(x: float, y: float, text: str, *, size: int = 12) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" fill="#333">{escape(text)}</text>'
