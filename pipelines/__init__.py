"""Apache Beam jobs: importing raw logs, preparing public ones, memoizing components, analysis, scoring, the worker.

Names are loaded on first use: importing Beam takes a second, which reading a schema file does not need.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from transforms.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from pipelines.formats import FORMATS as FORMATS
    from pipelines.formats import FormatOptions as FormatOptions
    from pipelines.formats import prepare as prepare
    from pipelines.ingest.job import ImportConfig as ImportConfig
    from pipelines.ingest.job import import_logs as import_logs
    from pipelines.ingest.report import ImportReport as ImportReport
    from pipelines.isolation.limits import IsolationLimits as IsolationLimits
    from pipelines.log_schemas.schema import LogSchema as LogSchema
    from pipelines.runners.runner import RunnerOptions as RunnerOptions
    from pipelines.worker.report import WorkerReport as WorkerReport
    from pipelines.worker.worker import WorkerConfig as WorkerConfig
    from pipelines.worker.worker import run_worker as run_worker

__getattr__, __dir__, __all__ = lazy_exports(__name__)
