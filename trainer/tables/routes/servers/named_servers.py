"""The servers that a client names to its embedding worker: those to which its tables were moved, or those that are not away."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, Any

from trainer.errors import ConfigError
from trainer.wire.flight.addresses import Address
from transforms.derived_documents import Form, document_of, read_value
from transforms.documents import Part

#: The most servers of a client.
MOST_SERVERS = 4096


def read_addresses(part: Part) -> tuple[Address, ...]:
    """The addresses of servers in a list. Raises :class:`~transforms.errors.DataError`."""
    try:
        return tuple(Address.parse(one.text()) for one in part.items(least=1, most=MOST_SERVERS))
    except ConfigError as error:
        raise part.refused_by(error) from None


#: Addresses of servers as a member of a document.
ServerAddresses = Annotated[
    tuple[Address, ...], Form(read_addresses, lambda addresses: [str(one) for one in addresses])
]


@dataclass(frozen=True, slots=True)
class NamedServers:
    """Servers that a worker connects to for a client, in place of those it was started with.

    A worker sends them the token of the client and never its own, so that a client learns no token.

    Attributes:
        addresses: in the order of the plan's cores.
        token: of the servers; empty for none.
        is_encrypted: whether connections to them are encrypted, with the authority of the worker's ``--server-ca``.
    """

    addresses: ServerAddresses
    token: Annotated[str, partial(Part.text, any_character=True)] = field(default="", repr=False)
    is_encrypted: bool = False

    def check_read(self, part: Part) -> None:
        """Raise :class:`~transforms.errors.DataError` for an address that is there twice."""
        if len(set(self.addresses)) != len(self.addresses):
            raise part.at("addresses").refused("different addresses")

    def to_document(self) -> dict[str, Any]:
        """The JSON object."""
        document: dict[str, Any] = document_of(self)
        return document

    @classmethod
    def read(cls, document: object) -> NamedServers:
        """The servers of a document. Raises :class:`~transforms.errors.DataError`."""
        return read_value(cls, Part(document, "servers of a client"))
