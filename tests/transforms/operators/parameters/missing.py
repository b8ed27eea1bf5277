"""Parameters of the operators of transforms/operators/missing.py."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

PARAMS: dict[str, st.SearchStrategy[dict[str, Any]]] = {
    "fill_null": st.sampled_from([0, -7, 0.1, -0.0, True, "", "né"]).map(lambda value: {"value": value}),
    "fill_nan": st.sampled_from([0.0, -0.0, 0.1, 5e-324, 1e300]).map(lambda value: {"value": value}),
}

GOLDEN_PARAMS: dict[str, list[dict[str, Any]]] = {
    "fill_null": [{"value": 3}, {"value": 0.5}, {"value": "none"}, {"value": True}],
    "fill_nan": [{"value": 0.1}],
}
