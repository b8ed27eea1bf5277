"""Drawings of curves: valid SVG with escaped names, and lines inside the terminal."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.runs.curves import Curve, smoothed
from headrace.screens.curve_drawing import MOST_CURVES
from headrace.screens.curves import CurvesScreen
from headrace.terminal.line_plot import Line, line_plot
from headrace.terminal.output import document, plain_text
from headrace.terminal.printable import printable
from tests.support.examples import scaled

SVG = "{http://www.w3.org/2000/svg}"


def curve(name: str, *values: float, smoothing: float = 0.0) -> Curve:
    y = np.array(values)
    return Curve(name, np.arange(1.0, len(y) + 1) * 16, y, smoothed(y, smoothing))


def screen(*curves: Curve, smoothing: float = 0.0) -> CurvesScreen:
    return CurvesScreen("normalized_entropy", "step", smoothing, curves)


def test_a_drawing_has_a_line_and_a_name_for_each_run():
    found = screen(curve("runs/a", 1.2, 1.0, 0.9, smoothing=0.5), curve("runs/b", 1.1, 0.95), smoothing=0.5)
    root = ElementTree.fromstring(found.svg())
    lines = root.findall(f"{SVG}g/{SVG}path")
    assert [one.findtext(f"{SVG}title") for one in lines] == [None, None, "runs/a", "runs/b"]
    texts = [one.text for one in root.iter(f"{SVG}text")]
    assert texts[0] == "normalized_entropy by optimizer steps, smoothing 0.5"
    assert {"runs/a", "runs/b", "0.9714", "0.9500"} <= set(texts)
    assert found.svg() == found._repr_html_()


@pytest.mark.parametrize("name", ["<script>alert(1)</script>", "a&b", '"x"', "ﷺ" * 200, "\u202edlrm", "\x01\udcff"])
def test_names_are_escaped(name):
    root = ElementTree.fromstring(screen(curve(name, 1.0, 2.0)).svg())
    assert not list(root.iter(f"{SVG}script"))
    shown = printable(name)
    assert any(text.text == shown or text.text == "…" + shown[-59:] for text in root.iter(f"{SVG}text"))


@given(st.lists(st.lists(st.floats(-1e9, 1e9), max_size=12), min_size=1, max_size=9))
@settings(max_examples=scaled(60))
def test_any_curves_can_be_drawn(values):
    found = screen(*(curve(f"r{k}", *one) for k, one in enumerate(values)))
    ElementTree.fromstring(found.svg())
    text = plain_text(found)
    assert all(f"r{k}" in text for k in range(len(values)))
    assert document(found)["curves"][0]["y"] == values[0]


def test_no_two_lines_have_the_colour_and_the_dashes_in_common():
    root = ElementTree.fromstring(screen(*(curve(f"r{k}", 1.0, 2.0) for k in range(MOST_CURVES))).svg())
    looks = [(one.get("stroke"), one.get("stroke-dasharray")) for one in root.findall(f"{SVG}g/{SVG}path")]
    assert len(set(looks)) == len(looks) == MOST_CURVES
    assert all(one[1] != other[1] for one, other in pairwise(looks)), "neighbours differ by more than their colours"
    assert {one.get("class") for one in root.findall(f"{SVG}g/{SVG}path")} == {f"c{k}" for k in range(7)}


def test_a_line_of_the_terminal():
    rows = line_plot([Line([0.0, 10.0], [0.0, 1.0])], 4, 2, 0.0, 1.0, 10.0)
    assert [row.plain for row in rows] == ["  ⡠⠊", "⡠⠊  "]


@given(
    st.lists(st.tuples(st.floats(0, 10), st.floats(-5, 5)), max_size=30),
    st.integers(1, 30),
    st.integers(1, 10),
)
@settings(max_examples=scaled(100))
def test_lines_stay_inside(points, width, height):
    line = Line([x for x, _ in sorted(points)], [y for _, y in sorted(points)])
    rows = line_plot([line, line], width, height, -1.0, 1.0, 10.0)
    assert [len(row.plain) for row in rows] == [width] * height
    assert any(row.plain.strip() for row in rows) == bool(points)
