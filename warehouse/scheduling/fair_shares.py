"""Whose turn it is: weighted fair shares of computing time between clients, with a floor.

Start-time fair queueing. Every client has a virtual time in seconds; whoever waits with the least is served, and what is leased
for it advances its own by the estimated seconds over its share. A client that comes back after it had nothing to do begins
where those who waited are, so that nobody saves up a turn. Once it is known what the work took, the charge is amended: who is
estimated badly gets its share all the same. Pure: nothing here reads a clock or a catalog.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Hashable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

from transforms.errors import InputError

_Key = TypeVar("_Key", bound=Hashable)

#: The share that a waiting client gets whatever the others weigh (less where so many wait that it cannot be had).
FLOOR_SHARE = 0.05
#: Sums and shares of weights in between are numbers that one can reckon with.
MOST_WEIGHT = 1e6


@dataclass(frozen=True, slots=True)
class ClientShare:
    """A client's claim. ``virtual_secs`` None: it never had a turn. ``served``: the number of its last turn, for ties."""

    name: str
    weight: float = 1.0
    virtual_secs: float | None = None
    served: int = 0

    def __post_init__(self) -> None:
        check_weight(self.weight)


def check_weight(weight: float) -> None:
    """Raise :class:`InputError` for what is no weight."""
    if not (math.isfinite(weight) and 1 / MOST_WEIGHT <= weight <= MOST_WEIGHT):
        raise InputError("a client's weight is a positive number", value=weight,
                         allowed=f"{1 / MOST_WEIGHT:g} to {MOST_WEIGHT:,.0f}",
                         next_step="to keep a client from being served, evict or retire its models")  # fmt: skip


@dataclass(frozen=True, slots=True)
class Charge:
    """What was charged for work when it was leased: ``secs``, to ``payers`` alike, each by the share that it had then."""

    secs: float
    payers: Mapping[str, float]


def shares(weights: Mapping[str, float], floor_share: float = FLOOR_SHARE) -> dict[str, float]:
    """Each client's share of the workers, by weight, none under the floor; they add up to 1.

    Clients that weight alone would put under the floor get exactly the floor, the others divide the rest by weight.
    """
    floor = min(floor_share, 1 / len(weights)) if weights else 0.0
    lifted: set[str] = set()
    while True:
        rest = {name: weight for name, weight in weights.items() if name not in lifted}
        free, total = 1 - floor * len(lifted), sum(rest.values())
        under = {name for name, weight in rest.items() if free * weight / total < floor * (1 - 1e-9)}
        if not under:
            return {name: floor if name in lifted else free * weight / total for name, weight in weights.items()}
        lifted |= under


def starting_virtual_times(clients: Iterable[ClientShare], waiting: Collection[str]) -> dict[str, float]:
    """Every client's virtual time at the start of a turn: newcomers, and those who did not wait, are brought up to date.

    ``waiting``: the names of the clients that have something to lease now.
    """
    listed = list(clients)
    running = [one.virtual_secs for one in listed if one.name in waiting and one.virtual_secs is not None]
    now = min(running, default=max((one.virtual_secs or 0.0 for one in listed), default=0.0))
    return {
        one.name: now
        if one.virtual_secs is None
        else one.virtual_secs
        if one.name in waiting
        else max(one.virtual_secs, now)
        for one in listed
    }


def next_client(clients: Collection[ClientShare], waiting: Collection[str]) -> str:
    """The waiting client with the least virtual time; of several, the one served longest ago, then by name.

    Raises ValueError when nobody waits.
    """
    times = starting_virtual_times(clients, waiting)
    return min((times[one.name], one.served, one.name) for one in clients if one.name in waiting)[2]


def virtual_times_after(
    clients: Collection[ClientShare],
    waiting: Collection[str],
    secs: Mapping[str, float],
    floor_share: float = FLOOR_SHARE,
) -> dict[str, float]:
    """Every client's virtual time after a turn in which ``secs`` seconds of work were leased for each client named there."""
    times = starting_virtual_times(clients, waiting)
    share = charged_shares(clients, waiting, secs, floor_share)
    return {name: time + secs[name] / share[name] if name in secs else time for name, time in times.items()}


def charged_shares(
    clients: Iterable[ClientShare],
    waiting: Collection[str],
    charged_for: Collection[str],
    floor_share: float = FLOOR_SHARE,
) -> dict[str, float]:
    """The shares by which a turn is charged: of those who wait, and of those for whom something is leased."""
    return shares(
        {one.name: one.weight for one in clients if one.name in waiting or one.name in charged_for}, floor_share
    )


def charge_corrections(done: Iterable[tuple[Charge, float]]) -> dict[str, float]:
    """The virtual seconds that each client was charged too little (negative: too much), for work and what it took, in seconds."""
    found: defaultdict[str, float] = defaultdict(float)
    for charge, took_secs in done:
        for client, share in charge.payers.items():
            found[client] += (took_secs - charge.secs) / len(charge.payers) / share
    return {client: secs for client, secs in found.items() if secs}


def apply_corrections(clients: Iterable[ClientShare], more: Mapping[str, float]) -> tuple[ClientShare, ...]:
    """Every client's claim once the charges are amended by :func:`charge_corrections`. No virtual time is less than nothing."""
    return tuple(
        one
        if one.virtual_secs is None or one.name not in more
        else replace(one, virtual_secs=max(one.virtual_secs + more[one.name], 0.0))
        for one in clients
    )


def charge_by_client(secs: Mapping[_Key, float], payers: Mapping[_Key, Collection[str]]) -> dict[str, float]:
    """What each client pays for work that was leased: a task is paid for by those who wait for it, alike."""
    found: defaultdict[str, float] = defaultdict(float)
    for key, work_secs in secs.items():
        for client in payers[key]:
            found[client] += work_secs / len(payers[key])
    return dict(found)


def update_clients(
    clients: Collection[ClientShare],
    waiting: Collection[str],
    chosen: str,
    secs: Mapping[str, float],
    floor_share: float = FLOOR_SHARE,
) -> tuple[ClientShare, ...]:
    """Every client's claim after the turn of ``chosen``, in which ``secs`` were leased for each client named there."""
    times = virtual_times_after(clients, waiting, secs, floor_share)
    turn = max((one.served for one in clients), default=0) + 1
    return tuple(
        ClientShare(one.name, one.weight, times[one.name], turn if one.name == chosen else one.served)
        for one in clients
    )
