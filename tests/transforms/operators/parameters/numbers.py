"""Parameters of the operators of transforms/operators/numbers.py."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

_PERIODS = st.sampled_from([1.0, 24.0, 0.1, 86_400.0, 2.0**-256, 2.0**256, 1e300**0.2]) | st.floats(1e-9, 1e9)

PARAMS: dict[str, st.SearchStrategy[dict[str, Any]]] = {
    "sin_periodic": st.fixed_dictionaries({"period": _PERIODS}),
    "cos_periodic": st.fixed_dictionaries({"period": _PERIODS}),
}

GOLDEN_PARAMS: dict[str, list[dict[str, Any]]] = {
    "sin_periodic": [{"period": 24.0}, {"period": 0.3}],
    "cos_periodic": [{"period": 24.0}, {"period": 0.3}],
}
