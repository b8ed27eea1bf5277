"""Weighted fair queueing of clients: shares, virtual times, charges. Pure.

Start-time fair queueing. Every client has a virtual time in seconds. The waiting client with the least virtual time is served,
and each lease advances its virtual time by the estimated seconds divided by its share. A client without work saves up no
time: when it has work again, its virtual time starts at that of the waiting clients. When the work is done, the charge is
corrected to what the work took, so that a wrong estimate does not change a client's share.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Hashable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

from transforms.errors import InputError

_Key = TypeVar("_Key", bound=Hashable)

#: The minimum share of a waiting client; less if too many clients wait for all to have it.
FLOOR_SHARE = 0.05
#: The largest weight; the smallest one is its inverse. Sums and shares of weights between them are exact enough.
MOST_WEIGHT = 1e6


@dataclass(frozen=True, slots=True)
class ClientShare:
    """A client's claim on the workers.

    Attributes:
        name: The client.
        weight: Its weight.
        virtual_secs: Its virtual time; None before its first lease.
        served: The number of the last selection of this client; it decides between equal virtual times.
    """

    name: str
    weight: float = 1.0
    virtual_secs: float | None = None
    served: int = 0

    def __post_init__(self) -> None:
        check_weight(self.weight)


def check_weight(weight: float) -> None:
    """Raise :class:`InputError` for a weight out of range."""
    if not (math.isfinite(weight) and 1 / MOST_WEIGHT <= weight <= MOST_WEIGHT):
        raise InputError("a client's weight must be a number in the allowed range", value=weight,
                         allowed=f"{1 / MOST_WEIGHT:g} to {MOST_WEIGHT:,.0f}",
                         next_step="to keep a client from being served, evict or retire its models")  # fmt: skip


@dataclass(frozen=True, slots=True)
class Charge:
    """The charge of leased work: ``secs``, divided equally among ``payers``, each with its share at that time."""

    secs: float
    payers: Mapping[str, float]


def shares(weights: Mapping[str, float], floor_share: float = FLOOR_SHARE) -> dict[str, float]:
    """Each client's share of the workers by weight, at least the minimum share; they add up to 1.

    Clients whose weight gives less than the minimum share get exactly that; the others divide the rest by weight.
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
    """Every client's virtual time before a selection: new and idle clients start at that of the waiting ones.

    ``waiting``: the names of the clients with leasable tasks.
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

    Raises ValueError if no client waits.
    """
    times = starting_virtual_times(clients, waiting)
    return min((times[one.name], one.served, one.name) for one in clients if one.name in waiting)[2]


def virtual_times_after(
    clients: Collection[ClientShare],
    waiting: Collection[str],
    secs: Mapping[str, float],
    floor_share: float = FLOOR_SHARE,
) -> dict[str, float]:
    """Every client's virtual time after a lease of ``secs`` seconds of work by client."""
    times = starting_virtual_times(clients, waiting)
    share = charged_shares(clients, waiting, secs, floor_share)
    return {name: time + secs[name] / share[name] if name in secs else time for name, time in times.items()}


def charged_shares(
    clients: Iterable[ClientShare],
    waiting: Collection[str],
    charged_for: Collection[str],
    floor_share: float = FLOOR_SHARE,
) -> dict[str, float]:
    """The shares by which a lease is charged: those of the waiting and of the charged clients."""
    return shares(
        {one.name: one.weight for one in clients if one.name in waiting or one.name in charged_for}, floor_share
    )


def charge_corrections(done: Iterable[tuple[Charge, float]]) -> dict[str, float]:
    """The virtual seconds by which each client was undercharged (negative: overcharged).

    ``done``: charges, with the seconds that the work took.
    """
    # Most work of a lease has the same mapping of payers.
    by_payers: dict[int, tuple[Mapping[str, float], list[float]]] = {}
    for charge, took_secs in done:
        payers = charge.payers
        if (known := by_payers.get(id(payers))) is None:
            known = by_payers[id(payers)] = payers, []
        known[1].append(took_secs - charge.secs)
    found: defaultdict[str, float] = defaultdict(float)
    for payers, more in by_payers.values():
        secs = math.fsum(more) / len(payers) if payers else 0.0
        for client, share in payers.items():
            found[client] += secs / share
    return {client: secs for client, secs in found.items() if secs}


def apply_corrections(clients: Iterable[ClientShare], more: Mapping[str, float]) -> tuple[ClientShare, ...]:
    """Every client with the corrections of :func:`charge_corrections` added. No virtual time is below 0."""
    return tuple(
        one
        if one.virtual_secs is None or one.name not in more
        else replace(one, virtual_secs=max(one.virtual_secs + more[one.name], 0.0))
        for one in clients
    )


def charge_by_client(secs: Mapping[_Key, float], payers: Mapping[_Key, Collection[str]]) -> dict[str, float]:
    """The seconds that each client pays for leased work: the clients that wait for a task pay equal parts."""
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
    """Every client after a selection of ``chosen`` that leased ``secs`` seconds of work by client."""
    times = virtual_times_after(clients, waiting, secs, floor_share)
    number = max((one.served for one in clients), default=0) + 1
    return tuple(
        ClientShare(one.name, one.weight, times[one.name], number if one.name == chosen else one.served)
        for one in clients
    )
