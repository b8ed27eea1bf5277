"""Which embedding workers a client uses, over how many lanes: pure decisions on numbers."""

from __future__ import annotations

#: A client opens more lanes than it has workers up to this number: each of them takes a connection to each server.
MOST_SHARED_LANES = 16


def lanes_of(workers: int, client: int, clients: int, in_flight: int = 1) -> tuple[tuple[int, ...], ...]:
    """The lanes of a client: for each the numbers of all workers, its own first, in the order in which they are tried.

    With at least as many workers as clients those of all clients together are all workers, each used by one client, so that none is idle: client k
    uses workers k, k + clients, k + 2 clients, and so on. With fewer workers a client uses worker k modulo their number. Consecutive lanes
    are of different workers, and each worker of a client has equally many of its lanes.

    Args:
        workers: their number, at least 1.
        client: its place among the clients, from 0 on.
        clients: their number.
        in_flight: the batches of the client that are on their way at once, each over a lane of its own, as far as lanes may share workers.
    """
    own = range(client, workers, clients) if workers > clients else (client % workers,)
    shared = max(min(-(-in_flight // len(own)), MOST_SHARED_LANES // len(own)), 1)
    return tuple(tuple((first + step) % workers for step in range(workers)) for first in (*own,) * shared)
