"""The distinct values of a column over all hosts: each value has one host that knows all of its events, and all hosts know the most frequent ones."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from trainer.evaluation.shared_arrays import gather_bytes, gather_numbers, shuffled
from trainer.tables.routes.exchange import Exchange
from transforms.arrays import Array

#: A value as text; None for events without one.
Value = str | None


@dataclass(frozen=True, slots=True, eq=False)
class SharedValues:
    """The values of a column.

    Attributes:
        count: the distinct ones on all hosts.
        events: of all hosts.
        frequent: those of most events with their events, the most frequent first, equal ones by text.
        host_of: the host of each value of this host's events, int64 [values].
        owned: the values whose host this is.
        places: by rank, the place in ``owned`` of each value that this host has heard of, in the order of that host's values.
    """

    count: int
    events: int
    frequent: tuple[tuple[Value, int], ...]
    host_of: Array
    owned: tuple[Value, ...]
    places: tuple[Array, ...]


def share_values(exchange: Exchange, names: Sequence[Value], events: Array, most: int) -> SharedValues:
    """Find the host of each value.

    Args:
        names: the distinct values of this host's events.
        events: of each of them, int64 [values].
        most: how many frequent values all hosts learn.
    """
    host_of = np.array([_host_of(name, exchange.hosts) for name in names], np.int64)
    parts = []
    for host in range(exchange.hosts):
        own = np.flatnonzero(host_of == host)
        parts.append([_to_bytes([names[k] for k in own.tolist()]), np.asarray(events, np.int64)[own]])
    said, counts = shuffled(exchange, parts)
    place: dict[Value, int] = {}
    places = tuple(np.array([place.setdefault(name, len(place)) for name in json.loads(one.tobytes())], np.int64) for one in said)  # fmt: skip
    totals = np.zeros(len(place), np.int64)
    for own, of_host in zip(places, counts, strict=True):
        totals[own] += of_host
    owned = tuple(place)
    ranked = _ranked(zip(owned, totals.tolist(), strict=True))[:most]
    heard = [json.loads(one) for one in gather_bytes(exchange, _to_bytes(ranked).tobytes())]
    count, total = gather_numbers(exchange, [len(owned), int(totals.sum())]).sum(axis=0).tolist()
    frequent = _ranked((name, own) for one in heard for name, own in one)[:most]
    return SharedValues(count, total, tuple(frequent), host_of, owned, places)


def _ranked(values: Iterable[tuple[Value, int]]) -> list[tuple[Value, int]]:
    return sorted(values, key=lambda one: (-one[1], one[0] or "", one[0] is not None))


def _host_of(name: Value, hosts: int) -> int:
    return 0 if name is None or hosts == 1 else zlib.crc32(name.encode(errors="surrogatepass")) % hosts


def _to_bytes(document: object) -> Array:
    return np.frombuffer(json.dumps(document).encode(), np.uint8)
