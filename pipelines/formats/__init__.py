"""Preparation of four public logs as training tables: globo, movielens, criteo, obd.

``globo`` and ``movielens`` hold clicks only and get negatives; ``criteo`` and ``obd`` hold impressions and clicks.
"""

from __future__ import annotations

from importlib import import_module

from pipelines.errors import UnknownFormat
from pipelines.formats.options import FormatOptions
from pipelines.ingest.report import ImportReport
from pipelines.runners.progress import OnProgress
from transforms.errors import nearest
from transforms.installation import own_module

__all__ = ["FORMATS", "FormatOptions", "prepare"]

#: The logs that can be prepared, by name.
FORMATS = ("criteo", "globo", "movielens", "obd")


def prepare(
    format_name: str,
    source: str,
    output: str,
    options: FormatOptions | None = None,
    progress: OnProgress | None = None,
) -> ImportReport:
    """Prepare the log of this format in ``source`` as hive-partitioned Parquet in ``output``.

    Raises :class:`UnknownFormat` for a name not in :data:`FORMATS`, and the errors of the format's ``prepare``.
    """
    if format_name not in FORMATS:
        raise UnknownFormat("the log format must be a known one", value=format_name, allowed=", ".join(FORMATS),
                            next_step=f"did you mean {nearest(format_name, FORMATS, 1)}? Other logs: give a schema file"
                            )  # fmt: skip
    module = import_module(own_module(f"pipelines.formats.{format_name}"))
    report: ImportReport = module.prepare(source, output, options, progress)
    return report
