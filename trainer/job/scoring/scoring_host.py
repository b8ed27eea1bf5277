"""A host that scores with others: its exchange, and how hosts of one machine find each other."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from trainer.errors import HostLost
from trainer.job.control.job_files import replace_file
from trainer.job.host.channels import ChannelName
from trainer.job.host.exchange_service import ExchangeService
from trainer.job.host.host_exchange import HostExchange
from trainer.job.host.mailbox import Mailbox
from trainer.job.scoring.shared_scoring import ScoringChannels
from trainer.wire.flight.addresses import Address

#: How long a host waits for others that have not begun, and for one that is silent.
PATIENCE_SECS = 600.0
_LOOK_SECS, _CONNECT_SECS = 0.05, 5.0
#: Scoring has one attempt.
_ATTEMPT = 1


@contextmanager
def scoring_channels(
    rank: int,
    listen: Address,
    find_hosts: Callable[[Address], Sequence[Address]],
    *,
    token: str = "",
    check: Callable[[], None] = lambda: None,
    patience_secs: float = PATIENCE_SECS,
) -> Iterator[ScoringChannels]:
    """The channels of the host of ``rank`` while it is in the block.

    Args:
        listen: where it receives; port 0 is any.
        find_hosts: given the address with its port, returns the addresses of all hosts by rank.
        token: of all hosts.
        check: called while it waits; raises to give up.

    Raises :class:`~trainer.errors.ConfigError` for an address that cannot be used.
    """
    mailbox = Mailbox()
    with ExchangeService(listen, mailbox, token=token) as service, ExitStack() as open_channels:
        addresses = find_hosts(service.address)
        tables, steps = (
            HostExchange(mailbox, _ATTEMPT, rank, addresses, channel=name, token=token, check=check, patience_secs=patience_secs)
            for name in (ChannelName.TABLES, ChannelName.STEPS)
        )  # fmt: skip
        for one in (tables, steps):
            open_channels.callback(one.close)
        yield ScoringChannels(tables, steps)
        # A host that leaves says no more what has arrived: each waits for the others, and none needs anything of them any more.
        with suppress(HostLost):
            for one in (tables, steps):
                one.finish()
            steps.all_to_all([()] * len(addresses))


def wait_for_hosts(addresses: Sequence[Address], *, patience_secs: float = PATIENCE_SECS) -> None:
    """Return once a process listens at each address. Raises :class:`HostLost` for one where none does in time."""
    until = time.monotonic() + patience_secs
    for rank, address in enumerate(addresses):
        while not _listens(address):
            if time.monotonic() > until:
                raise _not_begun(rank, len(addresses), patience_secs, str(address))
            time.sleep(_LOOK_SECS)


def _listens(address: Address) -> bool:
    try:
        with socket.create_connection((address.host, address.port), timeout=_CONNECT_SECS):
            return True
    except OSError:
        return False


def meet(
    folder: Path, rank: int, hosts: int, address: Address, check: Callable[[], None], *, patience_secs: float = PATIENCE_SECS
) -> list[Address]:  # fmt: skip
    """The addresses of all hosts by rank, each of which writes its own to a file of ``folder``. Raises :class:`HostLost`."""
    replace_file(folder / _file(rank), str(address).encode())  # others read it as soon as it has its name
    until = time.monotonic() + patience_secs
    while True:
        missing = [one for one in range(hosts) if not (folder / _file(one)).exists()]
        if not missing:
            return [Address.parse((folder / _file(one)).read_text()) for one in range(hosts)]
        check()
        if time.monotonic() > until:
            raise _not_begun(missing[0], hosts, patience_secs, str(folder))
        time.sleep(_LOOK_SECS)


def _file(rank: int) -> str:
    return f"host-{rank}"


def _not_begun(rank: int, hosts: int, patience_secs: float, where: str) -> HostLost:
    return HostLost("each host that scores must begin", where=f"host {rank} of {hosts}, {where}", value=f"waited for {patience_secs:g} s",
                    next_step="look at its output, and start the command again on all hosts")  # fmt: skip
