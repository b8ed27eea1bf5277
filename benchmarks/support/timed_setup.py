"""A process of Headrace that appends the processor seconds that it took, at its end: ``python -m benchmarks.support.timed_setup FILE ARGUMENTS...``.

ARGUMENTS are those of ``headrace``. The processes of a job are started in the same way; each writes a line with its role.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from benchmarks.support.started_roles import start_roles_by
from headrace.cli.main import main

if __name__ == "__main__":
    target, arguments = Path(sys.argv[1]), sys.argv[2:]
    if arguments[0] == "train":
        start_roles_by("benchmarks.support.timed_setup", str(target))
    try:
        main(arguments)
    finally:
        role = arguments[1] if arguments[0] == "role" else arguments[0]
        with target.open("a", encoding="utf-8") as lines:
            lines.write(f"{role} {time.process_time()}\n")
