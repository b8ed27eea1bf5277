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
from transforms.arrays import Array
from transforms.errors import DataError


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
    peers: Exchange, placement: TowerPlacement, outputs: Sequence[Array], widths: Sequence[int]
) -> list[Array]:
    """Step e: send each source the outputs of its events; returns those of each tower for this worker's events.

    Args:
        outputs: by source, float32 [events, width of this host's tower].
        widths: of the outputs of each tower.

    Raises :class:`DataError` for outputs of another size.
    """
    sent: list[Sequence[Array]] = [()] * placement.hosts
    for host, output in zip(placement.sources_of(peers.rank), outputs, strict=True):
        sent[host] = [output.reshape(-1)]
    received = peers.all_to_all(sent)
    takers = [placement.peer_host(tower, peers.rank) for tower in range(len(widths))]
    return [_matrix(received[host], width, f"host {host}") for host, width in zip(takers, widths, strict=True)]


def return_gradients(peers: Exchange, placement: TowerPlacement, gradients: Sequence[Array]) -> list[Array]:
    """The way back of step e: send each tower the gradients of its outputs; returns those of this host's tower, by source.

    ``gradients``: by tower, float32 [events, width of the tower]. Raises :class:`DataError` as :func:`send_outputs`.
    """
    sent: list[Sequence[Array]] = [()] * placement.hosts
    for tower, gradient in enumerate(gradients):
        sent[placement.peer_host(tower, peers.rank)] = [np.ascontiguousarray(gradient).reshape(-1)]
    received = peers.all_to_all(sent)
    width = gradients[placement.tower_of(peers.rank)].shape[1]
    return [_matrix(received[host], width, f"host {host}") for host in placement.sources_of(peers.rank)]


def _matrix(message: Sequence[Array], width: int, where: str) -> Array:
    if len(message) != 1 or message[0].dtype != np.float32 or message[0].ndim != 1 or len(message[0]) % max(width, 1):
        raise DataError("a message of activations must be whole rows of float32", where=where,
                        value=", ".join(f"{one.dtype} {one.shape}" for one in message) or "no array", allowed=f"rows of {width}")  # fmt: skip
    return message[0].reshape(-1, width)
