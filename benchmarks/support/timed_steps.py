"""A process of Headrace that writes when its first and its last optimizer step ended.

    python -m benchmarks.support.timed_steps FILE ARGUMENTS...

ARGUMENTS are those of ``headrace``. The processes of a job are started in the same way, so the host writes the file.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

from headrace.cli.main import main


def time_steps(file: Path) -> None:
    """Write the wall clock at the ends of the first step, in which TensorFlow compiles, and of the last one, and the steps."""
    from trainer.run.weights.run_state import Weights

    train, times = Weights.train, list[float]()

    def timed(weights: Weights, batch: Any) -> Any:
        result, now = train(weights, batch), time.time()
        times[:] = (times[0], now, times[2] + 1) if times else (now, now, 1)
        return result

    Weights.train = timed  # type: ignore[method-assign]
    try:
        main(sys.argv[2:])
    finally:
        if times:
            file.write_text(" ".join(map(str, times)))


def start_roles_like_this(file: Path) -> None:
    """Let a job start its processes by this module."""
    from headrace.cli import training_jobs

    command = training_jobs.role_command

    def timed(*given: Any, **options: Any) -> list[str]:
        return [sys.executable, "-m", "benchmarks.support.timed_steps", str(file), *command(*given, **options)[3:]]

    training_jobs.role_command = timed


if __name__ == "__main__":
    target, arguments = Path(sys.argv[1]), sys.argv[2:]
    if "--hosts" in arguments:
        start_roles_like_this(target)
        main(arguments)
    elif arguments[:2] == ["role", "host"] or arguments[0] == "train":
        time_steps(target)
    else:
        main(arguments)
