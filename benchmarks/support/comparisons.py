"""Differences between trainings that are paired by seed, and which of them stay when several are compared."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from scipy.stats import ttest_rel

#: A difference is one below this chance, with the correction for the number of all.
SIGNIFICANT = 0.05


class Comparisons:
    """The paired t-tests of a report, each by a name of its own."""

    def __init__(self) -> None:
        self._chances: dict[str, float] = {}

    def chance(self, name: str, one: Sequence[float], other: Sequence[float]) -> float:
        """The p of a paired t-test, which counts among the comparisons; NaN for fewer than two pairs and for equal ones, which do not count."""
        if len(one) < 2 or list(one) == list(other):
            return math.nan
        assert name not in self._chances, "each comparison is made once"
        found = float(ttest_rel(one, other).pvalue)
        if not math.isnan(found):
            self._chances[name] = found
        return found

    @property
    def summary(self) -> str:
        """Which comparisons differ with Holm's correction, the smallest p first."""
        stays = sorted(holm(self._chances), key=self._chances.__getitem__)
        return f"of {len(self._chances)} comparisons these differ with Holm's correction at {SIGNIFICANT}: {'; '.join(stays) or 'none'}"


def holm(chances: Mapping[str, float]) -> set[str]:
    """The comparisons that differ at :data:`SIGNIFICANT` with Holm's correction for the number of all."""
    found: set[str] = set()
    for left, name in enumerate(sorted(chances, key=chances.__getitem__)):
        if not chances[name] * (len(chances) - left) < SIGNIFICANT:
            break
        found.add(name)
    return found
