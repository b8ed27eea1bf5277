"""Parameters of the operators of transforms/operators/ranges.py."""

from __future__ import annotations

import math
from typing import Any

from hypothesis import strategies as st

_BOUNDS = st.sampled_from([-math.inf, -2.0, 0.0, 3.0, 2.0**53, math.inf])
_FINITE = st.sampled_from([-1e300, -1.5, -0.0, 0.0, 5e-324, 1e-310, 0.1, 7.0, 1e300]) | st.floats(-1e9, 1e9)
_RANGES = st.tuples(_FINITE, _FINITE).filter(lambda pair: pair[0] != pair[1])

PARAMS: dict[str, st.SearchStrategy[dict[str, Any]]] = {
    "clip": st.tuples(_BOUNDS, _BOUNDS).map(lambda pair: {"low": min(pair), "high": max(pair)}),
    "scale": st.fixed_dictionaries(
        {"factor": st.floats(-1e9, 1e9) | _FINITE, "offset": st.sampled_from([0.0, -0.0, 0.1, -5e-324])}
    ),
    "min_max": st.tuples(_RANGES, st.booleans()).map(
        lambda drawn: {"low": min(drawn[0]), "high": max(drawn[0]), "clip": drawn[1]}
    ),
    "standardize": st.fixed_dictionaries({"mean": _FINITE, "standard_deviation": _FINITE.map(abs)}),
    "bucketize": st.sampled_from([(0.0,), (-1.0, 0.5, 1.0), (0.1, 0.2, 2.0**53), (-5e-324, -0.0, 5e-324)]).map(
        lambda boundaries: {"boundaries": boundaries}
    ),
    "modulo": st.sampled_from([1, 2, 7, 1000, 2**40, 2**63 - 1]).map(lambda n: {"n": n}),
}

GOLDEN_PARAMS: dict[str, list[dict[str, Any]]] = {
    "clip": [{"low": -1.0, "high": 2.0}, {}],
    "scale": [{"factor": 0.1, "offset": 0.3}],
    "min_max": [{"low": -1.0, "high": 2.0}, {"low": 0.1, "high": 0.3, "clip": False}],
    "standardize": [{"mean": 0.1, "standard_deviation": 3.0}, {"mean": 1.0, "standard_deviation": 0.0}],
    "bucketize": [{"boundaries": (-1.0, 0.0, 0.1, 3.0)}],
    "modulo": [{"n": 10}, {"n": 2**63 - 1}],
}
