"""The account of a policy against keeping all and keeping nothing, and the hedge between the two. Pure.

An account has three totals of CPU seconds, storage included: what was really paid, and what the fixed policies would have
paid for the same requests. As long as the real total is below :data:`LIMIT` times the cheaper fixed one, plus one ``scale``,
the forecast decides (:mod:`warehouse.planning.forecast`). Above it, every fragment follows one of the two fixed policies, and
their shares are those of Hedge (Freund and Schapire, "A decision-theoretic generalization of on-line learning", 1997):
proportional to ``exp(-LEARNING * total / scale)``. A fragment's digest decides which share it belongs to, so shares that
change a little move few fragments.

**Bound.** Let ``scale`` be the account's last one: at most twice the largest, over all periods, of the difference between
the dearest and the cheapest of the three, and of the price of making all memos at once. In expectation over digests

    real total <= LIMIT * min(all, none) + BOUND_SCALES * scale,

after any requests in any order. Proof. While the forecast decides, the total exceeds the limit by at most one period. In
the last phase of hedging, Hedge with rate ``h = LEARNING`` pays at most ``h / (1 - exp(-h))`` times the cheaper fixed policy of
that phase, plus ``ln 2 / h`` scales; moving fragments costs at most ``h`` times what Hedge pays, since a share loses at most
``h * loss / scale`` of itself (Blum and Burch, "On-line learning and the metrical task system problem", 2000). ``(1 + h) * h /
(1 - exp(-h))`` is 1.0961. A scale that grows doubles, so all periods in which it grows cost at most four last scales.
The cheaper of two sums is at least the sum of the cheaper ones, so that earlier phases need no constants of their own.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from enum import StrEnum

from transforms.errors import InputError

__all__ = ["BOUND_SCALES", "LEARNING", "LIMIT", "Account", "Advisor", "Shares", "bound_secs", "charge", "shares"]

#: The rate of Hedge for a loss of one scale.
LEARNING = 1 / 16
#: The factor of the bound.
LIMIT = 1.1
#: The additive constant of the bound, in scales.
BOUND_SCALES = 20.0
_DIGITS = 13


class Advisor(StrEnum):
    """What decides about a fragment."""

    FORECAST = "forecast"
    ALL = "all"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Account:
    """CPU seconds, storage included, since the first request.

    Attributes:
        own_secs: What was paid.
        all_secs: What keeping all would have cost.
        none_secs: What keeping nothing would have cost.
        scale_secs: A power of two, not below the largest difference in a period and the price of making all memos.
        hedged_secs: What all and none would have cost since the hedge decides; None while the forecast decides.
    """

    own_secs: float = 0.0
    all_secs: float = 0.0
    none_secs: float = 0.0
    scale_secs: float = 0.0
    hedged_secs: tuple[float, float] | None = None

    @property
    def best_secs(self) -> float:
        """The total of the cheaper fixed policy."""
        return min(self.all_secs, self.none_secs)


@dataclass(frozen=True, slots=True)
class Shares:
    """The parts of all fragments that follow each advisor; their sum is 1."""

    forecast: float = 1.0
    all: float = 0.0
    none: float = 0.0

    def advisor(self, digest: str) -> Advisor:
        """The advisor of the fragment with this hexadecimal digest."""
        if self.forecast == 1.0:
            return Advisor.FORECAST
        place = int(digest[:_DIGITS], 16) / 16.0 ** len(digest[:_DIGITS])
        if place < self.all:
            return Advisor.ALL
        return Advisor.FORECAST if place < self.all + self.forecast else Advisor.NONE


def charge(account: Account, *, own_secs: float, all_secs: float, none_secs: float, making_secs: float) -> Account:
    """The account after a period with these costs; ``making_secs``: computing and writing all memos at once.

    Raises :class:`InputError` for a cost that is negative or not finite.
    """
    paid = (own_secs, all_secs, none_secs, making_secs)
    if not all(secs >= 0 and math.isfinite(secs) for secs in paid):
        raise InputError(
            "the costs of a period must be finite numbers of seconds >= 0", value=paid, allowed="0 or more"
        )
    apart = max(own_secs, all_secs, none_secs) - min(all_secs, none_secs)
    hedged = account.hedged_secs
    after = Account(
        account.own_secs + own_secs,
        account.all_secs + all_secs,
        account.none_secs + none_secs,
        _scale(max(account.scale_secs, apart, making_secs)),
        None if hedged is None else (hedged[0] + all_secs, hedged[1] + none_secs),
    )
    if after.own_secs <= LIMIT * after.best_secs + after.scale_secs:
        return replace(after, hedged_secs=None)
    return after if hedged is not None else replace(after, hedged_secs=(0.0, 0.0))


def _scale(secs: float) -> float:
    """The least power of two that is not below ``secs``; 0 for 0."""
    if secs <= 0:
        return 0.0
    mantissa, exponent = math.frexp(secs)
    return math.ldexp(1.0, exponent - (mantissa == 0.5))


def shares(account: Account) -> Shares:
    """The shares of the next period."""
    if account.hedged_secs is None:
        return Shares()
    kept, computed = account.hedged_secs
    lead = 0.0 if account.scale_secs == 0 else LEARNING * (kept - computed) / account.scale_secs
    share = 1 / (1 + math.exp(min(lead, 700.0)))
    return Shares(0.0, share, 1 - share)


def bound_secs(account: Account) -> float:
    """The total that the policy does not exceed in expectation."""
    return LIMIT * account.best_secs + BOUND_SCALES * account.scale_secs
