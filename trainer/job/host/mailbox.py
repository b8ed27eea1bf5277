"""The messages that other hosts have sent to this one, until its attempt takes them."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from trainer.errors import AttemptOver, HostLost
from trainer.job.host.host_messages import MOST_MESSAGE_BYTES, Message, Sender
from transforms.errors import DataError

#: Messages of one sender that wait; one that is further ahead waits in its stream.
_MOST_WAITING = 4


#: How long the stream of a host may be away before the host is lost.
RETURN_SECS = 10.0


@dataclass(eq=False)
class Arrival:
    """One connection by which messages of a sender arrive; a newer one takes its place.

    ``wanted``: the number of the next message.
    """

    sender: Sender
    origin: int
    wanted: int = 0


class Mailbox:
    """The messages of all senders; any thread may use it.

    Args:
        most_bytes: of one message, and of the messages of one sender that wait.
        return_secs: how long the stream of a sender may be away.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        *,
        most_bytes: int = MOST_MESSAGE_BYTES,
        return_secs: float = RETURN_SECS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.most_bytes, self._return_secs, self._clock = most_bytes, return_secs, clock
        self._changed = threading.Condition()
        self._messages: dict[Sender, deque[Message]] = {}
        self._arrivals: dict[Sender, Arrival] = {}
        self._ended: set[Sender] = set()
        self._away_since: dict[Sender, float] = {}
        self._attempt = 0
        self._closed = False

    def begin(self, attempt: int) -> None:
        """Begin an attempt: messages of earlier ones are discarded."""
        with self._changed:
            self._attempt = attempt
            self._messages = {sender: held for sender, held in self._messages.items() if sender.attempt >= attempt}
            self._arrivals = {sender: one for sender, one in self._arrivals.items() if sender.attempt >= attempt}
            self._ended = {sender for sender in self._ended if sender.attempt >= attempt}
            self._away_since = {sender: at for sender, at in self._away_since.items() if sender.attempt >= attempt}
            self._changed.notify_all()

    def open(self, sender: Sender, origin: int) -> Arrival:
        """Begin the stream of a sender, or go on with it where its earlier connection ended.

        Raises :class:`AttemptOver` for an earlier attempt, and :class:`DataError` for a stream of another origin.
        """
        with self._changed:
            if self._is_over(sender):
                raise AttemptOver(
                    "the attempt of a host must be the newest one", where=str(sender), allowed=str(self._attempt)
                )
            before = self._arrivals.get(sender)
            if before is not None and before.origin != origin:
                raise DataError("a host must send one stream in an attempt", where=str(sender), value="a second one")
            self._arrivals[sender] = arrival = Arrival(sender, origin, 0 if before is None else before.wanted)
            self._away_since.pop(sender, None)
            self._changed.notify_all()
            return arrival

    def wait_for_space(self, arrival: Arrival, size_bytes: int) -> bool:
        """Wait until a message of this length may come; False if it comes by a newer connection, or the attempt is over."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_replaced(arrival) or self._has_space(arrival.sender, size_bytes))
            return not self._is_replaced(arrival)

    def _has_space(self, sender: Sender, size_bytes: int) -> bool:
        held = self._messages.get(sender, ())
        held_bytes = sum(one.size_bytes for one in held)
        return not held or (len(held) < _MOST_WAITING and held_bytes + size_bytes <= self.most_bytes)

    def _is_over(self, sender: Sender) -> bool:
        return self._closed or sender.attempt < self._attempt

    def _is_replaced(self, arrival: Arrival) -> bool:
        return self._is_over(arrival.sender) or self._arrivals.get(arrival.sender) is not arrival

    def put(self, arrival: Arrival, message: Message) -> bool:
        """Add the next message, for which there is space; False if it comes by a newer connection, or the attempt is over."""
        with self._changed:
            if self._is_replaced(arrival):
                return False
            assert message.number == arrival.wanted, "messages come in order"
            arrival.wanted += 1
            self._messages.setdefault(arrival.sender, deque()).append(message)
            self._changed.notify_all()
            return True

    def end(self, arrival: Arrival, *, is_last: bool) -> None:
        """A connection ended; ``is_last``: its sender has said that it has no more messages. Else it may return with another one."""
        with self._changed:
            if not self._is_replaced(arrival):
                if is_last:
                    self._ended.add(arrival.sender)
                else:
                    self._away_since[arrival.sender] = self._clock()
            self._changed.notify_all()

    def take(self, sender: Sender, timeout_secs: float) -> Message | None:
        """The next message of a sender, or None if there is none yet.

        Raises :class:`HostLost` after the end of its stream, and after one that ended otherwise and did not return in time.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._messages.get(sender) or sender in self._ended, timeout_secs)
            if held := self._messages.get(sender):
                message = held.popleft()
                self._changed.notify_all()
                return message
            away_since = self._away_since.get(sender)
            if sender in self._ended or (away_since is not None and self._clock() >= away_since + self._return_secs):
                raise HostLost("another host left before the end of the attempt", where=str(sender),
                               next_step="the job trains the epoch again from its last commit")  # fmt: skip
            return None

    def close(self) -> None:
        """Take no more messages."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
