"""Processes that each do what comes through a pipe."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Mapping
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Any, Self

#: Of a process whose matrices take one thread.
ONE_THREAD = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")


class PipedProcesses:
    """``count`` processes of ``serve``, a function of a module that gets a process's number and its end of a pipe, until None comes.

    ``environment``: of these processes, and of this one from now on.
    """

    def __init__(
        self, serve: Callable[[int, Connection], None], count: int, environment: Mapping[str, str] = ONE_THREAD
    ) -> None:
        context = multiprocessing.get_context("spawn")
        os.environ |= environment
        self._pipes: list[Connection] = []
        self._processes = []
        for number in range(count):
            own, other = context.Pipe()
            process = context.Process(target=serve, args=(number, other), daemon=True)
            process.start()
            other.close()
            self._pipes.append(own)
            self._processes.append(process)

    def send(self, what: Any) -> None:
        """Send the same to all of them."""
        for pipe in self._pipes:
            pipe.send(what)

    def receive(self) -> list[Any]:
        """What each of them sends next. Raises :class:`EOFError` if a process ended."""
        return [pipe.recv() for pipe in self._pipes]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for pipe, process in zip(self._pipes, self._processes, strict=True):
            if kind is None:
                pipe.send(None)
            else:
                process.kill()
            process.join()
