"""Parameters of the operators of transforms/operators/sequences.py."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

PARAMS: dict[str, st.SearchStrategy[dict[str, Any]]] = {
    "session_index": st.fixed_dictionaries({"gap_secs": st.sampled_from([0.0, 1e-6, 0.5, 1800.0, 3e9])}),
}

GOLDEN_PARAMS: dict[str, list[dict[str, Any]]] = {
    "session_index": [{"gap_secs": 1800.0}, {"gap_secs": 0.0}],
}
