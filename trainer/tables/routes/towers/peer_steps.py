"""The steps of the tower transform between hosts: indices to the peers (a), combined bags and their gradients from and to them (e).

A host of a tower takes the bags of some hosts, its *sources*; see :meth:`TowerPlacement.sources_of
<trainer.tables.routes.towers.placement.TowerPlacement.sources_of>`. Each function is called by all workers of ``peers``, whose ranks are hosts.
"""

from __future__ import annotations

from collections.abc import Sequence

from trainer.tables.routes.exchange import Exchange
from trainer.tables.routes.towers.peer_messages import TowerPart, from_message, to_message
from trainer.tables.routes.towers.placement import TowerPlacement
from trainer.tables.routes.towers.tower_layout import TowerLayout
from trainer.tables.wire.encoded_values import check_encoded, decoded, encoded
from transforms.arrays import Array


def permute_indices(
    peers: Exchange, placement: TowerPlacement, parts: Sequence[TowerPart], layouts: Sequence[TowerLayout]
) -> list[TowerPart]:
    """Step a: ask each tower for what this worker's events need of it; returns what this host's tower is asked for, by source.

    ``parts`` and ``layouts``: of each tower. Raises :class:`DataError` for a message that is not one of bags.
    """
    sent: list[Sequence[Array]] = [()] * placement.hosts
    for tower, (part, layout) in enumerate(zip(parts, layouts, strict=True)):
        sent[placement.peer_host(tower, peers.rank)] = to_message(part, layout)
    received = peers.all_to_all(sent)
    own = layouts[placement.tower_of(peers.rank)]
    return [from_message(received[host], own, f"host {host}") for host in placement.sources_of(peers.rank)]


def send_outputs(
    peers: Exchange, placement: TowerPlacement, outputs: Sequence[Array], floats: Sequence[int], *, flag: int = 0
) -> list[Array]:
    """Step e: send each source the outputs of its events; returns those of each tower for this worker's events, flat.

    Args:
        outputs: by source, flat float32.
        floats: the number of values that each tower gives this worker.
        flag: how values are encoded, see :mod:`~trainer.tables.wire.encoded_values`.

    Raises :class:`DataError` for outputs of another size, and :class:`~trainer.errors.BadBatch` for values that cannot be encoded.
    """
    sent: list[Sequence[Array]] = [()] * placement.hosts
    for host, output in zip(placement.sources_of(peers.rank), outputs, strict=True):
        sent[host] = [encoded(output, flag)]
    received = peers.all_to_all(sent)
    takers = [placement.peer_host(tower, peers.rank) for tower in range(len(floats))]
    return [_values(received[host], size, host, flag) for host, size in zip(takers, floats, strict=True)]


def return_gradients(
    peers: Exchange, placement: TowerPlacement, gradients: Sequence[Array], floats: Sequence[int], *, flag: int = 0
) -> list[Array]:
    """The way back of step e: send each tower the gradients of its outputs; returns those of this host's tower, by source, flat.

    ``gradients``: by tower, flat float32; ``floats``: the number of values from each source; ``flag`` and errors: as of :func:`send_outputs`.
    """
    sent: list[Sequence[Array]] = [()] * placement.hosts
    for tower, gradient in enumerate(gradients):
        sent[placement.peer_host(tower, peers.rank)] = [encoded(gradient, flag)]
    received = peers.all_to_all(sent)
    sources = placement.sources_of(peers.rank)
    return [_values(received[host], size, host, flag) for host, size in zip(sources, floats, strict=True)]


def _values(message: Sequence[Array], size: int, host: int, flag: int) -> Array:
    check_encoded(message, [size], flag, f"host {host}")
    return decoded(message[0], size, flag)
