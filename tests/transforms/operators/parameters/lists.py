"""Parameters of the operators of transforms/operators/lists.py."""

from __future__ import annotations

import math
from typing import Any

from hypothesis import strategies as st

_SIZES = st.sampled_from([1, 2, 3, 7, 10**18])
_VALUES = st.sampled_from(
    [0, -7, 7, 2**63 - 1, 0.0, -0.0, 0.1, 5e-324, math.nan, -math.inf, 1e308, True, "", "né", "a\x00b"]
)

#: Operators whose lists must be of one length in every row.
ALIGNED = frozenset({"filter"})

PARAMS: dict[str, st.SearchStrategy[dict[str, Any]]] = {
    "head": st.fixed_dictionaries({"n": _SIZES}),
    "tail": st.fixed_dictionaries({"n": _SIZES}),
    "sort": st.fixed_dictionaries({"descending": st.booleans()}),
    "pad": st.fixed_dictionaries({"size": st.sampled_from([1, 2, 7]), "value": _VALUES}),
    "positions": st.fixed_dictionaries({"limit": st.sampled_from([0, 1, 2, 5, 10**18])}),
    "zip": st.fixed_dictionaries({"joiner": st.sampled_from(["", "_", " × ", "\x00"])}),
    "contains_item": st.fixed_dictionaries({"value": _VALUES}),
}

GOLDEN_PARAMS: dict[str, list[dict[str, Any]]] = {
    "head": [{"n": 2}],
    "tail": [{"n": 2}],
    "sort": [{}, {"descending": True}],
    "pad": [{"size": 2, "value": value} for value in (-1, 0.5, "none", True)],
    "positions": [{}, {"limit": 2}],
    "zip": [{"joiner": "·"}],
    "contains_item": [{"value": value} for value in (42, 1.5, "ab ab", True)],
}
