"""Generates a search-ads log, deterministic by seed, with the properties of a real one.

The words of queries and ad titles are from a Zipf vocabulary whose head drifts from hour to hour; traffic depends on the
time of day; numbers have nulls; some rows arrive hours late. A click depends on the features (words shared by query and
title, the user's taste, price, position, device by hour), so the quality of a model is measurable. The log is
hive-partitioned Parquet: ``date=YYYY-MM-DD/hour=HH/*.parquet``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from transforms.arrays import Array
from transforms.errors import InputError

CATEGORIES = (
    "home garden", "consumer electronics", "running shoes", "travel hotels", "used cars", "baby toys",
    "office furniture", "mobile phones", "kitchen appliances", "outdoor camping", "beauty care", "pet food",
    "video games", "music instruments", "books novels", "winter clothing", "bicycles parts", "health insurance",
    "language courses", "wedding flowers",
)  # fmt: skip
DEVICES = ("phone", "desktop", "tablet")
COUNTRIES = ("de", "fr", "us", "br", "in", "jp", "gb", "ng")


@dataclass(frozen=True, slots=True)
class SampleLogConfig:
    """What to generate. Equal values give equal bytes.

    ``late_share``: the share of each hour's rows that arrive one to three hours late, in separate files.
    """

    seed: int = 7
    hours: int = 48
    mean_rows_per_hour: int = 12_000
    vocabulary_words: int = 20_000
    users: int = 30_000
    late_share: float = 0.015
    start: datetime = datetime(2026, 3, 2, tzinfo=UTC)

    def __post_init__(self) -> None:
        for name in ("hours", "mean_rows_per_hour", "users"):
            if getattr(self, name) < 1:
                raise InputError("a size of the sample log must be positive", where=name, value=getattr(self, name))
        if self.vocabulary_words < 20 * len(CATEGORIES):
            raise InputError("the vocabulary of the sample log must be larger", where="vocabulary_words",
                             value=self.vocabulary_words, allowed=f"at least {20 * len(CATEGORIES)}")  # fmt: skip
        if not 0 <= self.late_share < 1:
            raise InputError("a share must be in [0, 1)", where="late_share", value=self.late_share)

    @property
    def end(self) -> datetime:
        """The end of the log, exclusive."""
        return self.start + timedelta(hours=self.hours)


@dataclass(frozen=True, slots=True)
class SampleLogReport:
    """What was written."""

    root: str
    rows: int
    late_rows: int
    hours: int
    size_bytes: int


def write_sample_log(
    root: str | Path,
    config: SampleLogConfig,
    *,
    late: bool,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> SampleLogReport:
    """Write the rows that arrived on time, or the ``late`` ones, under ``root``.

    ``progress`` receives (hours done, all hours).
    """
    rows = late_rows = size_bytes = 0
    world = _World(config)
    for done, (hour, on_time, behind) in enumerate(_hours(world), start=1):
        folder = Path(root) / f"date={hour:%Y-%m-%d}" / f"hour={hour:%H}"
        table = behind if late else on_time
        if table.num_rows:
            folder.mkdir(parents=True, exist_ok=True)
            path = folder / ("late-0.parquet" if late else "part-0.parquet")
            pq.write_table(table, path, compression="zstd")
            size_bytes += path.stat().st_size
        rows += table.num_rows
        late_rows += table.num_rows if late else 0
        progress(done, config.hours)
    return SampleLogReport(str(root), rows, late_rows, config.hours, size_bytes)


class _World:
    """The constants of a log: words, users' tastes, advertisers' quality."""

    def __init__(self, config: SampleLogConfig) -> None:
        self.config = config
        rng = np.random.default_rng([config.seed, 0])
        self.words = pa.array(_made_up_words(rng, config.vocabulary_words))
        self.words_a_category = config.vocabulary_words // len(CATEGORIES)
        self.taste = rng.normal(0, 1, (config.users, 4)) @ rng.normal(0, 0.45, (4, len(CATEGORIES)))
        self.age = np.clip(rng.normal(38, 14, config.users), 16, 90).astype(np.int64)
        self.advertisers = 600
        self.quality = rng.normal(0, 0.6, self.advertisers)
        self.device_by_hour = rng.normal(0, 0.35, (len(DEVICES), 24))
        self.country = rng.choice(len(COUNTRIES), config.users, p=_zipf(len(COUNTRIES), 0.8))


def _zipf(n: int, exponent: float = 1.05) -> Array:
    weights = 1.0 / np.arange(1, n + 1) ** exponent
    return np.asarray(weights / weights.sum())


def _made_up_words(rng: np.random.Generator, count: int) -> list[str]:
    onsets = ["b", "br", "d", "f", "g", "k", "kl", "l", "m", "n", "p", "r", "s", "st", "t", "v", "z", "ç", "ß", "ñ"]
    vowels = ["a", "e", "i", "o", "u", "ä", "ou", "ei"]
    words: dict[str, None] = {}
    while len(words) < count:
        syllables = int(rng.integers(2, 4))
        word = "".join(str(rng.choice(onsets)) + str(rng.choice(vowels)) for _ in range(syllables))
        words[word] = None
    return list(words)


def _hours(world: _World) -> Iterator[tuple[datetime, pa.Table, pa.Table]]:
    for index in range(world.config.hours):
        hour = world.config.start + timedelta(hours=index)
        rng = np.random.default_rng([world.config.seed, 1, index])
        table = _events(world, rng, index, hour)
        late = rng.random(table.num_rows) < world.config.late_share
        yield hour, table.filter(pa.array(~late)), table.filter(pa.array(late))


def _events(world: _World, rng: np.random.Generator, index: int, hour: datetime) -> pa.Table:
    config = world.config
    daily = 1.0 + 0.6 * np.sin((hour.hour - 9) / 24 * 2 * np.pi)
    n = max(1, int(rng.poisson(config.mean_rows_per_hour * daily)))
    micros = np.sort(rng.integers(0, 3_600_000_000, n))
    user = rng.choice(config.users, n, p=_zipf(config.users, 0.7))
    category = rng.integers(0, len(CATEGORIES), n)
    advertiser = rng.choice(world.advertisers, n, p=_zipf(world.advertisers, 0.9))
    device = rng.choice(len(DEVICES), n, p=[0.6, 0.3, 0.1])
    position = rng.integers(1, 5, n)
    price = np.exp(rng.normal(3, 1, n)).astype(np.float32)
    query_words, query_lengths = _draw_words(world, rng, category, index, 1, 4)
    title_words, title_lengths = _draw_words(world, rng, category, index, 3, 8)
    _echo_query_in_title(rng, query_words, query_lengths, title_words)
    shared = _shared_words(query_words, query_lengths, title_words, title_lengths)
    logit = (
        -3.4
        + 0.95 * np.minimum(shared, 3)
        + world.taste[user, category]
        + world.quality[advertiser]
        + world.device_by_hour[device, hour.hour]
        - 0.30 * (np.log1p(price) - 3)
        - 0.35 * (position - 1)
        + 0.015 * (world.age[user] - 38)
    )
    clicked = rng.random(n) < 1 / (1 + np.exp(-logit))
    start_us = int(hour.timestamp() * 1_000_000)
    return pa.table(
        {
            "event_id": pa.array(np.int64(index) * 10_000_000 + np.arange(n)),
            "time": pa.array(start_us + micros, pa.timestamp("us", tz="UTC")),
            "user_id": pa.array(user.astype(np.int64)),
            "user_age": pa.array(world.age[user], mask=rng.random(n) < 0.12),
            "country": pa.array(COUNTRIES).take(pa.array(world.country[user])),
            "device": pa.array(DEVICES).take(pa.array(device)),
            "query": _sentences(world, rng, query_words, query_lengths),
            "ad_title": _sentences(world, rng, title_words, title_lengths),
            "category": pa.array(CATEGORIES).take(pa.array(category)),
            "advertiser_id": pa.array(advertiser.astype(np.int64)),
            "position": pa.array(position.astype(np.int64)),
            "price": pa.array(price, mask=rng.random(n) < 0.05),
            "clicked": pa.array(clicked),
        }
    )


def _draw_words(
    world: _World, rng: np.random.Generator, category: Array, hour: int, shortest: int, longest: int
) -> tuple[Array, Array]:
    """A (rows, longest) matrix of word numbers, and the length of each row. The head of each category drifts by the hour."""
    lengths = rng.integers(shortest, longest + 1, len(category))
    ranks = rng.choice(world.words_a_category, (len(category), longest), p=_zipf(world.words_a_category))
    drifted = (ranks + 3 * hour) % world.words_a_category
    return category[:, None] * world.words_a_category + drifted, lengths


def _echo_query_in_title(rng: np.random.Generator, query: Array, query_lengths: Array, title: Array) -> None:
    """Repeat one or two words of the query in about half of the titles."""
    for slot in range(2):
        echoed = rng.random(len(query)) < (0.5 if slot == 0 else 0.25)
        picked = rng.integers(0, query_lengths)
        title[echoed, slot] = query[echoed, picked[echoed]]


def _shared_words(query: Array, query_lengths: Array, title: Array, title_lengths: Array) -> Array:
    in_title = np.arange(title.shape[1]) < title_lengths[:, None]
    shared = np.zeros(len(query), np.int64)
    for slot in range(query.shape[1]):
        repeated = (query[:, :slot] == query[:, slot : slot + 1]).any(axis=1)
        found = ((title == query[:, slot : slot + 1]) & in_title).any(axis=1)
        shared += found & ~repeated & (slot < query_lengths)
    return shared


def _sentences(world: _World, rng: np.random.Generator, words: Array, lengths: Array) -> pa.Array:
    used = np.arange(words.shape[1]) < lengths[:, None]
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    picked = world.words.take(pa.array(words[used]))
    sentences = pc.binary_join(pa.ListArray.from_arrays(pa.array(offsets), picked), " ")
    shouted = pa.array(rng.random(len(words)) < 0.1)
    return pc.if_else(shouted, pc.utf8_upper(sentences), sentences)
