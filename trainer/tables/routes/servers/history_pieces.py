"""What a hashed or pruned part has beside its rows at the moment of a snapshot, asked for some candidates at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

from trainer.tables.hashed_history import KeptHistory
from trainer.tables.routes.servers import row_messages as messages
from trainer.tables.routes.servers.frames import Kind
from trainer.tables.routes.servers.server_link import Answer, Request
from transforms.errors import DataError

#: The candidates in one message.
CANDIDATES = 1 << 19

#: Send a request over the connection of snapshots; the answer has a kind.
Ask: TypeAlias = Callable[[Request, Kind], Answer]


def read_history(ask: Ask, part: int, candidates: int, has_history: Sequence[bool]) -> Iterator[KeptHistory]:
    """The history of a part with so many candidates; ``has_history``: which parts have one. Those of a pruned part are its other numbers.

    Raises :class:`DataError` for another history than was asked for.
    """
    for first in range(0, max(candidates, 1), CANDIDATES):
        stop = min(first + CANDIDATES, candidates)
        answer = ask(Request(Kind.READ_HISTORY, messages.write_counts([part, first, stop])), Kind.HISTORY)
        found_part, found, at = messages.read_history(answer.body, has_history)
        if (found_part, at, len(found.candidates)) != (part, first, stop - first):
            raise DataError("the server must return the requested history", value=(found_part, at))
        yield found


def checked(answer: Answer, expected: Kind) -> Answer:
    """An answer. Raises :class:`DataError` for one of another kind."""
    if answer.header.kind != expected:
        raise DataError("an answer must have the requested kind", value=answer.header.kind.name, allowed=expected.name)
    return answer
