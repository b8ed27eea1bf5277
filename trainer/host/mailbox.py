"""The messages that other hosts have sent to this one, until its attempt takes them."""

from __future__ import annotations

import threading
from collections import deque

from trainer.errors import HostLost
from trainer.host.host_messages import MOST_MESSAGE_BYTES, Message, Sender
from transforms.errors import DataError

#: Messages of one sender that wait; one that is further ahead waits in its stream.
_MOST_WAITING = 4


class Mailbox:
    """The messages of all senders; any thread may use it.

    ``most_bytes``: of one message, and of the messages of one sender that wait.
    """

    def __init__(self, *, most_bytes: int = MOST_MESSAGE_BYTES) -> None:
        self.most_bytes = most_bytes
        self._changed = threading.Condition()
        self._messages: dict[Sender, deque[Message]] = {}
        self._begun: set[Sender] = set()
        self._ended: set[Sender] = set()
        self._attempt = 0
        self._closed = False

    def begin(self, attempt: int) -> None:
        """Begin an attempt: messages of earlier ones are discarded."""
        with self._changed:
            self._attempt = attempt
            self._messages = {sender: held for sender, held in self._messages.items() if sender.attempt >= attempt}
            self._begun = {sender for sender in self._begun if sender.attempt >= attempt}
            self._ended = {sender for sender in self._ended if sender.attempt >= attempt}
            self._changed.notify_all()

    def open(self, sender: Sender) -> None:
        """Begin the stream of a sender. Raises :class:`DataError` for a second one."""
        with self._changed:
            if sender in self._begun:
                raise DataError("a host must send one stream in an attempt", where=str(sender), value="a second one")
            self._begun.add(sender)

    def wait_for_space(self, sender: Sender, size_bytes: int) -> bool:
        """Wait until a message of this length may come; False if the attempt is over."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_over(sender) or self._has_space(sender, size_bytes))
            return not self._is_over(sender)

    def _has_space(self, sender: Sender, size_bytes: int) -> bool:
        held = self._messages.get(sender, ())
        held_bytes = sum(one.size_bytes for one in held)
        return not held or (len(held) < _MOST_WAITING and held_bytes + size_bytes <= self.most_bytes)

    def _is_over(self, sender: Sender) -> bool:
        return self._closed or sender.attempt < self._attempt

    def put(self, sender: Sender, message: Message) -> bool:
        """Add a message for which there is space; False if the attempt is over."""
        with self._changed:
            if self._is_over(sender):
                return False
            self._messages.setdefault(sender, deque()).append(message)
            self._changed.notify_all()
            return True

    def end(self, sender: Sender) -> None:
        """The stream of a sender ended."""
        with self._changed:
            if not self._is_over(sender):
                self._ended.add(sender)
            self._changed.notify_all()

    def take(self, sender: Sender, timeout_secs: float) -> Message | None:
        """The next message of a sender, or None if there is none yet. Raises :class:`HostLost` after the end of its stream."""
        with self._changed:
            self._changed.wait_for(lambda: self._messages.get(sender) or sender in self._ended, timeout_secs)
            if held := self._messages.get(sender):
                message = held.popleft()
                self._changed.notify_all()
                return message
            if sender in self._ended:
                raise HostLost("a host must stay until the end of the attempt", where=str(sender),
                               next_step="the job trains the epoch again from its last commit")  # fmt: skip
            return None

    def close(self) -> None:
        """Take no more messages."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
