"""G1/Globo.com news clicks: one gzipped CSV per hour, clicks only, times in milliseconds.

A file holds the sessions that *start* in its hour, so clicks reach into later hours, some by days. Rows are partitioned
by the hour of the click. Clicks after the last hour with a file are left out and counted (``clicks_after_last_hour``),
since the other clicks of their hours are unknown. ``session_size`` is left out, since it is known only after the session.

Columns of clicks and of their negatives (:mod:`pipelines.formats.negatives`):

    time, user_id, session_id, session_start, article_id, clicked (1 or 0),
    environment, device_group, os, country, region, referrer_type    of the click, shared by its negatives
    session_clicks, user_clicks       earlier clicks in this session, and of this user
    secs_since_last_click             since this user's latest click; null at the first
    last_article_id                   that click's article; null at the first
    history                           the user's latest articles, newest first
    article_clicks_recent             the article's clicks in the window of whole hours before this hour
    article_clicks_last_hour          in the 60 minutes before this moment
    article_age_hours                 since its first click; null when there was none before

Data: de Souza Pereira Moreira, Ferreira and da Cunha, "News Session-Based Recommendations using Deep Neural Networks"
(DLRS 2018); for academic use.
"""

from __future__ import annotations

import os

import numpy as np
import pyarrow as pa

from pipelines.errors import UnknownFormat
from pipelines.formats.clicks import HOUR_US, Clicks, Past, past_of
from pipelines.formats.labelled import (
    LabelledRows,
    float_column,
    history_column,
    int_column,
    label_rows,
    last_column,
    time_column,
)
from pipelines.formats.options import FormatOptions
from pipelines.formats.prepared import PreparedRows, find_files, publish_prepared, read_log
from pipelines.ingest.report import ImportReport
from pipelines.log_schemas.schema import LogSchema
from pipelines.outputs.partitions import sort_by_time
from pipelines.runners.progress import OnProgress

FILES = "clicks_hour_*.csv*"

#: Column names of the files that differ from those of the table.
_CONTEXT = {
    "environment": "click_environment",
    "device_group": "click_deviceGroup",
    "os": "click_os",
    "country": "click_country",
    "region": "click_region",
    "referrer_type": "click_referrer_type",
}
_ROLLING_SECS = 3600

SCHEMA = LogSchema.from_document(
    {
        "format": "csv",
        "header": True,
        "columns": [
            {"name": "user_id", "type": "int64", "required": True},
            {"name": "session_id", "type": "int64", "required": True},
            {"name": "session_start", "type": "timestamp", "unit": "ms"},
            {"name": "click_article_id", "type": "int64", "required": True},
            {"name": "click_timestamp", "type": "timestamp"},
            *({"name": name, "type": "int64"} for name in _CONTEXT.values()),
        ],
        "time": {"column": "click_timestamp", "unit": "ms"},
    },
    where="the globo format",
)


def prepare(
    source: str, output: str, options: FormatOptions | None = None, progress: OnProgress | None = None
) -> ImportReport:
    """Prepare the files in ``source`` (or the one file) as an hourly table in ``output``; ``limit`` counts files."""
    options = options or FormatOptions()
    paths = find_files(source, FILES, "globo")[: options.limit]

    def prepare_rows(rejects: str) -> PreparedRows:
        raw = read_log(paths, SCHEMA, rejects, options, progress)
        log, after = _within_files(sort_by_time(raw.table, "click_timestamp"), len(paths), os.path.dirname(paths[0]))
        table, counts = labelled_table(log, options)
        return PreparedRows(table, raw.rejected, raw.rejects, "hour", {**counts, "clicks_after_last_hour": after})

    return publish_prepared("globo/1", paths, output, options, prepare_rows, progress)


def _within_files(log: pa.Table, files: int, where: str) -> tuple[pa.Table, int]:
    """The clicks of the first hours, as many as there are files; and the number of later clicks."""
    if not log.num_rows:
        raise UnknownFormat("the globo files must hold a click", where=where, next_step="check the files")
    times = np.asarray(log.column("click_timestamp").cast(pa.int64()))
    end = (times[0] // HOUR_US + files) * HOUR_US
    within = int(np.searchsorted(times, end))
    return log.slice(0, within), log.num_rows - within


def labelled_table(log: pa.Table, options: FormatOptions) -> tuple[pa.Table, dict[str, int]]:
    """Add negatives and columns of the past to a log (``SCHEMA``'s columns, in time order); return it with its counts."""
    log = log.combine_chunks()
    articles, item = np.unique(np.asarray(log.column("click_article_id")), return_inverse=True)
    _, user = np.unique(np.asarray(log.column("user_id")), return_inverse=True)
    clicks = Clicks(user, item, np.asarray(log.column("click_timestamp").cast(pa.int64())))
    rows = label_rows(clicks, options)
    session = np.asarray(log.column("session_id"))
    of_user, in_session = past_of(clicks.user, clicks.time_us), past_of(session, clicks.time_us)
    columns = {
        "time": rows.of_event(time_column(clicks.time_us)),
        **{name: rows.of_event(_column(log, name)) for name in ("user_id", "session_id", "session_start")},
        "article_id": int_column(articles[rows.item]),
        "clicked": int_column(rows.clicked),
        **{name: rows.of_event(_column(log, named)) for name, named in _CONTEXT.items()},
        "session_clicks": rows.of_event(int_column(in_session.count)),
        **_user_columns(rows, clicks, of_user, _column(log, "click_article_id"), options.history_items),
        **_article_columns(rows, clicks, options.window_hours),
    }
    return pa.table(columns), rows.counts


def _column(log: pa.Table, name: str) -> pa.Array:
    return log.column(name).chunk(0)


def _user_columns(
    rows: LabelledRows, clicks: Clicks, of_user: Past, article: pa.Array, history_items: int
) -> dict[str, pa.Array]:
    idle_secs = (clicks.time_us - clicks.time_us[of_user.last]) / 1e6
    columns = {
        "user_clicks": int_column(of_user.count),
        "secs_since_last_click": float_column(idle_secs, of_user.last >= 0),
        "last_article_id": last_column(of_user, article),
        "history": history_column(of_user, np.asarray(article), history_items),
    }
    return {name: rows.of_event(column) for name, column in columns.items()}


def _article_columns(rows: LabelledRows, clicks: Clicks, window_hours: int) -> dict[str, pa.Array]:
    age, seen = clicks.item_age_hours(rows.event, rows.item)
    return {
        "article_clicks_recent": int_column(clicks.clicks_in_hours_before(rows.event, rows.item, window_hours)),
        "article_clicks_last_hour": int_column(clicks.clicks_in_secs_before(rows.event, rows.item, _ROLLING_SECS)),
        "article_age_hours": float_column(age, seen),
    }
