"""The Criteo Kaggle display-advertising log: label, 13 integers, 26 hashed categories, tab separated, empty is missing.

Lines are in time order but have no time, so time is made up from the line number: :data:`ROWS_PER_HOUR` lines per hour
from :data:`START`, evenly spread. Columns: ``time``, ``clicked`` (1 or 0), ``integer_1`` to ``integer_13`` (int64, null
if missing), ``category_1`` to ``category_26`` (text, null if missing). The log holds impressions and clicks; no
negatives are drawn.
"""

from __future__ import annotations

from datetime import UTC, datetime

import numpy as np

from pipelines.formats.clicks import HOUR_US
from pipelines.formats.labelled import time_column
from pipelines.formats.options import FormatOptions
from pipelines.formats.prepared import PreparedRows, find_files, publish_prepared, read_log
from pipelines.ingest.report import ImportReport
from pipelines.log_schemas.schema import LogColumn, LogSchema
from pipelines.runners.progress import OnProgress
from transforms.types import DType

FILES = "train*.t*"

#: The start of the made-up time, and the lines per hour.
START = datetime(2014, 1, 1, tzinfo=UTC)
ROWS_PER_HOUR = 500

SCHEMA = LogSchema(
    format="tsv",
    time=None,
    columns=(
        LogColumn("clicked", DType.INT64, required=True),
        *(LogColumn(f"integer_{number}", DType.INT64) for number in range(1, 14)),
        *(LogColumn(f"category_{number}", DType.STRING) for number in range(1, 27)),
    ),
)


def prepare(
    source: str, output: str, options: FormatOptions | None = None, progress: OnProgress | None = None
) -> ImportReport:
    """Prepare the file (or the folder with it) as an hourly table in ``output``; ``limit`` counts rows."""
    options = options or FormatOptions()
    paths = find_files(source, FILES, "criteo")

    def prepare_rows(rejects: str) -> PreparedRows:
        raw = read_log(paths, SCHEMA, rejects, options, progress)
        log = raw.table.slice(0, options.limit)
        times = int(START.timestamp()) * 1_000_000 + np.arange(log.num_rows, dtype=np.int64) * HOUR_US // ROWS_PER_HOUR
        return PreparedRows(log.add_column(0, "time", time_column(times)), raw.rejected, raw.rejects)

    return publish_prepared("criteo/1", paths, output, options, prepare_rows, progress)
