"""Parameters of the operators of transforms/operators/number_text.py."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from transforms.operators.number_text import TARGETS

PARAMS: dict[str, st.SearchStrategy[dict[str, Any]]] = {
    "to_number": st.sampled_from(TARGETS).map(lambda dtype: {"dtype": dtype.value}),
}

GOLDEN_PARAMS: dict[str, list[dict[str, Any]]] = {
    "to_number": [{"dtype": dtype.value} for dtype in TARGETS],
}

GOLDEN_TEXTS: dict[str, list[str | None]] = {
    "to_number": ["42", " -7\n", None, "1e3", "0x1F", "+.5", "1_000", "9223372036854775808", "1.00000017881393432617187499",
                  "-inf", "nan", "", "4.9e-324"],
}  # fmt: skip
