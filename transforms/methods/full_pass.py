"""Operators that must first see all events of some partitions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from transforms.errors import InputError
from transforms.methods.base import Methods
from transforms.time_range import TimeRange, moment_text

if TYPE_CHECKING:
    from transforms.expression import Expr


class FullPassMethods(Methods):
    """Full-pass operators. ``over`` is the range they are analyzed over, such as ``between("2026-01-01", "2026-01-08")``."""

    __slots__ = ()

    def vocabulary_ids(
        self,
        *,
        over: TimeRange,
        top_k: int = 0,
        min_frequency: int = 1,
        oov_buckets: int = 1,
        label: Expr | None = None,
    ) -> Expr:
        """Ids by frequency, or by mutual information with ``label``; values outside the vocabulary share ``oov_buckets``."""
        if label is None:
            return self._apply("vocabulary_ids", top_k=top_k, min_frequency=min_frequency, oov_buckets=oov_buckets,
                               **_range(over))  # fmt: skip
        if min_frequency != 1:
            raise InputError("a vocabulary by label is cut by top_k only", value=f"min_frequency={min_frequency}")
        return self._apply("labelled_vocabulary_ids", label, top_k=top_k, oov_buckets=oov_buckets, **_range(over))

    def quantile_buckets(self, n: int, *, over: TimeRange) -> Expr:
        """The index of one of ``n`` intervals that hold about equally many values."""
        return self._apply("quantile_buckets", n=n, **_range(over))

    def standardize_over(self, *, over: TimeRange) -> Expr:
        """(x - mean) / standard deviation."""
        return self._apply("standardize_over", **_range(over))

    def z_score(self, *, over: TimeRange) -> Expr:
        """Another name of :meth:`standardize_over`."""
        return self.standardize_over(over=over)

    def min_max_over(self, *, over: TimeRange) -> Expr:
        """(x - least) / (greatest - least), held within [0, 1]."""
        return self._apply("min_max_over", **_range(over))


def _range(over: TimeRange) -> dict[str, str]:
    if not isinstance(over, TimeRange):
        raise InputError("a full-pass operator is analyzed over a range of time", value=over,
                         next_step='over=hr.between("2026-01-01", "2026-01-08")')  # fmt: skip
    return {"start": moment_text(over.start), "end": moment_text(over.end)}
