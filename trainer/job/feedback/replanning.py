"""When another plan of the tables pays for the move to it. Pure and deterministic.

After each epoch all plans that are known are priced by the sample of that epoch. A plan other than the one in force collects the seconds that it would
have saved, never below zero. The tables move to it once it would have saved as much as the move costs: so all moves together cost at most what was
lost before them, and a plan that is better for a while only causes no move. For two plans this is the counter algorithm of metrical task systems (Borodin,
Linial and Saks, 1992): its cost is at most three times that of the best sequence of plans, moves included, and a constant.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated

from transforms.derived_documents import number

#: A plan must be better by this share of a step before it counts, so that the noise of samples moves nothing.
SLACK = 0.02
#: The plans that are priced beside the one in force.
MOST_CANDIDATES = 4


@dataclass(frozen=True, slots=True)
class Candidate:
    """A plan that is not in force.

    Attributes:
        plan: its name.
        saved_secs: what it would have saved in the newest epochs, from the one in which it began to save; at least 0.
    """

    plan: str
    saved_secs: Annotated[float, number(0.0)] = 0.0


@dataclass(frozen=True, slots=True)
class EpochPrices:
    """What an epoch says of plans.

    Attributes:
        steps: that it trained.
        step_secs: measured, of one of them; None: not measured.
        prices: by plan, the seconds of a step by the cost model and the epoch's sample. It has the plan in force and all candidates.
        move_secs: by candidate, what a move to it costs.
        left_steps: that are still to be trained; None: no end is known.
    """

    steps: int
    step_secs: float | None
    prices: Mapping[str, float]
    move_secs: Mapping[str, float]
    left_steps: float | None = None

    def saving_secs(self, current: str, plan: str) -> float:
        """The seconds of a step that a plan saves beyond the slack; below 0 if it costs more.

        A model that says more than a whole measured step takes is scaled down to it.
        """
        price = self.prices[current]
        scale = 1.0 if self.step_secs is None or price <= 0 else min(1.0, self.step_secs / price)
        return scale * (price * (1 - SLACK) - self.prices[plan])


@dataclass(frozen=True, slots=True)
class Decision:
    """What follows an epoch.

    Attributes:
        candidates: with what each would have saved.
        moves_to: the plan to move to; None: the plan in force stays.
        saved_secs: what ``moves_to`` would have saved.
    """

    candidates: tuple[Candidate, ...]
    moves_to: str | None = None
    saved_secs: float = 0.0


def decide(current: str, candidates: Sequence[Candidate], epoch: EpochPrices) -> Decision:
    """Whether tables move after an epoch, and to which of the plans.

    If they do, the plan that was in force becomes a candidate, and all begin to collect again.
    """
    savings = {one.plan: epoch.saving_secs(current, one.plan) for one in candidates}
    collected = tuple(
        replace(one, saved_secs=max(0.0, one.saved_secs + savings[one.plan] * epoch.steps)) for one in candidates
    )
    paying = [one for one in collected if _pays(one, savings[one.plan], epoch)]
    if not paying:
        return Decision(collected)
    best = max(paying, key=lambda one: (one.saved_secs - epoch.move_secs[one.plan], one.plan))
    others = tuple(Candidate(one.plan) for one in collected if one.plan != best.plan)
    return Decision((Candidate(current), *others)[:MOST_CANDIDATES], best.plan, best.saved_secs)


def _pays(one: Candidate, saving_secs: float, epoch: EpochPrices) -> bool:
    cost = epoch.move_secs[one.plan]
    if saving_secs <= 0 or one.saved_secs < cost:
        return False
    return epoch.left_steps is None or saving_secs * epoch.left_steps >= cost


def with_candidate(
    candidates: Sequence[Candidate], plan: str, prices: Mapping[str, float], current: str
) -> tuple[Candidate, ...]:
    """The candidates with one more plan, if it is better than all others by the slack; the one that has saved least may leave for it.

    It has saved nothing yet: the sample from which a plan was made flatters it, so that it counts from the next epoch on.
    """
    known = {current, *(one.plan for one in candidates)}
    if plan in known or prices[plan] > (1 - SLACK) * min(prices[name] for name in known):
        return tuple(candidates)
    kept = sorted(candidates, key=lambda one: (-one.saved_secs, prices[one.plan], one.plan))[: MOST_CANDIDATES - 1]
    return (*kept, Candidate(plan))
