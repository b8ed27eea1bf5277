"""Parameters of the operators of transforms/operators/weighted.py."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from transforms.operators.weighted import NORMS, POOLS

#: Operators whose lists must be of one length in every row.
ALIGNED = frozenset({"weighted_by"})

PARAMS: dict[str, st.SearchStrategy[dict[str, Any]]] = {
    "term_frequency": st.fixed_dictionaries({"relative": st.booleans()}),
    "top_k": st.fixed_dictionaries({"k": st.sampled_from([1, 2, 5, 10**18])}),
    "scale_weights": st.fixed_dictionaries(
        {
            "factor": st.sampled_from([0.0, -0.0, 1.0, -0.1, 2.0**-1022, 1e300])
            | st.floats(-1e9, 1e9).map(lambda x: x if abs(x) > 1e-300 else 0.0)
        }
    ),
    "normalize_weights": st.fixed_dictionaries({"norm": st.sampled_from(NORMS)}),
    "pool": st.fixed_dictionaries({"how": st.sampled_from(POOLS)}),
}

GOLDEN_PARAMS: dict[str, list[dict[str, Any]]] = {
    "term_frequency": [{}, {"relative": True}],
    "top_k": [{"k": 2}],
    "scale_weights": [{"factor": 0.3}],
    "normalize_weights": [{"norm": norm} for norm in NORMS],
    "pool": [{"how": how} for how in POOLS],
}
