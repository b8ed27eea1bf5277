"""Which updates of which clients a server has made: pure decisions on sequence numbers.

A client has one or more *lanes*: connections over which it spreads its batches, each with another embedding worker. Its updates have one
numbering over all lanes, so that servers make them in the order of training.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import Annotated, Any

from trainer.servers.session_roles import SessionRole
from trainer.tables.routes.servers.frames import Header, Kind
from transforms.derived_documents import Omitted, document_of, read_value, whole
from transforms.documents import Part
from transforms.errors import InputError

#: The most clients of a server.
MOST_CLIENTS = 1024
#: The most lanes of a client.
MOST_LANES = 1024
#: Of the number of an attempt; those of a run are fewer than 2 to this power.
_ATTEMPT_BITS = 20


class Mode(Enum):
    """How the updates of several clients come together.

    SUMMED: the updates of one number are applied once, together, when all clients have sent theirs: gradients are summed in the order of clients.
    EACH: an update is applied when it arrives.
    """

    SUMMED = "summed"
    EACH = "each"


def attempt_number(run: int, attempt: int) -> int:
    """The number of an attempt of a run, above all attempts of runs with lower numbers."""
    return (run << _ATTEMPT_BITS) + attempt


def run_of(number: int) -> int:
    """The run of the number of an attempt."""
    return number >> _ATTEMPT_BITS


_Number = Annotated[int, whole(most=1 << 62)]

#: It is compared with that of the server, whatever its characters are, and no error shows it.
_Token = Annotated[str, partial(Part.text, any_character=True)]


@dataclass(frozen=True, slots=True)
class Greeting:
    """What a client says first.

    Attributes:
        token: that of the server.
        client: its place among the clients, from 0 on.
        clients: how many there are.
        attempt: its number; requests of earlier attempts are refused.
        mode: how updates come together.
        role: what the session is for.
        session: a random number that stays when the client connects again; 0: the connection draws one.
        lane: the lane of the client to which the session belongs, from 0 on.
        lanes: how many the client has.
    """

    token: _Token = ""
    client: int = 0
    clients: Annotated[int, whole(1, MOST_CLIENTS)] = 1
    attempt: _Number = 0
    mode: Mode = Mode.EACH
    role: SessionRole = SessionRole.TRAINS
    session: _Number = 0
    lane: Omitted[int] = 0
    lanes: Omitted[Annotated[int, whole(1, MOST_LANES)]] = 1

    @property
    def watches(self) -> bool:
        """Whether the session belongs to no client."""
        return self.role is SessionRole.WATCHES

    def check_read(self, part: Part) -> None:
        """Raise :class:`DataError` for a place that no client has, or no lane."""
        if self.client >= self.clients:
            raise part.at("client").refused(f"below the {self.clients} clients")
        if self.lane >= self.lanes:
            raise part.at("lane").refused(f"below the {self.lanes} lanes")

    def to_document(self) -> dict[str, Any]:
        """The JSON object."""
        document: dict[str, Any] = document_of(self)
        return document

    @classmethod
    def read(cls, document: object) -> Greeting:
        """The greeting of a document. Raises :class:`DataError`."""
        return read_value(cls, Part(document, "greeting"))


def takes_place(newer: Greeting, earlier: Greeting) -> bool:
    """Whether a newer session ends an earlier one: of an earlier attempt, or of the same lane of its client.

    Sessions of a client with another number of lanes belong to a process that the client has replaced.
    """
    if earlier.attempt < newer.attempt:
        return True
    return earlier.client == newer.client and (earlier.lane == newer.lane or earlier.lanes != newer.lanes)


def is_due(request: Header, applied: Sequence[int], client: int) -> bool:
    """Whether a request may be answered by the updates that were made: an update comes after all before it, a fetch after those up to its floor.

    ``applied``: the number of the last update of each client.
    """
    if request.kind is Kind.UPDATE:
        return request.number <= applied[client] + 1
    return request.kind is not Kind.FETCH or request.floor <= min(applied)


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
