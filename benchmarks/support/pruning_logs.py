"""Logs for measuring pruning: their ids are not hashed, so an input has a row for every id; one log is made up, with a planted long tail."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from benchmarks.support.quality_logs import QualityLog, draw_labels, write_hours
from pipelines.formats import FormatOptions, prepare
from transforms.expressions.expression import float32, int64, ragged, text
from transforms.expressions.model import Model

#: The logs by name; the last two need no data.
LOGS = ("globo", "movielens", "criteo", "tail", "ranked")
_TAIL_USERS, _TAIL_ITEMS = 30_000, 20_000


def news_model() -> Model:
    """Clicks of Globo's articles, whose ids and those of users are not hashed."""
    made = Model("unhashed_news", client="pruning", label="clicked")
    articles, users = 365_000, 325_000
    made.input("article", int64("article_id").modulo(articles))
    made.input("last_article", int64("last_article_id").modulo(articles))
    made.input("history", ragged("history", "int64").modulo(articles))
    made.input("user", int64("user_id").modulo(users))
    for name in ("environment", "device_group", "region", "referrer_type"):
        made.input(name, int64(name).hash_buckets(100))
    made.input("age", float32("article_age_hours").fill_null(0.0).log1p().scale(0.4, -1.0))
    made.input("recent", int64("article_clicks_recent").cast("float32").log1p().scale(0.2, -1.0))
    made.input("last_hour", int64("article_clicks_last_hour").cast("float32").log1p().scale(0.25, -0.8))
    return made


def movie_model() -> Model:
    """Ratings of MovieLens-1M, whose ids are not hashed."""
    made = Model("unhashed_movies", client="pruning", label="clicked")
    movies, users = 4_000, 6_100
    made.input("movie", int64("movie_id").modulo(movies))
    made.input("last_movie", int64("last_movie_id").modulo(movies))
    made.input("history", ragged("history", "int64").modulo(movies))
    made.input("user", int64("user_id").modulo(users))
    made.input("genres", ragged("genres", "string").hash_buckets(100))
    for name in ("age", "occupation"):
        made.input(name, int64(name).hash_buckets(100))
    return made


def ads_model() -> Model:
    """Criteo's display ads, whose categories have more buckets than values."""
    made = Model("unhashed_ads", client="pruning", label="clicked")
    for n in range(1, 14):
        number = int64(f"integer_{n}").cast("float32").fill_null(0.0).clip(0.0, 1e9).log1p().scale(0.2)
        made.input(f"integer_{n}", number)
    for n in range(1, 27):
        made.input(f"category_{n}", text(f"category_{n}").hash_buckets(50_000))
    return made


def write_tail(folder: Path, rows: int = 80_000, seed: int = 9, *, is_ranked: bool = False) -> None:
    """Write clicks of users on items whose lookups fall by a power law: the same ids all the time, most of them rarely.

    Each has a hidden effect, and each pair of a user's and an item's kind another one, so that rare rows could learn, had they events.

    ``is_ranked``: ids are ranks by popularity, as those of a vocabulary that is sorted by frequency; else random.
    """
    source = np.random.default_rng(seed)
    times = np.sort(source.random(rows)) * 3600 * 144
    user, item = (_power_law(source, count, rows, is_ranked=is_ranked) for count in (_TAIL_USERS, _TAIL_ITEMS))
    of_user, of_item = source.normal(size=_TAIL_USERS), source.normal(size=_TAIL_ITEMS)
    user_kind, item_kind = source.integers(0, 12, _TAIL_USERS), source.integers(0, 12, _TAIL_ITEMS)
    kinds = source.normal(size=(12, 12))
    odds = -1.2 + 0.8 * of_user[user] + 0.8 * of_item[item] + 0.5 * kinds[user_kind[user], item_kind[item]]
    columns = {"user_id": pa.array(user), "item_id": pa.array(item), "clicked": draw_labels(odds, source)}
    write_hours(folder, times, columns)


def _power_law(
    source: np.random.Generator, ids: int, rows: int, exponent: float = 1.05, *, is_ranked: bool = False
) -> np.ndarray:
    shares = (np.arange(ids) + 1.0) ** -exponent
    order, ranks = source.permutation(ids), source.choice(ids, rows, p=shares / shares.sum())
    found: np.ndarray = ranks if is_ranked else order[ranks]
    return found


def tail_model() -> Model:
    """A model of the planted long tail."""
    made = Model("long_tail", client="pruning", label="clicked")
    made.input("user", int64("user_id").modulo(_TAIL_USERS))
    made.input("item", int64("item_id").modulo(_TAIL_ITEMS))
    return made


def log_of(name: str, data: Path | None, limit: int | None = None) -> QualityLog:
    """A log and its model without hashed ids; ``limit``: hours of Globo's, users of MovieLens, rows of Criteo's or the planted one."""
    if name in ("tail", "ranked"):
        return QualityLog(name, lambda where: write_tail(where, limit or 80_000, is_ranked=name == "ranked"), tail_model, table=name)  # fmt: skip
    folder, model = {"globo": ("globo", news_model), "movielens": ("ml1m", movie_model), "criteo": ("criteo", ads_model)}[name]  # fmt: skip
    options = FormatOptions(limit=limit)

    def write(where: Path) -> object:
        assert data is not None
        return prepare(name, str(data / folder), str(where), replace(options, rejects=f"{where}.rejects"))

    return QualityLog(name, write, model, table=name)
