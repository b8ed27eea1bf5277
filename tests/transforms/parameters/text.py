"""Parameters of the operators of transforms/operators/text.py."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

_SIZES = st.sampled_from([1, 2, 3, 7, 10**18])

PARAMS: dict[str, st.SearchStrategy[dict[str, Any]]] = {
    "split": st.fixed_dictionaries({"sep": st.sampled_from([" ", ",", "aa", "é", "你", ", "])}),
    "ngrams": st.fixed_dictionaries({"n": _SIZES, "joiner": st.sampled_from([" ", "", "—", "ab"])}),
    "char_ngrams": st.fixed_dictionaries({"n": _SIZES}),
}

GOLDEN_PARAMS: dict[str, list[dict[str, Any]]] = {
    "split": [{"sep": " "}, {"sep": "ab"}],
    "ngrams": [{"n": 1, "joiner": " "}, {"n": 2, "joiner": " "}, {"n": 3, "joiner": "·"}],
    "char_ngrams": [{"n": 1}, {"n": 3}],
}
