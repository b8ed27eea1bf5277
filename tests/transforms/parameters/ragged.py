"""Parameters of the operators of transforms/operators/ragged.py."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

_SIZES = st.sampled_from([1, 2, 3, 7, 10**18])

PARAMS: dict[str, st.SearchStrategy[dict[str, Any]]] = {
    "head": st.fixed_dictionaries({"n": _SIZES}),
}

GOLDEN_PARAMS: dict[str, list[dict[str, Any]]] = {
    "head": [{"n": 2}],
}
