"""The work of tracing grows with the graph, not with the graph times its outputs."""

from __future__ import annotations

from typing import Any

import pyarrow.compute  # noqa: F401 - before TensorFlow, whose older RE2 Arrow's regular expressions would get
import pytest
import tensorflow as tf

import headrace as hr
from transforms.twins import bridge


def _outputs(count: int) -> Any:
    return lambda inputs: {f"o{i}": tf.math.log1p(inputs["x"] * float(i + 1)) for i in range(count)}


def test_a_traced_graph_is_read_once_for_all_outputs(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []

    class Counted(bridge.Graph):
        def __init__(self, *given: Any) -> None:
            super().__init__(*given)
            read.append(len(self.vertices))

    monkeypatch.setattr(bridge, "Graph", Counted)
    sizes = {}
    for count in (10, 20, 40):
        made = hr.from_preprocessing_fn(_outputs(count), {"x": hr.float32("x")})
        assert len({expression.node.identity for expression in made.values()}) == count
        sizes[count], read = sum(read), []
    assert sizes[40] - sizes[20] == 2 * (sizes[20] - sizes[10])
