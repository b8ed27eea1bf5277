"""Parameters of the operators of transforms/operators/numeric.py."""

from __future__ import annotations

import math
from typing import Any

from hypothesis import strategies as st

_BOUNDS = st.sampled_from([-math.inf, -2.0, 0.0, 3.0, 2.0**53, math.inf])

PARAMS: dict[str, st.SearchStrategy[dict[str, Any]]] = {
    "clip": st.tuples(_BOUNDS, _BOUNDS).map(lambda pair: {"low": min(pair), "high": max(pair)}),
    "scale": st.fixed_dictionaries({"factor": st.floats(-1e9, 1e9), "offset": st.sampled_from([0.0, -0.0, 0.1])}),
    "bucketize": st.sampled_from([(0.0,), (-1.0, 0.5, 1.0), (0.1, 0.2, 2.0**53)]).map(lambda b: {"boundaries": b}),
    "fill_null": st.sampled_from([0, -7, 0.1, -0.0, True, "", "né"]).map(lambda value: {"value": value}),
}

GOLDEN_PARAMS: dict[str, list[dict[str, Any]]] = {
    "clip": [{"low": -1.0, "high": 2.0}, {}],
    "scale": [{"factor": 0.1, "offset": 0.3}],
    "bucketize": [{"boundaries": (-1.0, 0.0, 0.1, 3.0)}],
    "fill_null": [{"value": 3}, {"value": 0.5}, {"value": "none"}, {"value": True}],
}
