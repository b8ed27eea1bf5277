"""Apache Beam jobs over pure functions: importing raw logs, preparing public ones, memoizing components, the worker.

Names are loaded when they are first used: Beam costs a second, and reading a schema file needs none of it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pipelines.beam_runner import RunnerOptions
    from pipelines.formats import FORMATS, FormatOptions, prepare
    from pipelines.import_logs import ImportConfig, import_logs
    from pipelines.import_report import ImportReport
    from pipelines.isolation.limits import IsolationLimits
    from pipelines.log_schema import LogSchema
    from pipelines.worker import WorkerConfig, run_worker
    from pipelines.worker_report import WorkerReport

_HOMES = {
    "RunnerOptions": "pipelines.beam_runner",
    "FORMATS": "pipelines.formats",
    "FormatOptions": "pipelines.formats",
    "prepare": "pipelines.formats",
    "ImportConfig": "pipelines.import_logs",
    "import_logs": "pipelines.import_logs",
    "ImportReport": "pipelines.import_report",
    "IsolationLimits": "pipelines.isolation.limits",
    "LogSchema": "pipelines.log_schema",
    "WorkerConfig": "pipelines.worker",
    "WorkerReport": "pipelines.worker_report",
    "run_worker": "pipelines.worker",
}

__all__ = [
    "FORMATS",
    "FormatOptions",
    "ImportConfig",
    "ImportReport",
    "IsolationLimits",
    "LogSchema",
    "RunnerOptions",
    "WorkerConfig",
    "WorkerReport",
    "import_logs",
    "prepare",
    "run_worker",
]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'pipelines' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
