"""A channel between the hosts of a job, over TCP: one stream from each host to each other, one message a call."""

from __future__ import annotations

import queue
import secrets
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from trainer.errors import AttemptOver, HostLost
from trainer.job.host.host_messages import HostGreeting, Sender, write_message
from trainer.job.host.mailbox import Mailbox
from trainer.job.host.sent_stream import SentStream, StreamOptions
from trainer.wire.flight.addresses import Address
from transforms.arrays import Array

_LOOK_SECS = 0.05
_NEXT_STEP = "the job trains the epoch again from its last commit"
_SESSION_BITS = 62


def _draw_session() -> int:
    return secrets.randbits(_SESSION_BITS)


class HostExchange:
    """One channel of an attempt: a :class:`~trainer.job.host.channels.Channel`.

    A connection that ends, or whose bytes are damaged, is made again, and what has not arrived is sent again.

    Args:
        mailbox: where this host's messages arrive.
        rank: of this host among all hosts.
        addresses: of each host's :class:`~trainer.job.host.exchange_service.ExchangeService`, by rank.
        channel: its number.
        members: the ranks of the hosts on the channel, by their places on it; None: all hosts. Its own rank is its place.
        check: called while it waits; raises to end the attempt.
        patience_secs: a host may be silent for so long.
        options: of the streams to the other hosts, but for their check, patience and clock.
        draw_session: draws the numbers of connections and of this channel.
    """

    def __init__(
        self,
        mailbox: Mailbox,
        attempt: int,
        rank: int,
        addresses: Sequence[Address],
        *,
        channel: int = 0,
        members: Sequence[int] | None = None,
        token: str = "",
        check: Callable[[], None],
        patience_secs: float = 300.0,
        clock: Callable[[], float] = time.monotonic,
        options: StreamOptions | None = None,
        draw_session: Callable[[], int] = _draw_session,
    ) -> None:
        self._members = tuple(range(len(addresses)) if members is None else members)
        self.rank, self.hosts = self._members.index(rank), len(self._members)
        self._mailbox, self._attempt, self._channel, self._still = mailbox, attempt, channel, check
        self._patience_secs, self._clock = patience_secs, clock
        options = StreamOptions(check) if options is None else options
        options = replace(options, check=self._check, patience_secs=patience_secs, clock=clock)
        greeting = HostGreeting(self._sender(self.rank), token, draw_session())
        # Each host sends to the next one first: no host receives from all at once.
        others = [(self.rank + k) % self.hosts for k in range(1, self.hosts)]
        self._streams = {
            r: SentStream(greeting, self._sender(r), addresses[self._members[r]], options, draw_session) for r in others
        }
        self._own: queue.SimpleQueue[Sequence[Array]] = queue.SimpleQueue()
        self._is_closed = False
        self._sending, self._receiving = threading.Lock(), threading.Lock()
        mailbox.begin(attempt)

    @property
    def reconnections(self) -> int:
        """How often a connection to another host was made again."""
        return sum(one.reconnections for one in self._streams.values())

    def all_to_all(self, parts: Sequence[Sequence[Array]]) -> list[Sequence[Array]]:
        """See :class:`~trainer.tables.routes.exchange.Exchange`. Raises :class:`HostLost`, and what ``check`` raises."""
        self.send(parts)
        return self.receive()

    def send(self, parts: Sequence[Sequence[Array]]) -> None:
        """See :class:`~trainer.job.host.channels.Channel`. Raises as :meth:`all_to_all`."""
        with self._sending:
            self._own.put(parts[self.rank])
            for r, stream in self._streams.items():
                stream.send(*write_message(parts[r], self._mailbox.most_bytes))

    def receive(self) -> list[Sequence[Array]]:
        """See :class:`~trainer.job.host.channels.Channel`. Raises as :meth:`all_to_all`."""
        with self._receiving:
            found = {r: self._take(r) for r in self._streams}
            found[self.rank] = self._take_own()
            return [found[r] for r in range(self.hosts)]

    def finish(self) -> None:
        """Wait until all that was sent has arrived, as before a host ends its attempt. Raises as :meth:`all_to_all`."""
        with self._sending:
            for stream in self._streams.values():
                stream.finish()

    def _check(self) -> None:
        if self._is_closed:
            raise AttemptOver("a channel must be open until the attempt ends", where=str(self._sender(self.rank)))
        self._still()

    def _sender(self, place: int) -> Sender:
        return Sender(self._attempt, self._members[place], self._channel)

    def _take(self, r: int) -> Sequence[Array]:
        sender, until = self._sender(r), self._clock() + self._patience_secs
        while True:
            self._check()
            message = self._mailbox.take(sender, _LOOK_SECS)
            if message is not None:
                return message.arrays
            for stream in self._streams.values():
                stream.look()
            if self._clock() >= until:
                raise HostLost("a host must answer", where=str(sender), value=f"silent for {self._patience_secs:g} s",
                               next_step=_NEXT_STEP)  # fmt: skip

    def _take_own(self) -> Sequence[Array]:
        """What this host sent to itself, once another thread has sent it."""
        while True:
            try:
                return self._own.get(timeout=_LOOK_SECS)
            except queue.Empty:
                self._check()

    def close(self) -> None:
        """End the streams to the other hosts; calls in other threads raise :class:`AttemptOver`."""
        self._is_closed = True
        with self._sending, self._receiving:
            for stream in self._streams.values():
                stream.close()
