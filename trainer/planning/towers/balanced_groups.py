"""Balanced groups of near points: k-means whose groups have at most a given multiple of the mean weight. Pure and deterministic.

The assignment of a step is exact. With equal weights it is an assignment problem (every group has equally many items within one), which scipy solves
in milliseconds. With other weights its linear relaxation is a transportation problem, which has a solution with fewer divided items than groups;
scipy's HiGHS finds it, and a divided item then goes, largest first, to the lightest group (after Shmoys and Tardos, "An approximation algorithm for the
generalized assignment problem", 1993); exchanges at the least cost then make the heaviest group lighter. OR-Tools' flows take whole numbers, and a process
of their own for each step.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.optimize import linear_sum_assignment, linprog
from scipy.sparse import coo_array

from trainer.errors import ConfigError
from transforms.arrays import Array

_STARTS, _MOST_STEPS = 8, 50
#: The share of an item that counts as the whole of it.
_WHOLE = 1 - 1e-6
#: The most exchanges for each item.
_MOST_EXCHANGES = 20
#: Weights are balanced where the heaviest group is at most so much above the mean.
_BALANCED = 1.03


def balanced_groups(points: Array, weights: Array, groups: int, *, seed: int, largest: float = 1.0) -> Array:
    """The group of each item, int64 [items]; no group is empty.

    Args:
        points: float64 [items, columns]; the sum of squared distances to the means of groups is made small.
        weights: float64 [items], >= 0: what is balanced. With equal ones the numbers of items differ by at most one.
        groups: their number, at most that of the items.
        seed: equal input and seeds give equal groups.
        largest: the paper's R: the most that a group may have, by the mean; 1: all have equally much.

    Raises:
        ConfigError: for fewer items than groups, and weights that are negative or not finite.
    """
    if not 1 <= groups <= len(points):
        raise ConfigError(
            "the number of groups must be at most that of the items", value=groups, allowed=f"1 to {len(points)}"
        )
    if not (np.isfinite(weights).all() and (weights >= 0).all()):
        raise ConfigError("the weights of items must be finite numbers", value=weights[:8].tolist(), allowed=">= 0")
    if not 1 <= largest < np.inf:
        raise ConfigError("the largest group must be at least the mean", value=largest, allowed=">= 1")
    random = np.random.default_rng(seed)
    found = [_refined(points, weights, _spread_centres(points, groups, random), largest) for _ in range(_STARTS)]
    return min(found, key=lambda one: one[0])[1]


def _spread_centres(points: Array, groups: int, random: np.random.Generator) -> Array:
    """The first centres, as k-means++ draws them: far from those before by the square of the distance."""
    chosen = [int(random.integers(len(points)))]
    nearest = _squares(points, points[chosen])[:, 0]
    while len(chosen) < groups:
        left = np.setdiff1d(np.arange(len(points)), chosen)
        odds = nearest[left]
        total = odds.sum()
        pick = int(random.choice(left, p=odds / total if total > 0 else None))
        chosen.append(pick)
        nearest = np.minimum(nearest, _squares(points, points[[pick]])[:, 0])
    return points[chosen]


def _refined(points: Array, weights: Array, centres: Array, largest: float) -> tuple[float, Array]:
    """The groups after assignments and means in turns, and the sum of squared distances; it stops when nothing gets shorter."""
    best, labels = np.inf, np.zeros(len(points), np.int64)
    for _ in range(_MOST_STEPS):
        assigned = assign_balanced(_squares(points, centres), weights, largest)
        centres = np.stack([points[assigned == group].mean(axis=0) for group in range(len(centres))])
        total = float(np.square(points - centres[assigned]).sum())
        if total >= best - 1e-12:
            break
        best, labels = total, assigned
    return best, labels


def assign_balanced(costs: Array, weights: Array, largest: float = 1.0) -> Array:
    """The group of each item at the least cost with balanced weights, int64 [items]; see :func:`balanced_groups`.

    Args:
        costs: float64 [items, groups].
        weights: float64 [items].
        largest: see :func:`balanced_groups`.
    """
    if np.all(weights == weights[0]):
        return _by_number(costs, largest)
    labels = _without_empty(_rounded(_shares(costs, weights, largest), weights), costs)
    return _evened(labels, costs, weights, largest)


def _by_number(costs: Array, largest: float) -> Array:
    """Groups of at most ``largest`` times the mean number of items, none empty; of 1, of numbers that differ by at most one."""
    items, groups = costs.shape
    even = -(-items // groups)
    places = max(even, min(math.floor(largest * items / groups), items - groups + 1))
    free = places * groups - items
    table = np.repeat(costs, places, axis=1)
    if free:
        # A blank item takes a place that a group need not fill: its last one in groups of equal size, else all but its first.
        blank = np.full((free, places * groups), np.inf)
        blank.reshape(free, groups, places)[:, :, places - 1 if places == even else 1 :] = 0.0
        table = np.concatenate([table, blank])
    _, taken = linear_sum_assignment(table)
    found: Array = (taken[:items] // places).astype(np.int64)
    return found


def _shares(costs: Array, weights: Array, largest: float) -> Array:
    """The share of each item in each group, [items, groups]: the least cost at which groups have at most ``largest`` times the mean weight."""
    items, groups = costs.shape
    columns = np.arange(items * groups)
    of_item = coo_array((np.ones(items * groups), (columns // groups, columns)))
    scaled = weights / weights.sum()  # above 0: the weights differ
    of_group = coo_array((np.repeat(scaled, groups), (columns % groups, columns)), shape=(groups, items * groups))
    most = np.full(groups, largest / groups + 1e-9)
    solved = linprog(
        costs.ravel(), A_ub=of_group.tocsr(), b_ub=most, A_eq=of_item.tocsr(), b_eq=np.ones(items), method="highs-ds"
    )
    if not solved.success:
        raise ConfigError("the solver found no balanced groups", value=solved.message[:200])
    found: Array = solved.x.reshape(items, groups)
    return found


def _rounded(shares: Array, weights: Array) -> Array:
    """The groups of items that are whole; a divided item goes, largest first, to the lightest group."""
    labels: Array = shares.argmax(axis=1)
    whole = shares.max(axis=1) >= _WHOLE
    loads = np.bincount(labels[whole], weights[whole], minlength=shares.shape[1])
    divided = np.flatnonzero(~whole)
    for item in divided[np.argsort(-weights[divided], kind="stable")]:
        labels[item] = int(loads.argmin())
        loads[labels[item]] += weights[item]
    return labels


def _without_empty(labels: Array, costs: Array) -> Array:
    """A group without items takes the item that costs it the least more, of a group that has several."""
    for group in range(costs.shape[1]):
        counts = np.bincount(labels, minlength=costs.shape[1])
        if not counts[group]:
            movable = np.flatnonzero(counts[labels] > 1)
            labels[movable[(costs[movable, group] - costs[movable, labels[movable]]).argmin()]] = group
    return labels


def _evened(labels: Array, costs: Array, weights: Array, largest: float) -> Array:
    """Items of the heaviest group move to others, or change places with lighter ones, at the least cost, until weights are balanced.

    Every exchange leaves both groups lighter than the heaviest one was.
    """
    labels, groups = labels.copy(), costs.shape[1]
    limit = max(_BALANCED, largest) * weights.sum() / groups
    for _ in range(_MOST_EXCHANGES * len(labels)):
        loads, counts = np.bincount(labels, weights, groups), np.bincount(labels, minlength=groups)
        heaviest = int(loads.argmax())
        if loads[heaviest] <= limit:
            return labels
        ours, others = np.flatnonzero(labels == heaviest), np.flatnonzero(labels != heaviest)
        theirs = labels[others]
        gap = weights[ours, None] - weights[None, others]
        fits = (gap > 0) & (loads[None, theirs] + gap < loads[heaviest])
        swap = (
            costs[np.ix_(ours, theirs)]
            - costs[ours, heaviest][:, None]
            + (costs[others, heaviest] - costs[others, theirs])[None]
        )
        move = costs[ours] - costs[ours, heaviest][:, None]
        moves = (
            (weights[ours, None] > 0) & (loads[None] + weights[ours, None] < loads[heaviest]) & (counts[heaviest] > 1)
        )
        swap, move = np.where(fits, swap, np.inf), np.where(moves, move, np.inf)
        if min(swap.min(initial=np.inf), move.min()) == np.inf:
            return labels
        if move.min() <= swap.min(initial=np.inf):
            item, group = divmod(int(move.argmin()), groups)
            labels[ours[item]] = group
        else:
            item, other = divmod(int(swap.argmin()), len(others))
            labels[ours[item]], labels[others[other]] = theirs[other], heaviest
    return labels


def _squares(points: Array, centres: Array) -> Array:
    """The squared distance of each point to each centre, [points, centres]."""
    found: Array = np.square(points[:, None, :] - centres[None, :, :]).sum(axis=2)
    return found
