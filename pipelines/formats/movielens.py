"""MovieLens-1M as one joined TSV: interactions with the movie's title and genres and the user's demographics.

The file holds the order of a user's interactions (``seq``), no times, and positives only. Time is made up from the
order, as one week of hours from :data:`START`:

* each user's last 10 interactions are the test set: the k-th of them is in hour 158 + k, so that the last 10 hours hold
  exactly 10 interactions of every user;
* a user's n earlier interactions are spread evenly over hours 0 to 157: the i-th (from 0) at (i + 1/2) / n of the span.

A user's own order is kept; hours of different users compare progress, not calendar time. Columns of interactions and of
their negatives (:mod:`pipelines.formats.negatives`):

    time, user_id, movie_id, clicked (1 or 0)
    title, genres (list), year        of the movie; the year as its title ends with it
    gender, age, occupation, zip      of the user
    user_clicks                       this user's earlier interactions
    last_movie_id, last_genres        of the user's latest earlier interaction; null and [] at the first
    history                           the user's latest movies, newest first
    movie_clicks_recent               the movie's interactions in the window of whole hours before this hour

Data: Harper and Konstan, "The MovieLens Datasets: History and Context" (TiiS 2015); under GroupLens' research terms.
"""

from __future__ import annotations

from datetime import UTC, datetime

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipelines.errors import UnknownFormat
from pipelines.formats.clicks import HOUR_US, Clicks, past_of
from pipelines.formats.labelled import history_column, int_column, label_rows, last_column, time_column
from pipelines.formats.options import FormatOptions
from pipelines.formats.prepared import PreparedRows, find_files, publish_prepared, read_log
from pipelines.ingest.report import ImportReport
from pipelines.log_schemas.schema import LogColumn, LogSchema
from pipelines.runners.progress import OnProgress
from transforms.arrays import Ints
from transforms.types import DType

FILES = "ml1m_joined.tsv*"

#: The start of the made-up week.
START = datetime(2000, 5, 1, tzinfo=UTC)
TRAIN_HOURS = 158
TEST_INTERACTIONS = 10

_USER = ("gender", "age", "occupation", "zip")

SCHEMA = LogSchema(
    format="tsv",
    header=True,
    time=None,
    columns=(
        LogColumn("user_id", DType.INT64, required=True),
        LogColumn("seq", DType.INT64, required=True),
        LogColumn("gender", DType.STRING),
        LogColumn("age", DType.INT64),
        LogColumn("occupation", DType.INT64),
        LogColumn("zip", DType.STRING),
        LogColumn("movie_id", DType.INT64, required=True),
        LogColumn("title", DType.STRING),
        LogColumn("genres", DType.STRING, separator="|"),
    ),
)


def prepare(
    source: str, output: str, options: FormatOptions | None = None, progress: OnProgress | None = None
) -> ImportReport:
    """Prepare the file (or the folder with it) as an hourly table in ``output``; ``limit`` counts users."""
    options = options or FormatOptions()
    paths = find_files(source, FILES, "movielens")

    def prepare_rows(rejects: str) -> PreparedRows:
        raw = read_log(paths, SCHEMA, rejects, options, progress)
        if not raw.table.num_rows:
            raise UnknownFormat(
                "the movielens file must hold an interaction", where=paths[0], next_step="check the file"
            )
        table, counts = labelled_table(_first_users(raw.table, options.limit), options)
        return PreparedRows(table, raw.rejected, raw.rejects, "hour", counts)

    return publish_prepared("movielens/1", paths, output, options, prepare_rows, progress)


def _first_users(log: pa.Table, limit: int | None) -> pa.Table:
    if limit is None:
        return log
    users = np.unique(np.asarray(log.column("user_id")))[:limit]
    return log.filter(pc.is_in(log.column("user_id"), value_set=pa.array(users)))


def pseudo_times(user: Ints, seq: Ints) -> Ints:
    """The made-up time of each interaction in microseconds since 1970, by the rule of the module's docstring."""
    order = np.lexsort((seq, user))
    users = user[order]
    starts = np.flatnonzero(np.diff(users, prepend=users[:1] - 1))
    counts = np.diff(starts, append=len(users))
    size = np.repeat(counts, counts)
    position = np.arange(len(users)) - np.repeat(starts, counts)
    held_out = position - (size - TEST_INTERACTIONS)
    trained = np.maximum(size - TEST_INTERACTIONS, 1)
    rank = np.repeat(np.arange(len(counts)), counts)
    train_us = (2 * position + 1) * (TRAIN_HOURS * HOUR_US) // (2 * trained)
    test_us = (TRAIN_HOURS + held_out) * HOUR_US + rank * HOUR_US // len(counts)
    times = np.empty(len(users), np.int64)
    times[order] = np.where(held_out >= 0, test_us, train_us) + int(START.timestamp()) * 1_000_000
    return times


def labelled_table(log: pa.Table, options: FormatOptions) -> tuple[pa.Table, dict[str, int]]:
    """Add negatives and columns of the past to a log (``SCHEMA``'s columns, any order); return it with its counts."""
    users = np.asarray(log.column("user_id"))
    times = pseudo_times(users, np.asarray(log.column("seq")))
    order = np.lexsort((users, times))
    log, times = log.take(pa.array(order)).combine_chunks(), times[order]
    movies, first, item = np.unique(np.asarray(log.column("movie_id")), return_index=True, return_inverse=True)
    _, user = np.unique(np.asarray(log.column("user_id")), return_inverse=True)
    clicks = Clicks(user, item, times)
    rows = label_rows(clicks, options)
    of_user = past_of(clicks.user, clicks.time_us)
    movie_at = pa.array(first[rows.item])
    columns = {
        "time": rows.of_event(time_column(clicks.time_us)),
        "user_id": rows.of_event(_column(log, "user_id")),
        "movie_id": int_column(movies[rows.item]),
        "clicked": int_column(rows.clicked),
        "title": _column(log, "title").take(movie_at),
        "genres": _column(log, "genres").take(movie_at),
        "year": title_years(_column(log, "title")).take(movie_at),
        **{name: rows.of_event(_column(log, name)) for name in _USER},
        "user_clicks": rows.of_event(int_column(of_user.count)),
        "last_movie_id": rows.of_event(last_column(of_user, _column(log, "movie_id"))),
        "last_genres": rows.of_event(_last_genres(of_user.last, _column(log, "genres"))),
        "history": rows.of_event(history_column(of_user, movies[item], options.history_items)),
        "movie_clicks_recent": int_column(
            clicks.clicks_in_hours_before(rows.event, rows.item, options.window_hours)
        ),
    }  # fmt: skip
    return pa.table(columns), rows.counts


def _column(log: pa.Table, name: str) -> pa.Array:
    return log.column(name).chunk(0)


def _last_genres(last: Ints, genres: pa.Array) -> pa.Array:
    none = pa.scalar([], genres.type)
    return pc.fill_null(genres.take(pa.array(last, pa.int64(), mask=last < 0)), none)


def title_years(titles: pa.Array) -> pa.Array:
    """The year in brackets at a title's end, int64; null where a title has none."""
    found = pc.extract_regex(titles, r"\((?P<year>\d{4})\)\s*$")
    return pc.struct_field(found, "year").cast(pa.int64())
