"""The processes of a job, started by a module of the benchmarks in place of Headrace's, with a file before their arguments."""

from __future__ import annotations

import sys
from typing import Any


def start_roles_by(module: str, file: str) -> None:
    """Let a job that this process starts have ``python -m MODULE FILE ARGUMENT …``, where ARGUMENT … are those of ``headrace``."""
    from headrace.cli import training_jobs

    command = training_jobs.role_command

    def started(*given: Any, **options: Any) -> list[str]:
        return [sys.executable, "-m", module, file, *command(*given, **options)[3:]]

    training_jobs.role_command = started
