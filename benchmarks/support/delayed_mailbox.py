"""A mailbox whose messages come as late as on a network with a delay and a rate."""

from __future__ import annotations

import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass

from trainer.job.host.host_messages import Message, Sender
from trainer.job.host.mailbox import Arrival, Mailbox


@dataclass(frozen=True, slots=True)
class Link:
    """The link into a host: ``delay_secs`` one way, and so many bytes a second from all senders together; 0 for no limit."""

    delay_secs: float = 0.0
    bytes_per_sec: float = 0.0

    def __str__(self) -> str:
        rate = f"{self.bytes_per_sec * 8 / 1e9:g} Gbit/s" if self.bytes_per_sec else "no limit"
        return f"delay {self.delay_secs * 1e3:g} ms, {rate}"


class DelayedMailbox(Mailbox):
    """A mailbox behind a ``link``, which may be changed while nothing is sent.

    A message arrives over loopback; then it passes the link, one message after the other, and is on its way for the delay. Messages of
    senders for which ``is_far`` is false come at once.

    Attributes:
        far_bytes: of the arrays that have passed the link.
    """

    def __init__(self, is_far: Callable[[Sender], bool] = lambda sender: True) -> None:
        super().__init__()
        self.link, self._is_far = Link(), is_far
        self.far_bytes = 0
        self._lock = threading.Lock()
        self._free_secs = 0.0
        self._due: dict[Sender, deque[float]] = defaultdict(deque)

    def put(self, arrival: Arrival, message: Message) -> bool:
        """Add a message, which passes the link from now on."""
        sender = arrival.sender
        link, is_far = self.link, self._is_far(sender)
        with self._lock:
            if not is_far:
                self._due[sender].append(0.0)
                return super().put(arrival, message)
            self.far_bytes += message.size_bytes
            passed = max(time.monotonic(), self._free_secs)
            if link.bytes_per_sec:
                passed += message.size_bytes / link.bytes_per_sec
            self._free_secs = passed
            self._due[sender].append(passed + link.delay_secs)
        return super().put(arrival, message)

    def take(self, sender: Sender, timeout_secs: float) -> Message | None:
        """The next message of a sender, when it has come over the link."""
        message = super().take(sender, timeout_secs)
        if message is not None:
            with self._lock:
                due = self._due[sender].popleft()
            time.sleep(max(due - time.monotonic(), 0.0))
        return message
