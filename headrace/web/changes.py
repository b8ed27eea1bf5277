"""Changes and previews that run longer than a request waits for them: what each is doing, and what came of it."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias

from transforms.errors import Busy

#: The most changes that are remembered; then the oldest that has ended is forgotten.
MOST_CHANGES = 100

#: The most that wait or run at once, if a reader begins them.
MOST_READERS = 8

#: Called with what is done so far, and all.
Progress: TypeAlias = Callable[[int, int], None]


@dataclass(eq=False)
class RunningChange:
    """One change.

    Attributes:
        name: What it does, for people.
        note: What else its page says.
        began: When it began, in monotonic seconds.
        ended: When it ended.
        done: Memos that are done.
        all: All memos; 0 while they are unknown.
        place: Once it is done, the address of the page that shows it.
        error: Why it was not done.
    """

    name: str
    note: str
    began: float
    ended: float | None = None
    done: int = 0
    all: int = 0
    place: str = ""
    error: Exception | None = None
    _over: threading.Event = field(default_factory=threading.Event)

    def report(self, done: int, of: int) -> None:
        """Say how far it is."""
        self.done, self.all = done, of

    def secs(self, now: float) -> float:
        """How long it has run."""
        return (now if self.ended is None else self.ended) - self.began

    @property
    def is_over(self) -> bool:
        """Whether it has ended."""
        return self._over.is_set()

    def wait(self, secs: float) -> bool:
        """Wait for its end; whether it came."""
        return self._over.wait(secs)

    def end(self, now: float) -> None:
        """It has ended."""
        self.ended = now
        self._over.set()


class Changes:
    """The changes of a process, of which one runs at a time. ``number``: gives texts that cannot be guessed."""

    def __init__(self, number: Callable[[], str], clock: Callable[[], float] = time.monotonic) -> None:
        self._number, self._clock = number, clock
        self._running = threading.Lock()  # held by the change that runs
        self._lock = threading.Lock()  # of what is known
        self._known: OrderedDict[str, RunningChange] = OrderedDict()

    def do(self, work: Callable[[], str]) -> str:
        """Do a short change when no other runs."""
        with self._running:
            return work()

    def begin(
        self, name: str, work: Callable[[Progress], str], *, note: str = "", most: int | None = None
    ) -> tuple[str, RunningChange]:
        """Begin a change in a thread of its own; it waits for the one that runs. ``work`` gives the address of the page that shows it.

        Raises :class:`~transforms.errors.Busy` if ``most`` wait or run already.
        """
        number, change = self._number(), RunningChange(name, note, self._clock())
        with self._lock:
            if most is not None and sum(not one.is_over for one in self._known.values()) >= most:
                raise Busy("too many previews of evictions are being computed", where="previews", value=most, next_step="try again in a minute")  # fmt: skip
            self._known[number] = change
            ended = [key for key, one in self._known.items() if one.is_over]
            for old in ended[: max(0, len(self._known) - MOST_CHANGES)]:
                del self._known[old]

        def run() -> None:
            try:
                with self._running:
                    change.place = work(change.report)
            except Exception as error:  # shown by its page
                change.error = error
            finally:
                change.end(self._clock())

        threading.Thread(target=run, name=name).start()  # not a daemon: the process ends after it
        return number, change

    def find(self, number: str) -> RunningChange | None:
        """The change of a number."""
        with self._lock:
            return self._known.get(number)
