"""Positions in a batch, 32-bit as in Arrow's ``string`` and ``list``, and the checks of their range."""

from __future__ import annotations

from typing import Any

import numpy as np

from transforms.errors import DataError

#: The maximum of the bytes of a text column, the items of its lists and the rows in a batch.
POSITION_MAX = int(np.iinfo(np.int32).max)


def check_positions(size: int, what: str) -> None:
    """Raise :class:`DataError` if ``size`` does not fit a 32-bit position. ``what`` names the things counted."""
    if size > POSITION_MAX:
        raise DataError(f"{what} of one batch must fit in {POSITION_MAX}, got {int(size)}", value=int(size),
                        allowed=f"at most {POSITION_MAX}", next_step="use smaller fragments")  # fmt: skip


def as_positions(numbers: np.ndarray[Any, np.dtype[Any]], what: str = "bytes or items") -> Any:
    """Starts, ends or offsets as int32. Raises :class:`DataError` if one does not fit."""
    if numbers.dtype == np.int32:
        return numbers
    check_positions(int(numbers.max(initial=0)), what)
    return numbers.astype(np.int32)
