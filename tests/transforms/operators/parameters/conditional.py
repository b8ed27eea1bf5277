"""Parameters of the operators of transforms/operators/conditional.py."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

PARAMS: dict[str, st.SearchStrategy[dict[str, Any]]] = {}
GOLDEN_PARAMS: dict[str, list[dict[str, Any]]] = {}

ALIGNED = frozenset({"if_else"})
