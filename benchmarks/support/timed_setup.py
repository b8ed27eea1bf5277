"""A process of Headrace that appends the processor seconds that it took, at its end: ``python -m benchmarks.support.timed_setup FILE ARGUMENTS...``.

ARGUMENTS are those of ``headrace``. The processes of a job are started in the same way; each writes a line with its role.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

from headrace.cli.main import main


def start_roles_like_this(file: Path) -> None:
    """Let a job start its processes by this module."""
    from headrace.cli import training_jobs

    command = training_jobs.role_command

    def timed(*given: Any, **options: Any) -> list[str]:
        return [sys.executable, "-m", "benchmarks.support.timed_setup", str(file), *command(*given, **options)[3:]]

    training_jobs.role_command = timed


if __name__ == "__main__":
    target, arguments = Path(sys.argv[1]), sys.argv[2:]
    if arguments[0] == "train":
        start_roles_like_this(target)
    try:
        main(arguments)
    finally:
        role = arguments[1] if arguments[0] == "role" else arguments[0]
        with target.open("a", encoding="utf-8") as lines:
            lines.write(f"{role} {time.process_time()}\n")
