"""Towers as SVG: the features as points of the plane, named, with a colour for each tower. Deterministic text."""

from __future__ import annotations

from html import escape

from headrace.screens.drawing_theme import dark_style
from trainer.planning.towers.tower_plan import TowerPlan

_WIDTH, _HEIGHT, _EDGE, _TOP = 1040, 720, 40, 64
#: A name is as high as this, and as wide as this for each letter.
_LINE, _LETTER = 14, 6.7
_MOST_LETTERS = 28
_LEGEND_COLUMNS = 4


def towers_svg(plan: TowerPlan) -> str:
    """The drawing of towers with points."""
    owner = plan.tower_of()
    colours = [_colour(number, len(plan.towers)) for number in range(len(plan.towers))]
    places = _placed(plan.points)
    labels = _labels([one.name for one in plan.features], places)
    legend_lines = -(-len(plan.towers) // _LEGEND_COLUMNS)
    height = _HEIGHT + 20 * legend_lines + 16
    meaning = (
        "features that interact are far apart" if plan.strategy == "diverse" else "features that interact are near"
    )
    title = f"{len(plan.towers)} towers of {len(plan.features)} features, {plan.strategy}: {meaning}"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" height="{height}" '
        'class="headrace-towers" font-family="monospace" font-size="11" role="img">',
        f"<title>{escape(title)}</title>",
        dark_style(
            "headrace-towers", {"rect:not(.ground)": "filter: brightness(1.4)", "circle": "filter: brightness(1.4)"}
        ),
        f'<rect class="ground" width="{_WIDTH}" height="{height}" fill="#ffffff"/>',
        f'<text x="12" y="24" font-size="15" fill="#111">{escape(title)}</text>',
        f'<text x="12" y="44" fill="#666">{escape(plan.source)}</text>',
    ]
    for number, tower in enumerate(plan.towers):
        members = [place for place, one in zip(places, plan.features, strict=True) if one.name in set(tower)]
        x, y = (sum(values) / len(members) for values in zip(*members, strict=True))
        parts += [
            f'<line x1="{x:.1f}" y1="{y:.1f}" x2="{at[0]:.1f}" y2="{at[1]:.1f}" stroke="{colours[number]}" stroke-opacity="0.35"/>'
            for at in members
        ]
    for one, (x, y), (label_x, label_y, anchor) in zip(plan.features, places, labels, strict=True):
        number = owner[one.name]
        parts.append(
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="5" fill="{colours[number]}"><title>{escape(one.name)}: tower {number}</title></circle>'
        )
        parts.append(
            f'<text x="{label_x:.1f}" y="{label_y:.1f}" text-anchor="{anchor}" fill="#333">{escape(_short(one.name))}</text>'
        )
    for number, tower in enumerate(plan.towers):
        x, y = (
            12 + (_WIDTH - 24) // _LEGEND_COLUMNS * (number % _LEGEND_COLUMNS),
            _HEIGHT + 8 + 20 * (number // _LEGEND_COLUMNS),
        )
        parts.append(f'<rect x="{x}" y="{y}" width="12" height="12" fill="{colours[number]}"/>')
        count = f"{len(tower)} feature{'' if len(tower) == 1 else 's'}"
        parts.append(f'<text x="{x + 18}" y="{y + 10}" fill="#333">tower {number}: {count}</text>')
    return "\n".join([*parts, "</svg>"])


def _colour(number: int, towers: int) -> str:
    """Hues at equal distances; neighbours in number differ in lightness too."""
    return f"hsl({round(360 * number / towers)} 62% {42 + 14 * (number % 2)}%)"


def _placed(points: tuple[tuple[float, float], ...]) -> list[tuple[float, float]]:
    """Points in the picture, both axes by one scale."""
    (left, right), (low, high) = ((min(values), max(values)) for values in zip(*points, strict=True))
    across, up = _WIDTH - 2 * _EDGE, _HEIGHT - _TOP - 2 * _EDGE
    scale = min(across / max(right - left, 1e-9), up / max(high - low, 1e-9))
    middle = ((left + right) / 2, (low + high) / 2)
    return [(_WIDTH / 2 + scale * (x - middle[0]), _TOP + _EDGE + up / 2 - scale * (y - middle[1])) for x, y in points]


def _labels(names: list[str], places: list[tuple[float, float]]) -> list[tuple[float, float, str]]:
    """A place for each name beside its point, the first of four that no other name or point covers; else the right side."""
    taken = [(x - 6, y - 6, x + 6, y + 6) for x, y in places]
    found = []
    for name, (x, y) in zip(names, places, strict=True):
        width = _LETTER * len(_short(name))
        own = (x - 6, y - 6, x + 6, y + 6)
        sides = [
            (x + 8, y + 4, "start", x + 8),
            (x - 8, y + 4, "end", x - 8 - width),
            (x, y - 9, "middle", x - width / 2),
            (x, y + 18, "middle", x - width / 2),
        ]
        boxes = [(at_left, at_y - _LINE + 3, at_left + width, at_y + 3) for _, at_y, _, at_left in sides]
        inside = [box[0] >= 0 and box[2] <= _WIDTH for box in boxes]
        free = [
            place
            for place, box in enumerate(boxes)
            if inside[place] and not any(_overlap(box, other) for other in taken if other != own)
        ]
        chosen = next(iter(free), next((place for place, fits in enumerate(inside) if fits), 0))
        taken.append(boxes[chosen])
        found.append(sides[chosen][:3])
    return found


def _overlap(one: tuple[float, ...], other: tuple[float, ...]) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


def _short(name: str) -> str:
    return name if len(name) <= _MOST_LETTERS else name[: _MOST_LETTERS - 1] + "…"
