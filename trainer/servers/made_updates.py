"""Digests of the updates that a server has made: a number that is sent again is a repetition only with the same session and content."""

from __future__ import annotations

import struct

import numpy as np
import xxhash

from trainer.servers.client_updates import MOST_CLIENTS
from trainer.tables.kernels.memory import TableMemory
from trainer.tables.routes.servers.frames import MOST_UNANSWERED, Header
from trainer.wire.frames import Bytes

#: Session, kind, flags, number and the digest of the body.
_UPDATE = struct.Struct("<QBIQQ")
#: One more than a client has on their way: the next update takes the place of one that cannot be sent again.
_KEPT = 2 * MOST_UNANSWERED
_KEPT_BYTES = _KEPT * np.dtype(np.uint64).itemsize
_NAME = "made_updates"


def update_digest(session: int, header: Header, body: Bytes) -> int:
    """What tells an update from all others with its number: 64 bits of its session, kind, encoding and content."""
    content = xxhash.xxh3_64_intdigest(memoryview(body))
    return xxhash.xxh3_64_intdigest(_UPDATE.pack(session, header.kind, header.flags, header.number, content))


class MadeUpdates:
    """The digests of the newest updates of each client, in the memory of the rows.

    A digest is noted before its update is made. A process that is killed between the two leaves the digest of an update whose number is
    new, which is noted again when it is made. So the digests need no undo log.
    """

    def __init__(self, memory: TableMemory) -> None:
        size = np.array([MOST_CLIENTS * _KEPT], np.int64)
        digests = memory.array(_NAME, np.zeros(1, np.int64), size, np.uint64, is_fresh=False, is_reserved=False)
        self._memory = memory
        self._digests = digests.reshape(MOST_CLIENTS, _KEPT)

    def note(self, client: int, number: int, digest: int) -> None:
        """Note the digest of the update that is made next. Raises :class:`~trainer.errors.MemoryFull`; nothing is noted then."""
        self._memory.reserve(_NAME, (client + 1) * _KEPT_BYTES)
        self._digests[client, number % _KEPT] = digest

    def has(self, client: int, number: int, digest: int, applied: int) -> bool:
        """Whether the update ``number`` of a client whose last one is ``applied`` has this digest; False for one before the newest ones."""
        return applied - _KEPT + 1 < number <= applied and int(self._digests[client, number % _KEPT]) == digest
