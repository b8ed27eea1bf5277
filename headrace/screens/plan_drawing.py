"""A partition plan as SVG: each core a bar of bytes and a bar of load, with a colour for each table. Deterministic text."""

from __future__ import annotations

from collections import defaultdict
from html import escape

from headrace.screens.drawing_theme import dark_style
from headrace.terminal.units import brief_text, bytes_text
from trainer.planning.plan import PartitionPlan
from trainer.planning.plan_report import PlanReport

#: The cores that are drawn; of more, the fullest ones and the emptiest ones are.
_MOST_CORES = 64
_WIDTH, _LABEL, _GAP, _BAR, _ROW, _TOP = 1040, 70, 24, 12, 34, 74
_COLOURED = 12
_PHASES = (("lookup", "#2f6fb3"), ("exchange", "#e0a030"), ("update", "#2e8b62"))


def plan_svg(plan: PartitionPlan, report: PlanReport) -> str:
    """The drawing; the largest tables have a colour each, the others are grey."""
    sizes = _bytes_by_core(plan, report)
    shown = _shown_cores(report)
    totals: dict[str, float] = defaultdict(float)
    for of_core in sizes.values():
        for name, size in of_core.items():
            totals[name] += size
    largest = sorted(totals, key=lambda name: (-totals[name], name))[:_COLOURED]
    # neighbours in size differ in lightness too
    colours = {
        name: f"hsl({round(360 * k / max(len(largest), 1))} 62% {44 + 18 * (k % 2)}%)" for k, name in enumerate(largest)
    }
    height = _TOP + _ROW * len(shown) + 20 * (-(-(len(largest) + 1) // 4)) + 24
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" height="{height}" '
        'class="headrace-plan" font-family="monospace" font-size="12" role="img">',
        f"<title>Partition plan of {len(plan.tables)} tables on {plan.cores} cores</title>",
        dark_style("headrace-plan", {"rect:not(.ground)": "filter: brightness(1.4)"}),
        f'<rect class="ground" width="{_WIDTH}" height="{height}" fill="#ffffff"/>',
        f'<text x="12" y="24" font-size="15" fill="#111">{len(plan.tables)} tables on {plan.cores} cores, '
        f"{escape(report.topology)}: load imbalance {report.imbalance:.3f}, {brief_text(report.step_secs)} a step</text>",
    ]
    half = (_WIDTH - _LABEL - 2 * _GAP) // 2
    most_bytes = max((one.size_bytes for one in report.cores), default=0) or 1
    most_secs = max((one.secs for one in report.cores), default=0.0) or 1.0
    parts.append(_text(_LABEL, 58, f"bytes of tables, up to {bytes_text(most_bytes)}"))
    parts.append(_text(_LABEL + half + _GAP, 58, f"seconds of a step, up to {brief_text(most_secs)}"))
    for k, (phase, colour) in enumerate(_PHASES):
        at = _LABEL + half + _GAP + 252 + 76 * k
        parts += [_bar(at, 48, 8, colour, phase), _text(at + 12, 58, phase)]
    for k, core in enumerate(shown):
        y = _TOP + _ROW * k
        parts.append(_text(12, y + _BAR, f"core {core}"))
        x = float(_LABEL)
        of_core = sizes.get(core, {})
        for name in sorted(
            of_core, key=lambda name: (name not in colours, largest.index(name) if name in colours else 0, name)
        ):
            width = half * of_core[name] / most_bytes
            parts.append(
                _bar(x, y, width, colours.get(name, "#b5b9c2"), f"{name}: {bytes_text(of_core[name])} on core {core}")
            )
            x += width
        x = float(_LABEL + half + _GAP)
        load = report.cores[core]
        for phase, colour in _PHASES:
            secs = getattr(load, f"{phase}_secs")
            parts.append(_bar(x, y, half * secs / most_secs, colour, f"{phase}: {brief_text(secs)} on core {core}"))
            x += half * secs / most_secs
    parts += _legend(colours, len(totals) > len(largest), _TOP + _ROW * len(shown) + 12)
    return "\n".join([*parts, "</svg>"])


def _shown_cores(report: PlanReport) -> list[int]:
    cores = range(len(report.cores))
    if len(cores) <= _MOST_CORES:
        return list(cores)
    order = sorted(cores, key=lambda core: (-report.cores[core].secs, core))
    return sorted([*order[: _MOST_CORES // 2], *order[-_MOST_CORES // 2 :]])


def _bytes_by_core(plan: PartitionPlan, report: PlanReport) -> dict[int, dict[str, float]]:
    """The bytes of each table on each core: its share of the columns of a row with its slots."""
    found: dict[int, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    row_bytes = {one.name: one.row_bytes for one in report.tables}
    for table in plan.tables:
        for shard in table.shards():
            found[shard.core][table.name] += (
                shard.rows * row_bytes.get(table.name, 0) * shard.slice_.columns / table.columns
            )
    return found


def _legend(colours: dict[str, str], has_others: bool, top: int) -> list[str]:
    entries = [*colours.items(), *([("other tables", "#b5b9c2")] if has_others else [])]
    found = []
    for k, (name, colour) in enumerate(entries):
        x, y = 12 + 256 * (k % 4), top + 20 * (k // 4)
        found += [_bar(x, y, 12, colour, name), _text(x + 18, y + 11, name if len(name) <= 28 else name[:27] + "…")]
    return found


def _bar(x: float, y: float, width: float, colour: str, title: str) -> str:
    return f'<rect x="{x:.1f}" y="{y}" width="{max(width, 0.0):.1f}" height="{_BAR}" fill="{colour}"><title>{escape(title)}</title></rect>'


def _text(x: float, y: float, text: str) -> str:
    return f'<text x="{x}" y="{y}" fill="#333">{escape(text)}</text>'
