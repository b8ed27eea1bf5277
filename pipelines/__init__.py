"""Apache Beam jobs over pure functions: importing raw logs, preparing public ones, memoizing components, the worker.

Names are loaded when they are first used: Beam costs a second, and reading a schema file needs none of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from transforms.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from pipelines.beam_runner import RunnerOptions as RunnerOptions
    from pipelines.formats import FORMATS as FORMATS
    from pipelines.formats import FormatOptions as FormatOptions
    from pipelines.formats import prepare as prepare
    from pipelines.import_logs import ImportConfig as ImportConfig
    from pipelines.import_logs import import_logs as import_logs
    from pipelines.import_report import ImportReport as ImportReport
    from pipelines.isolation.limits import IsolationLimits as IsolationLimits
    from pipelines.log_schema import LogSchema as LogSchema
    from pipelines.worker import WorkerConfig as WorkerConfig
    from pipelines.worker import run_worker as run_worker
    from pipelines.worker_report import WorkerReport as WorkerReport

__getattr__, __dir__, __all__ = lazy_exports(__name__)
