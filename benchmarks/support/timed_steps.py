"""A process of Headrace that writes when its first and its last optimizer step ended.

    python -m benchmarks.support.timed_steps FILE ARGUMENTS...

ARGUMENTS are those of ``headrace``. The processes of a job are started in the same way, so the host writes the file.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.support.started_roles import start_roles_by
from headrace.cli.main import main


def time_steps(file: Path) -> None:
    """Write the wall clock at the ends of the first step, in which TensorFlow compiles, and of the last one, and the steps."""
    from trainer.run.weights.step_pipeline import StepPipeline

    times = list[float]()

    def timed(inner: Callable[..., Sequence[Any]]) -> Callable[..., Sequence[Any]]:
        def trained(*given: Any) -> Sequence[Any]:
            found, now = inner(*given), time.time()
            if found:
                times[:] = (times[0], now, times[2] + len(found)) if times else (now, now, len(found))
            return found

        return trained

    for method in ("train", "drain"):
        setattr(StepPipeline, method, timed(getattr(StepPipeline, method)))
    try:
        main(sys.argv[2:])
    finally:
        if times:
            file.write_text(" ".join(map(str, times)))


if __name__ == "__main__":
    target, arguments = Path(sys.argv[1]), sys.argv[2:]
    if "--hosts" in arguments:
        start_roles_by("benchmarks.support.timed_steps", str(target))
        main(arguments)
    elif arguments[:2] == ["role", "host"] or arguments[0] == "train":
        time_steps(target)
    else:
        main(arguments)
