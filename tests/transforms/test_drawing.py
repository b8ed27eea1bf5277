"""Graphs as SVG: the required content, and equal output for equal graphs."""

from __future__ import annotations

import itertools
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headrace as hr
from tests.support.examples import scaled
from transforms.expressions.expression import Expr
from transforms.graphs.graph import Artifact
from transforms.render import graph_svg, model_svg
from transforms.render.layout import Box, Edge, lay_out
from transforms.render.svg import NODES_MAX
from transforms.types import DType, Vector

GOLDEN = Path(__file__).parent / "goldens" / "overlap.svg"
_SVG = "{http://www.w3.org/2000/svg}"


def overlap() -> Expr:
    query, title, category = hr.text("query"), hr.text("title"), hr.text("category")
    return hr.concat(query.unigrams() & title.unigrams(), category.unigrams()).hash_buckets(1_000_000)


def model_of(**inputs: Expr) -> hr.Model:
    model = hr.Model("drawn", client="search", label="clicked")
    for name, expression in inputs.items():
        model.input(name, expression)
    return model


def boxes_of(svg: str, kind: str) -> list[list[str]]:
    """The lines of text in each box of a kind."""
    groups = ElementTree.fromstring(svg).findall(f"{_SVG}g")
    return [
        [text.text or "" for text in group.findall(f"{_SVG}text")] for group in groups if group.get("class") == kind
    ]


def test_drawing_of_the_papers_example_is_the_recorded_one() -> None:
    drawn = graph_svg(overlap().node) + "\n"
    assert drawn == GOLDEN.read_text(encoding="utf-8"), "look at the new drawing; if it is better, record it"


@pytest.mark.medium
def test_drawing_is_the_same_in_another_process() -> None:
    script = "from tests.transforms.test_drawing import *; print(graph_svg(overlap().node))"
    for seed in ("1", "2"):
        other = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True,
                               env={"PYTHONHASHSEED": seed, "PYTHONPATH": str(Path(__file__).parents[2])})  # fmt: skip
        assert other.stdout == GOLDEN.read_text(encoding="utf-8")


def test_every_kind_of_node_is_drawn_with_its_type_and_its_own_shape() -> None:
    terms = Expr(Artifact(Vector(DType.STRING, 3), "ab" * 32))
    svg = graph_svg(hr.if_else(hr.boolean("paid"), "yes", hr.text("why").lower()).node)
    assert boxes_of(svg, "column") == [["paid", "Dense[bool]"], ["why", "Dense[string]"]]
    assert boxes_of(svg, "literal") == [["'yes'", "Dense[string]"]]
    assert boxes_of(svg, "operation") == [["lower", "Dense[string]"], ["if_else", "Dense[string]"]]
    assert "<polygon" in graph_svg(terms.node)
    assert boxes_of(graph_svg(terms.node), "artifact") == [["abababababab", "Vector[string, 3]"]]


def test_differences_of_parameters_and_arguments_are_reported() -> None:
    svg = graph_svg((hr.float32("a") - hr.float32("b").clip(0, 1)).node)
    assert ["clip", "high=1.0, low=0.0", "Dense[float32]"] in boxes_of(svg, "operation")
    assert "<title>clip → subtract, argument 2</title>" in svg


def test_model_is_one_drawing_that_shares_nodes_and_names_inputs() -> None:
    tokens = hr.text("query").unigrams()
    model = model_of(
        words=tokens.hash_buckets(10), pairs=tokens.ngrams(2).hash_buckets(10), same=tokens.hash_buckets(10)
    )
    svg = model._repr_html_()
    svg = svg[svg.index("<svg") : svg.index("</svg>") + 6]
    assert boxes_of(svg, "column") == [["query", "Dense[string]"]]
    assert [name for [name, *_] in boxes_of(svg, "operation")].count("hash_buckets") == 2
    assert sorted(boxes_of(svg, "output")) == [["pairs"], ["same"], ["words"]]


def test_expression_shows_itself_in_a_notebook() -> None:
    assert graph_svg(overlap().node) in overlap()._repr_html_()


def test_text_is_escaped_and_long_text_is_cut() -> None:
    name = 'a<b> & "c"\x00\n]]>' + "x" * 500
    root = ElementTree.fromstring(graph_svg((hr.text(name).split("</text>")).node))
    texts = [text.text or "" for text in root.iter(f"{_SVG}text")]
    assert 'a<b> & "c"··]]>' in texts[0]
    assert "sep='</text>'" in texts
    assert max(map(len, texts)) <= 34


def test_empty_model_and_too_large_a_graph_are_notes() -> None:
    assert "no inputs" in model_of()._repr_html_()
    column = hr.int64("n")
    many = model_svg({f"i{i}": (column + i).node for i in range(NODES_MAX)})
    assert "too many to draw" in many
    ElementTree.fromstring(many)


def test_one_node_and_three_hundred_nodes_in_under_a_second() -> None:
    assert boxes_of(graph_svg(hr.text("query").node), "column") == [["query", "Dense[string]"]]
    columns = [hr.text(f"c{i}") for i in range(20)]
    pairs = list(itertools.combinations(columns, 2))[:70]
    inputs = {
        f"i{i}": hr.concat(a.unigrams() & b.lower().unigrams(), b.char_ngrams(3)).hash_buckets(100 + i)
        for i, (a, b) in enumerate(pairs)
    }
    model = model_of(**inputs)
    begun = time.process_time()
    svg = model._repr_html_()
    assert time.process_time() - begun < 1
    assert svg.count("<title>") > 600
    assert svg.count("</g>") - 1 >= 300


@st.composite
def _graphs(draw: st.DrawFn) -> tuple[list[Box], list[Edge]]:
    sizes = draw(st.lists(st.tuples(st.integers(20, 200), st.integers(20, 60), st.booleans()), min_size=1, max_size=14))
    edges = []
    for target in range(1, len(sizes)):
        sources = draw(st.lists(st.integers(0, target - 1), max_size=4))
        edges += [Edge(source, target, (port + 1) / (len(sources) + 1)) for port, source in enumerate(sources)]
    return [
        Box(width, height, late=late and not any(edge.target == i for edge in edges))
        for i, (width, height, late) in enumerate(sizes)
    ], edges


@given(graph=_graphs())
@settings(max_examples=scaled(200))
def test_boxes_do_not_overlap_and_edges_run_rightwards_between_them(graph: tuple[list[Box], list[Edge]]) -> None:
    boxes, edges = graph
    layout = lay_out(boxes, edges)
    areas = [
        (x - box.width / 2, y - box.height / 2, x + box.width / 2, y + box.height / 2)
        for box, (x, y) in zip(boxes, layout.middles, strict=True)
    ]
    for left, top, right, bottom in areas:
        assert left >= -0.01
        assert right <= layout.width + 0.01
        assert top >= -0.01
        assert bottom <= layout.height + 0.01
    for a, b in itertools.combinations(areas, 2):
        assert a[2] <= b[0] + 0.01 or b[2] <= a[0] + 0.01 or a[3] <= b[1] + 0.01 or b[3] <= a[1] + 0.01
    for edge, (_, route) in zip(edges, layout.routes, strict=True):
        assert route[0] == pytest.approx((areas[edge.source][2], layout.middles[edge.source][1]))
        assert route[-1][0] == pytest.approx(areas[edge.target][0])
        assert areas[edge.target][1] < route[-1][1] < areas[edge.target][3]
        assert all(x <= next_x + 0.01 for (x, _), (next_x, _) in itertools.pairwise(route))
