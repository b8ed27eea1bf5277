"""Positions in a batch, which are 32-bit as in Arrow's ``string`` and ``list``: what they count is checked before it is written."""

from __future__ import annotations

from typing import Any

import numpy as np

from transforms.errors import DataError

#: A batch's text column holds at most so many bytes, its lists so many items, and the batch so many rows.
POSITION_MAX = int(np.iinfo(np.int32).max)


def check_positions(size: int, what: str) -> None:
    """Raise :class:`DataError` if ``size`` does not fit a 32-bit position. ``what`` names the things counted."""
    if size > POSITION_MAX:
        raise DataError(f"{what} of one batch must fit in {POSITION_MAX}, got {int(size)}", value=int(size),
                        allowed=f"at most {POSITION_MAX}", next_step="use smaller fragments")  # fmt: skip


def as_positions(numbers: np.ndarray[Any, np.dtype[Any]], what: str = "bytes or items") -> Any:
    """Ascending starts, ends or offsets, or any others, as int32. Raises :class:`DataError` if one does not fit."""
    if numbers.dtype == np.int32:
        return numbers
    check_positions(int(numbers.max(initial=0)), what)
    return numbers.astype(np.int32)
