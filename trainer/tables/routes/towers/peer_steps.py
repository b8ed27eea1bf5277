"""The steps of the tower transform between hosts: indices to the peers (a), combined bags and their gradients from and to them (e).

A host of a tower takes the bags of some hosts, its *sources*; see :meth:`TowerPlacement.sources_of
<trainer.tables.routes.towers.placement.TowerPlacement.sources_of>`. Each function is called by all workers of ``peers``, whose ranks are hosts.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from trainer.tables.batches import IdBatch
from trainer.tables.routes.exchange import Exchange
from trainer.tables.routes.towers.peer_messages import from_message, to_message
from trainer.tables.routes.towers.placement import TowerPlacement
from trainer.tables.wire.encoded_values import check_encoded, decoded, encoded
from transforms.arrays import Array


def permute_indices(
    peers: Exchange, placement: TowerPlacement, parts: Sequence[IdBatch], bounds: tuple[int, ...]
) -> list[IdBatch]:
    """Step a: send each tower its bags of this worker's events; returns the bags of this host's tower, by source.

    ``parts``: of each tower, the bags of its features; ``bounds``: of the ids of the features of this host's tower. Raises
    :class:`DataError` for a message that is not one of bags.
    """
    messages = [to_message(part) for part in parts]
    sent: list[Sequence[Array]] = [()] * placement.hosts
    for tower in range(len(placement.towers)):
        sent[placement.peer_host(tower, peers.rank)] = messages[tower]
    received = peers.all_to_all(sent)
    sources = placement.sources_of(peers.rank)
    return [from_message(received[host], len(bounds), bounds, f"host {host}") for host in sources]


def send_outputs(
    peers: Exchange,
    placement: TowerPlacement,
    outputs: Sequence[Array],
    widths: Sequence[int],
    events: int,
    *,
    flag: int = 0,
) -> list[Array]:
    """Step e: send each source the outputs of its events; returns those of each tower for this worker's events.

    Args:
        outputs: by source, float32 [events, width of this host's tower].
        widths: of the outputs of each tower.
        events: of this worker.
        flag: how values are encoded, see :mod:`~trainer.tables.wire.encoded_values`.

    Raises :class:`DataError` for outputs of another size, and :class:`~trainer.errors.BadBatch` for values that cannot be encoded.
    """
    sent: list[Sequence[Array]] = [()] * placement.hosts
    for host, output in zip(placement.sources_of(peers.rank), outputs, strict=True):
        sent[host] = [encoded(output.reshape(-1), flag)]
    received = peers.all_to_all(sent)
    takers = [placement.peer_host(tower, peers.rank) for tower in range(len(widths))]
    return [_matrix(received[host], events, width, host, flag) for host, width in zip(takers, widths, strict=True)]


def return_gradients(
    peers: Exchange, placement: TowerPlacement, gradients: Sequence[Array], events: Sequence[int], *, flag: int = 0
) -> list[Array]:
    """The way back of step e: send each tower the gradients of its outputs; returns those of this host's tower, by source.

    ``gradients``: by tower, float32 [events, width of the tower]; ``events``: of each source; ``flag`` and errors: as of :func:`send_outputs`.
    """
    sent: list[Sequence[Array]] = [()] * placement.hosts
    for tower, gradient in enumerate(gradients):
        sent[placement.peer_host(tower, peers.rank)] = [encoded(np.ascontiguousarray(gradient).reshape(-1), flag)]
    received = peers.all_to_all(sent)
    width = gradients[placement.tower_of(peers.rank)].shape[1]
    sources = placement.sources_of(peers.rank)
    return [_matrix(received[host], count, width, host, flag) for host, count in zip(sources, events, strict=True)]


def _matrix(message: Sequence[Array], events: int, width: int, host: int, flag: int) -> Array:
    check_encoded(message, [events * width], flag, f"host {host}")
    return decoded(message[0], events * width, flag).reshape(events, width)
