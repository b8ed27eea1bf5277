"""What an expression over timestamps offers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from transforms.methods.base import Methods

if TYPE_CHECKING:
    from transforms.expression import Expr


class TimeMethods(Methods):
    """Timestamps."""

    __slots__ = ()

    def hour_of_day(self) -> Expr:
        """0 to 23, UTC."""
        return self._apply("hour_of_day")

    def day_of_week(self) -> Expr:
        """0 (Monday) to 6, UTC."""
        return self._apply("day_of_week")
