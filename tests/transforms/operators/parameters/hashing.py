"""Parameters of the operators of transforms/operators/hashing.py."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

_BUCKETS = st.sampled_from([1, 2, 1000, 2**31 - 1, 2**63 - 1])

PARAMS: dict[str, st.SearchStrategy[dict[str, Any]]] = {
    "hash_buckets": st.fixed_dictionaries({"buckets": _BUCKETS, "salt": st.sampled_from(["", "s", "sälz" * 9])}),
    "cross": st.fixed_dictionaries({"buckets": _BUCKETS}),
}

GOLDEN_PARAMS: dict[str, list[dict[str, Any]]] = {
    "hash_buckets": [{"buckets": 1000}, {"buckets": 2**63 - 1, "salt": "né"}],
    "cross": [{"buckets": 1_000_003}],
}
