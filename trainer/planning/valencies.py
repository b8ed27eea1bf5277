"""Classes of valencies: how many ids the bags of a feature have."""

from __future__ import annotations

from typing import Final

_POWERS = 31
#: The most ids of a bag in each class of valencies: 0, 1, 2, then powers of 2.
VALENCY_BOUNDS: Final = (0, *(1 << k for k in range(_POWERS)))
