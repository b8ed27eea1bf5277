"""Which embedding workers a client uses: pure decisions on numbers of workers and clients."""

from __future__ import annotations


def lanes_of(workers: int, client: int, clients: int) -> tuple[tuple[int, ...], ...]:
    """The lanes of a client: for each the numbers of all workers, its own first, in the order in which they are tried.

    With at least as many workers as clients the lanes of all clients together have each worker once, so that none is idle: client k has workers
    k, k + clients, k + 2 clients, and so on. With fewer workers a client has one lane, with worker k modulo their number.

    Args:
        workers: their number, at least 1.
        client: its place among the clients, from 0 on.
        clients: their number.
    """
    own = range(client, workers, clients) if workers > clients else (client % workers,)
    return tuple(tuple((first + step) % workers for step in range(workers)) for first in own)
