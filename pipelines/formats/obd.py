"""Open Bandit Dataset (ZOZOTOWN): impressions of recommended fashion items with clicks, positions and propensities.

``<policy>_*.csv[.gz]`` holds the impressions that one policy (``random`` or ``bts``) served, with real times;
``item_context.csv`` describes the items. The table is partitioned by day. Columns:

    time, policy, item_id, position, clicked (1 or 0), propensity
    user_feature_0 to user_feature_3                    hashed text
    item_feature_0 (number), item_feature_1 to _3       hashed text, from the item's line
    affinity                                            of this user to this item, float32
    affinities                                          of this user to every item by id, list<float32>

Data: Saito, Aihara, Matsutani and Narita, "Open Bandit Dataset and Pipeline" (NeurIPS Datasets and Benchmarks 2021), CC BY 4.0.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipelines.formats.options import FormatOptions
from pipelines.formats.prepared import PreparedRows, RawLog, find_files, publish_prepared, read_log
from pipelines.ingest.report import ImportReport
from pipelines.log_schemas.schema import LogColumn, LogSchema, LogTime
from pipelines.outputs.partitions import sort_by_time
from pipelines.runners.progress import OnProgress
from transforms.columns.arrow_types import arrow_type
from transforms.errors import DataError
from transforms.types import Dense, DType, Ragged

FILES = "*_all.csv*"
ITEM_FILE = "item_context.csv"
ITEMS = 80

_AFFINITIES = tuple(f"user-item_affinity_{item}" for item in range(ITEMS))
_USER = tuple(f"user_feature_{number}" for number in range(4))
_ITEM = tuple(f"item_feature_{number}" for number in range(4))

SCHEMA = LogSchema(
    format="csv",
    header=True,
    time=LogTime("timestamp", "iso8601"),
    columns=(
        LogColumn("timestamp", DType.TIMESTAMP, required=True, unit="iso8601"),
        LogColumn("item_id", DType.INT64, required=True),
        LogColumn("position", DType.INT64),
        LogColumn("click", DType.INT64, required=True),
        LogColumn("propensity_score", DType.FLOAT64),
        *(LogColumn(name, DType.STRING) for name in _USER),
        *(LogColumn(name, DType.FLOAT32) for name in _AFFINITIES),
    ),
)
ITEM_SCHEMA = LogSchema(
    format="csv",
    header=True,
    time=None,
    columns=(
        LogColumn("item_id", DType.INT64, required=True),
        LogColumn("item_feature_0", DType.FLOAT32),
        *(LogColumn(name, DType.STRING) for name in _ITEM[1:]),
    ),
)


def prepare(
    source: str, output: str, options: FormatOptions | None = None, progress: OnProgress | None = None
) -> ImportReport:
    """Prepare the folder (or one policy's file, with the items' file beside it) as a daily table; ``limit``: rows a file."""
    options = options or FormatOptions()
    paths = find_files(source, FILES, "obd")
    folder = source if os.path.isdir(source) else os.path.dirname(os.path.abspath(source))
    item_path = os.path.join(folder, ITEM_FILE)

    def prepare_rows(rejects: str) -> PreparedRows:
        items = read_log([item_path], ITEM_SCHEMA, rejects, options, None)
        logs = [read_log([path], SCHEMA, rejects, options, progress) for path in paths]
        tables = [
            _impressions(log.table.slice(0, options.limit), items.table, _policy(path))
            for log, path in zip(logs, paths, strict=True)
        ]
        return _prepared(sort_by_time(pa.concat_tables(tables), "time"), [items, *logs])

    return publish_prepared("obd/1", [*paths, item_path], output, options, prepare_rows, progress)


def _prepared(table: pa.Table, logs: list[RawLog]) -> PreparedRows:
    rejects = tuple(path for log in logs for path in log.rejects)
    counts = {"clicks": int(pc.sum(table.column("clicked")).as_py() or 0)}
    return PreparedRows(table, sum(log.rejected for log in logs), rejects, "day", counts)


def _policy(path: str) -> str:
    return os.path.basename(path).partition("_")[0]


def _impressions(log: pa.Table, items: pa.Table, policy: str) -> pa.Table:
    log = log.combine_chunks()
    item_ids = np.asarray(log.column("item_id"))
    described = pc.index_in(log.column("item_id"), value_set=items.column("item_id"))
    if described.null_count or (len(item_ids) and not 0 <= item_ids.min() <= item_ids.max() < ITEMS):
        raise DataError("the items' file must describe every item that is shown", where=ITEM_FILE,
                        value=sorted(set(item_ids.tolist()) - set(items.column("item_id").to_pylist()))[:5],
                        allowed=f"items 0 to {ITEMS - 1}, each with a line",
                        next_step="check the items' file")  # fmt: skip
    affinities = np.stack([np.asarray(log.column(name)) for name in _AFFINITIES], axis=1)
    renamed = {"position": "position", "clicked": "click", "propensity": "propensity_score"}
    return pa.table(
        {
            "time": log.column("timestamp"),
            "policy": pa.array([policy] * len(log), pa.string()),
            "item_id": log.column("item_id"),
            **{name: log.column(original) for name, original in renamed.items()},
            **{name: log.column(name) for name in _USER},
            **{name: items.column(name).take(described) for name in _ITEM},
            "affinity": pa.array(affinities[np.arange(len(log)), item_ids], arrow_type(Dense(DType.FLOAT32))),
            "affinities": _lists(affinities),
        }
    )


def _lists(values: np.ndarray[Any, np.dtype[np.float32]]) -> pa.Array:
    rows, width = values.shape
    offsets = pa.array(np.arange(rows + 1, dtype=np.int32) * width)
    return pa.ListArray.from_arrays(offsets, pa.array(values.reshape(-1)), type=arrow_type(Ragged(DType.FLOAT32)))
