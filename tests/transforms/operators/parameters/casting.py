"""Parameters of the operators of transforms/operators/casting.py."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from transforms.types import DType

PARAMS: dict[str, st.SearchStrategy[dict[str, Any]]] = {
    "cast": st.sampled_from(list(DType)).map(lambda dtype: {"dtype": dtype.value}),
}

GOLDEN_PARAMS: dict[str, list[dict[str, Any]]] = {
    "cast": [{"dtype": dtype.value} for dtype in DType],
}
