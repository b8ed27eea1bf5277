"""Parameters of the operators of transforms/operators/logic.py."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

PARAMS: dict[str, st.SearchStrategy[dict[str, Any]]] = {
    "is_in": st.sampled_from(
        [{}, {"whole": (-1, 0, 2**53 + 1, 2**63 - 1, -(2**63))}, {"texts": ("", "a", "a\x00b", "搜索 广告", "x" * 33)}]
    ),
}

GOLDEN_PARAMS: dict[str, list[dict[str, Any]]] = {
    "is_in": [{"whole": (-7, 42)}, {"texts": ("", "ab ab")}],
}
