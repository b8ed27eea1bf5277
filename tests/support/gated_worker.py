"""A Beam worker that stops before its third fragment until a file exists.

So a test can kill something in the middle of a job, however fast the machine is: at the gate some fragments have their
results, and the others cannot get them. ``python -m tests.support.gated_worker GATE --id=...``, started by a runner.
"""

from __future__ import annotations

import itertools
import os
import sys
import time
from pathlib import Path
from typing import Any

from pipelines.joins.pipeline import ReadPieces
from pipelines.memoize.pipeline import MemoizeFragments
from pipelines.runners import process_worker

FRAGMENTS_BEFORE_THE_GATE = 2
_OPEN, _WAITING = "open", "waiting"


def open_gate(gate: Path) -> None:
    (gate / _OPEN).touch()


def seen(gate: Path) -> list[tuple[int, int]]:
    """The processes of all workers that came to be, each with the process that started it."""
    names = [path.name.split("-") for path in gate.iterdir() if path.name not in (_OPEN, _WAITING)]
    return [(int(worker), int(starter)) for worker, starter in names]


def waiting(gate: Path) -> int:
    """How many workers stand at the gate, or did so."""
    return len(list((gate / _WAITING).glob("*")))


def main(gate: Path, arguments: list[str]) -> None:
    """Be a worker; leave word of whose (``<process>-<parent>``) beside the gate."""
    compute = MemoizeFragments.work
    read = ReadPieces.outputs
    fragments = itertools.count()

    def wait() -> None:
        if next(fragments) >= FRAGMENTS_BEFORE_THE_GATE:
            (gate / _WAITING).mkdir(exist_ok=True)
            (gate / _WAITING / str(os.getpid())).touch()
            while not (gate / _OPEN).exists():
                time.sleep(0.02)

    def gated(step: MemoizeFragments, element: str) -> Any:
        wait()
        return compute(step, element)

    def gated_read(step: ReadPieces, element: str) -> Any:
        wait()
        return read(step, element)

    MemoizeFragments.work = gated  # type: ignore[method-assign]
    ReadPieces.outputs = gated_read  # type: ignore[method-assign]
    (gate / f"{os.getpid()}-{os.getppid()}").touch()
    process_worker.main(arguments)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
