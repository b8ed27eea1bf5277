from __future__ import annotations

from itertools import pairwise
from xml.etree import ElementTree

import pytest

from benchmarks.support.line_chart import Curve, line_chart

SVG = "{http://www.w3.org/2000/svg}"


def test_a_chart_is_a_document_with_a_line_and_a_name_for_each_curve() -> None:
    curves = [Curve("all & more", "#b3541e", [1.0, 2.5, 6.2]), Curve("none", "#5b6f8f", [3.0, 3.0, 3.0])]
    chart = ElementTree.fromstring(line_chart("Costs <per year>", "price", "seconds", [-3.0, 0.0, 2.0], curves))
    texts = ["".join(one.itertext()) for one in chart.iter(f"{SVG}text")]
    assert {"Costs <per year>", "price", "seconds", "all & more", "none"} <= set(texts)
    assert {"0.001", "1", "100", "10", "100,000", "1 M", "10 M"} <= set(texts), "a tick at each power of ten"
    lines = [one.attrib["points"].split() for one in chart.iter(f"{SVG}polyline")]
    assert [len(points) for points in lines] == [3, 3]
    places = [[tuple(map(float, point.split(","))) for point in points] for points in lines]
    width, height = map(float, chart.attrib["viewBox"].split()[2:])
    assert all(0 < x < width and 0 < y < height for points in places for x, y in points)
    rising, level = places
    assert rising[0][1] > rising[1][1] > rising[2][1], "larger values are higher"
    assert len({y for _, y in level}) == 1
    assert rising[1][0] - rising[0][0] == pytest.approx(1.5 * (rising[2][0] - rising[1][0]), abs=0.2)


def test_names_of_curves_that_end_together_are_a_line_apart() -> None:
    curves = [Curve(name, "#000000", [1.0, 2.0]) for name in ("first", "second", "third")]
    chart = ElementTree.fromstring(line_chart("t", "x", "y", [0.0, 1.0], curves))
    heights = [float(one.attrib["y"]) for one in chart.iter(f"{SVG}text") if one.text in ("first", "second", "third")]
    assert [after - before for before, after in pairwise(heights)] == [16.0, 16.0]
