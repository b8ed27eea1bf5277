"""The screen of ``headrace runs plot``: learning curves of some runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rich.console import Group, RenderableType
from rich.style import Style
from rich.text import Text

from headrace.runs.curves import Axis, Curve
from headrace.runs.plot_range import range_of
from headrace.runs.ticks import tick_text, ticks
from headrace.screens.curve_drawing import curves_svg
from headrace.screens.score_figures import figure_text
from headrace.screens.shown import Shown
from headrace.terminal.line_plot import STYLES, Line, line_plot
from headrace.terminal.printable import printable

_WIDTH, _HEIGHT, _LABEL = 72, 16, 10


@dataclass(frozen=True, slots=True)
class CurveRow:
    """What a curve shows, as texts.

    Attributes:
        run: its name.
        points: their number.
        newest, least, greatest: values that are drawn; "-" without points.
        newest_at, least_at, greatest_at: where they are, in the unit of the axis.
    """

    run: str
    points: int
    newest: str = "-"
    newest_at: str = "-"
    least: str = "-"
    least_at: str = "-"
    greatest: str = "-"
    greatest_at: str = "-"


@dataclass(frozen=True, slots=True, eq=False)
class CurvesScreen(Shown):
    """A figure of some runs.

    Attributes:
        metric: its name.
        axis: what it is drawn over.
        smoothing: of the curves.
        curves: in the order in which the runs were named.
        file: the SVG file that was written; "" without.
    """

    metric: str
    axis: Axis
    smoothing: float
    curves: tuple[Curve, ...]
    file: str = ""

    def json_fields(self) -> dict[str, Any]:
        """The points of each curve; ``smoothed`` are the values that are drawn."""
        return {
            "metric": self.metric,
            "x": self.axis,
            "smoothing": self.smoothing,
            "svg": self.file,
            "curves": [
                {"run": one.run, "last": one.last, "x": one.x.tolist(), "y": one.y.tolist(), "smoothed": one.smooth.tolist()}
                for one in self.curves
            ],
        }  # fmt: skip

    @property
    def axis_name(self) -> str:
        """What is drawn from left to right, with its unit."""
        return range_of(self.curves, self.axis).name

    def rows(self) -> tuple[CurveRow, ...]:
        """The curves as a table."""
        unit = range_of(self.curves, self.axis).unit
        return tuple(_curve_row(one, unit) for one in self.curves)

    def svg(self) -> str:
        """The drawing as an SVG document."""
        return curves_svg(self.curves, self.metric, self.axis, self.smoothing)

    def _repr_html_(self) -> str:
        return self.svg()

    def render(self) -> RenderableType:
        """The lines, the axes, and a line for each run."""
        shown = range_of(self.curves, self.axis)
        lines = [Line((one.x / shown.unit).tolist(), one.smooth.tolist()) for one in self.curves]
        rows = line_plot(lines, _WIDTH, _HEIGHT, shown.low, shown.high, shown.right)
        levels = ticks(shown.low, shown.high, 6)
        marks = {self._row(at, shown.low, shown.high): tick_text(at, _apart(levels)) for at in levels}
        drawn = [Text.assemble(f"{marks.get(number, ''):>{_LABEL}} │", row) for number, row in enumerate(rows)]
        smoothed = f", smoothing {self.smoothing:g}" if self.smoothing else ""
        parts: list[RenderableType] = [
            Text(f"{self.metric} by {shown.name}{smoothed}", style="bold"),
            *drawn,
            f"{'':>{_LABEL}} └{'─' * _WIDTH}",
            self._places(shown.right),
        ]
        parts += [
            Text.assemble((" ━━ ", Style(color=STYLES[k % len(STYLES)])), f"{figure_text(one.last):>8}  {printable(one.run)}")
            for k, one in enumerate(self.curves)
        ]  # fmt: skip
        if self.file:
            parts += [f"written: {self.file}"]
        return Group(*parts)

    def _row(self, at: float, low: float, high: float) -> int:
        """The row of a level."""
        return min(_HEIGHT - 1, max(0, round((1 - (at - low) / (high - low)) * (_HEIGHT - 1))))

    def _places(self, right: float) -> str:
        """The numbers below the axis."""
        line = [" "] * (_WIDTH + _LABEL + 12)
        places = ticks(0.0, right, 7)
        for at in places:
            text = tick_text(at, _apart(places))
            start = _LABEL + 2 + round(at / right * _WIDTH) - len(text) // 2
            line[start : start + len(text)] = text
        return "".join(line).rstrip()


def _curve_row(curve: Curve, unit: float) -> CurveRow:
    values, places = curve.smooth.tolist(), (curve.x / unit).tolist()
    if not values:
        return CurveRow(curve.run, 0)
    at = (len(values) - 1, min(range(len(values)), key=values.__getitem__), max(range(len(values)), key=values.__getitem__))  # fmt: skip
    texts = (text for k in at for text in (figure_text(values[k]), _place_text(places[k])))
    return CurveRow(curve.run, len(values), *texts)


def _place_text(value: float) -> str:
    return f"{value:,.0f}" if value == round(value) or value >= 1000 else f"{value:.3g}"


def _apart(places: list[float]) -> float:
    return places[1] - places[0] if len(places) > 1 else 0.0
