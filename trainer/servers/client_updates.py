"""Which updates of which clients a server has made: pure decisions on sequence numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from trainer.embedding.ps.frames import count_at, text_at
from transforms.errors import DataError, InputError

#: The most clients of a server.
MOST_CLIENTS = 1024
#: Of the number of an attempt; those of a run are fewer than 2 to this power.
_ATTEMPT_BITS = 20
GREETING_MEMBERS = frozenset({"token", "client", "clients", "attempt", "mode", "saves", "loads", "watches"})


class Mode(Enum):
    """How the updates of several clients come together.

    SUMMED: the updates of one number are applied once, together, when all clients have sent theirs: gradients are summed in the order of clients.
    EACH: an update is applied when it arrives.
    """

    SUMMED = "summed"
    EACH = "each"


def attempt_number(run: int, attempt: int) -> int:
    """The number of an attempt of a run: above those of all runs with lower numbers."""
    return (run << _ATTEMPT_BITS) + attempt


def run_of(number: int) -> int:
    """The run of the number of an attempt."""
    return number >> _ATTEMPT_BITS


@dataclass(frozen=True, slots=True)
class Greeting:
    """What a client says first.

    Attributes:
        token: that of the server.
        client: its place among the clients, from 0 on.
        clients: how many there are.
        attempt: its number; requests of earlier attempts are refused.
        mode: how updates come together.
        saves: the connection is for snapshots.
        loads: the connection is for loads, beside that of an embedding worker for the rows of batches.
        watches: the connection is for the status alone; it belongs to no client.
    """

    token: str = ""
    client: int = 0
    clients: int = 1
    attempt: int = 0
    mode: Mode = Mode.EACH
    saves: bool = False
    loads: bool = False
    watches: bool = False

    def to_document(self) -> dict[str, object]:
        """The JSON object."""
        return {
            "token": self.token,
            "client": self.client,
            "clients": self.clients,
            "attempt": self.attempt,
            "mode": self.mode.value,
            "saves": self.saves,
            "loads": self.loads,
            "watches": self.watches,
        }

    @classmethod
    def read(cls, document: dict[str, object]) -> Greeting:
        """The greeting of a document with :data:`GREETING_MEMBERS`. Raises :class:`DataError`."""
        clients = count_at(document, "clients", least=1, most=MOST_CLIENTS)
        mode, uses = document["mode"], (document["saves"], document["loads"], document["watches"])
        if mode not in [one.value for one in Mode] or not all(isinstance(one, bool) for one in uses):
            raise DataError("a greeting must say how updates come together", value=str((mode, *uses))[:80],
                            allowed=", ".join(one.value for one in Mode))  # fmt: skip
        client = count_at(document, "client", most=clients - 1)
        return cls(
            text_at(document, "token"),
            client,
            clients,
            count_at(document, "attempt"),
            Mode(mode),
            bool(uses[0]),
            bool(uses[1]),
            bool(uses[2]),
        )


def is_new(applied: int, number: int, client: int) -> bool:
    """Whether the update ``number`` is to be made after the update ``applied``; False for one that was made.

    Raises :class:`InputError` for one that is ahead: an update before it was lost.
    """
    if number <= applied:
        return False
    if number != applied + 1:
        raise InputError(
            "updates of a client must be in order", where=f"client {client}", value=number, allowed=str(applied + 1)
        )
    return True


def missing_updates(applied: Sequence[int], client: int) -> int:
    """By how many updates the slowest other client is behind a client: the staleness of what the client reads."""
    others = [number for one, number in enumerate(applied) if one != client]
    return max(applied[client] - min(others), 0) if others else 0
