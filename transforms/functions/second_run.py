"""A second run of a function's first rows in other processes; the results must be equal bit for bit.

It detects hidden dependencies: the order of sets, time zones, the clock, random numbers, addresses, the environment,
state between calls, neighbouring rows.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from contextvars import ContextVar

import pyarrow as pa

from transforms.functions.arrow_streams import arrays_of, bytes_of
from transforms.functions.clean_process import CleanProcess, ProcessEnded

#: The maximum of evenly spread rows, and of bytes of a batch, that are computed again.
SAMPLE_ROWS = 65_536
SAMPLE_BYTES = 64 * 2**20
_SEEDS = (1, 2, 3)
_PROCESSES = 2
#: The processes end after the fragment; this is for a parent that does not end them.
_IDLE_SECS = 3600.0


class Differs(Exception):
    """The result of the second run differs; the text states how."""


class SecondRuns:
    """The other processes and the checked rows. The context ``waiting`` is active while they compute."""

    def __init__(self, waiting: Callable[[], AbstractContextManager[object]] = nullcontext) -> None:
        seeds = [seed for seed in _SEEDS if os.environ.get("PYTHONHASHSEED") != str(seed)]
        self._processes = [CleanProcess(seed, _IDLE_SECS) for seed in seeds[:_PROCESSES]]
        self._waiting = waiting
        self._rows_seen: dict[tuple[str, str, str], int] = {}

    def check(self, arrays: Sequence[pa.Array], result: pa.Array, bundle: str, keywords: str, gives: str) -> None:
        """Compute a sample of ``result`` again unless one as large was. Raises :class:`Differs`."""
        picks = _sample(arrays, result)
        key = (bundle, keywords, gives)
        if len(picks) <= self._rows_seen.get(key, 0):
            return
        with self._waiting():
            self._compare([array.take(picks) for array in arrays], result.take(picks), key)
        self._rows_seen[key] = len(picks)

    def _compare(self, arrays: Sequence[pa.Array], here: pa.Array, key: tuple[str, str, str]) -> None:
        for process in self._processes:
            process.start()  # all at once: starting takes most of the time
        rows, payload = len(here), bytes_of(arrays)
        cut = rows // 3
        halves = [part for part in ((0, cut), (cut, rows)) if part[0] < part[1]]
        for number, process in enumerate(self._processes):
            parts = halves[::-1] if number % 2 else halves
            request = {"do": "run", "bundle": key[0], "keywords": key[1], "gives": key[2], "parts": parts}
            try:
                document, found = process.ask(request, payload)
            except ProcessEnded as error:
                raise Differs(f"does not run in another process: {error}") from error
            if "error" in document:
                raise Differs(f"fails in another process: {document['error']}")
            if document["changed"]:
                raise Differs(f"changes {document['changed']}, which it must not")
            (there,) = arrays_of(found)
            if bytes_of([there]) != bytes_of([here]):
                raise Differs(f"gives other values in another process: {_difference(here, there, arrays)}")

    def close(self) -> None:
        """End the other processes; the record of checked rows stays."""
        for process in self._processes:
            process.close()


#: The second runs of this process; a worker sets it.
SECOND_RUNS: ContextVar[SecondRuns | None] = ContextVar("SECOND_RUNS", default=None)


def _sample(arrays: Sequence[pa.Array], result: pa.Array) -> pa.Array:
    """The rows that are computed again: all of a small batch, otherwise evenly spread ones."""
    rows = len(result)
    held = max(1, sum(array.nbytes for array in arrays) + result.nbytes)
    wanted = max(1, min(rows, SAMPLE_ROWS, rows * SAMPLE_BYTES // held))
    return pa.array([number * (rows - 1) // max(1, wanted - 1) for number in range(wanted)], pa.int64())


def _difference(here: pa.Array, there: pa.Array, arrays: Sequence[pa.Array]) -> str:
    for number in range(len(here)):
        one, other = here.slice(number, 1), there.slice(number, 1)
        if bytes_of([one.take([0])]) != bytes_of([other.take([0])]):
            values = ", ".join(f"{array[number].as_py()!r:.100}" for array in arrays)
            return f"{other[0].as_py()!r:.100} there and {one[0].as_py()!r:.100} here, for {values}"
    return "their lengths or layouts differ"
