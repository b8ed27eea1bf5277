"""The fragments that batches need, read ahead by threads.

A fragment is read when it is among the first that are needed, and let go of after the last batch, of those that the pool has looked at, that
needs it. So memory holds the fragments of one batch, or of its window, and as many more as are read ahead.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Self

from trainer.run.loading.options import ReadAhead
from trainer.run.reading.columns import DecodedFragment

#: Reads and decodes a fragment by its number.
LoadFragment = Callable[[int], DecodedFragment]


class FragmentPool:
    """The fragments of one batch after the other.

    Args:
        load: reads and decodes a fragment; called in threads.
        needs: of each batch in order, the numbers of its fragments.
        settings: how far to read ahead.
        rounds: the batches that are looked at at least, so that fragments of lanes stay between two of their turns.
    """

    def __init__(
        self, load: LoadFragment, needs: Iterable[Sequence[int]], settings: ReadAhead, *, rounds: int = 1
    ) -> None:
        self._load, self._needs, self._settings, self._rounds = load, iter(needs), settings, rounds
        self._seen: deque[Sequence[int]] = deque()
        self._uses: Counter[int] = Counter()  # of fragments that batches which were looked at need
        self._held: dict[int, Future[DecodedFragment]] = {}
        self._threads = ThreadPoolExecutor(settings.threads, thread_name_prefix="fragment-reader")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._threads.shutdown(wait=True, cancel_futures=True)

    def __iter__(self) -> Iterator[dict[int, DecodedFragment]]:
        """The fragments of each batch, by number. An error of reading is raised at the first batch that needs the fragment."""
        while self._look():
            own = self._seen[0]
            yield {number: self._held[number].result() for number in own}
            self._seen.popleft()
            for number in own:
                self._uses[number] -= 1
                if not self._uses[number]:
                    del self._uses[number], self._held[number]

    def _look(self) -> bool:
        """Look at batches until enough fragments are read ahead; whether there is a batch."""
        while len(self._seen) <= self._rounds or self._ahead < self._settings.fragments:
            own = next(self._needs, None)
            if own is None:
                break
            self._seen.append(own)
            for number in own:
                self._uses[number] += 1
                if number not in self._held:
                    self._held[number] = self._threads.submit(self._load, number)
        return bool(self._seen)

    @property
    def _ahead(self) -> int:
        """The fragments that the next batch does not need."""
        return len(self._held) - len(self._seen[0])
