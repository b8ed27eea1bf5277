"""Parameters of the operators of transforms/operators/times.py and zones.py."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from transforms.operators.times import UNITS

_CLOCKS: list[dict[str, Any]] = [
    {"zone": "Etc/UTC", "starts": (), "offsets_secs": (0,)},
    {"zone": "far", "starts": (), "offsets_secs": (-86_400,)},
    {"zone": "some", "starts": (-(10**9), 0, 1_700_000_000), "offsets_secs": (3208, -3600, 7200, 86_400)},
]

PARAMS: dict[str, st.SearchStrategy[dict[str, Any]]] = {
    "truncate_time": st.sampled_from(UNITS).map(lambda unit: {"unit": unit}),
    "in_zone": st.sampled_from(_CLOCKS),
}

GOLDEN_PARAMS: dict[str, list[dict[str, Any]]] = {
    "truncate_time": [{"unit": unit} for unit in UNITS],
    "in_zone": _CLOCKS[1:],
}
