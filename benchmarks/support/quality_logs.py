"""Logs for measuring the quality of default options: four public ones, and generated ones.

The generated ones are typical first logs: a small log of app-install ads with a rare label, a log of coupons with unscaled numbers
(prices in cents, seconds) and rarely repeated ids, installs with one positive in five hundred, a rate that drifts, ids alone, and
three thousand rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from headrace.demo.sample_log import SampleLogConfig, write_sample_log
from headrace.model_file import load_models
from pipelines.formats import FormatOptions, prepare
from transforms.expressions.expression import cross, float32, int64, text, timestamp
from transforms.expressions.model import Model

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
START = datetime(2026, 5, 4, tzinfo=UTC)

Columns = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class QualityLog:
    """One log: ``write(folder)`` writes its table, ``model()`` is the trained model; the last ``test_share`` is the test set."""

    name: str
    write: Callable[[Path], object]
    model: Callable[[], Model]
    test_share: float = 0.2
    table: str = "log"


def public_logs(data: Path) -> tuple[QualityLog, ...]:
    """The four logs under ``data``; slices of about 200,000 rows of the two large ones."""

    def log(name: str, source: Path, model: str, limit: int | None = None, share: float = 0.2) -> QualityLog:
        return QualityLog(
            name,
            lambda folder: prepare(
                name, str(source), str(folder), FormatOptions(limit=limit, rejects=f"{folder}.rejects")
            ),
            lambda: next(each for each in load_models(EXAMPLES / f"{name}.py") if each.name == model),
            share,
            name,
        )

    return (
        log("globo", data / "globo", "news_ctr", 24),
        log("movielens", data / "ml1m", "movie_ctr", 600),
        log("criteo", data / "criteo", "display_ctr"),
        log("obd", data / "obd", "fashion_ctr", share=0.3),
    )


def write_hours(folder: Path, times: np.ndarray, columns: Columns) -> None:
    """Write events into hourly partitions; ``times`` are seconds since :data:`START`, ascending."""
    at = int(START.timestamp() * 1e6) + (times * 1e6).astype(np.int64)
    table = pa.table({"time": pa.array(at, pa.timestamp("us", tz="UTC")), **columns})
    hours = (times // 3600).astype(np.int64)
    for hour in np.unique(hours):
        moment = START + timedelta(hours=int(hour))
        place = folder / f"date={moment:%Y-%m-%d}" / f"hour={moment:%H}"
        place.mkdir(parents=True, exist_ok=True)
        pq.write_table(table.filter(pa.array(hours == hour)), place / "part.parquet")


def draw_labels(odds: np.ndarray, source: np.random.Generator) -> pa.Array:
    """Labels 0 and 1, drawn by their log odds."""
    return pa.array((source.random(len(odds)) < 1 / (1 + np.exp(-odds))).astype(np.int64))


def write_installs(folder: Path, rows: int = 5_000, seed: int = 3) -> None:
    """Write app-install ads: one in fifty impressions leads to an install, by publisher, country, device and hour."""
    source = np.random.default_rng(seed)
    times = np.sort(source.random(rows)) * 3600 * 48
    publisher = np.minimum(source.zipf(1.3, rows), 300)
    country = np.minimum(source.zipf(1.6, rows), 40)
    device = source.integers(0, 120, rows)
    battery = source.integers(1, 101, rows)
    session_ms = source.lognormal(10, 1.5, rows)
    taste = source.normal(size=500)
    hour = (times // 3600 % 24).astype(np.int64)
    odds = -4.6 + 0.8 * taste[publisher] + 0.6 * taste[300 + country] + 0.4 * np.sin(hour / 24 * 2 * np.pi)
    odds += 0.35 * (np.log(session_ms) - 10) + 0.3 * taste[350 + device]
    columns = {
        "publisher": pa.array([f"pub-{i}" for i in publisher]),
        "country": pa.array([f"C{i}" for i in country]),
        "device": pa.array([f"device {i}" for i in device]),
        "battery": pa.array(battery),
        "session_ms": pa.array(session_ms, pa.float32()),
        "installed": draw_labels(odds, source),
    }
    write_hours(folder, times, columns)


def installs_model() -> Model:
    """A model with hashed ids and unscaled numbers."""
    made = Model("install_rate", client="apps", label="installed")
    for name, buckets in (("publisher", 1_000), ("country", 200), ("device", 1_000)):
        made.input(name, text(name).hash_buckets(buckets))
    made.input("publisher_x_country", cross(text("publisher"), text("country"), buckets=20_000))
    made.input("battery", int64("battery"))
    made.input("session_ms", float32("session_ms"))
    made.input("hour", timestamp("time").hour_of_day())
    return made


def write_coupons(folder: Path, rows: int = 40_000, seed: int = 4) -> None:
    """Write coupons: prices in cents, seconds of validity, users and coupons with few events each."""
    source = np.random.default_rng(seed)
    times = np.sort(source.random(rows)) * 3600 * 96
    users, coupons = 15_000, 4_000
    user = source.integers(0, users, rows)
    coupon = np.minimum(source.zipf(1.15, rows), coupons) - 1
    price = np.round(source.lognormal(9, 1.0, coupons))[coupon]
    discount = source.integers(1, 100, coupons)[coupon]
    valid_secs = source.integers(1, 180, coupons)[coupon] * 86_400
    genre = source.integers(0, 13, coupons)[coupon]
    area = source.integers(0, 47, users)[user]
    liking, quality = source.normal(size=users), source.normal(size=coupons)
    wish = source.normal(size=(users, 13))
    odds = -3.4 + 0.5 * liking[user] + 0.5 * quality[coupon] + 0.6 * wish[user, genre]
    odds += 0.02 * (discount - 50) - 0.5 * (np.log(price) - 9) + 0.3 * (area == genre)
    columns = {
        "user": pa.array([f"{i:032x}" for i in user]),
        "coupon": pa.array([f"c{i:06d}" for i in coupon]),
        "genre": pa.array([f"genre {i}" for i in genre]),
        "area": pa.array([f"area {i}" for i in area]),
        "price_cents": pa.array(price.astype(np.int64), mask=source.random(rows) < 0.02),
        "discount_percent": pa.array(discount),
        "valid_secs": pa.array(valid_secs, mask=source.random(rows) < 0.1),
        "bought": draw_labels(odds, source),
    }
    write_hours(folder, times, columns)


def coupons_model() -> Model:
    """A model with ids hashed into many buckets and unscaled numbers."""
    made = Model("purchase_rate", client="coupons", label="bought")
    for name, buckets in (("user", 50_000), ("coupon", 20_000), ("genre", 100), ("area", 100)):
        made.input(name, text(name).hash_buckets(buckets))
    made.input("user_x_genre", cross(text("user"), text("genre"), buckets=200_000))
    for name in ("price_cents", "discount_percent", "valid_secs"):
        made.input(name, int64(name))
    return made


def write_rare(folder: Path, rows: int = 60_000, seed: int = 5) -> None:
    """Write installs of which one in five hundred impressions has one, by publisher, country, device and bid."""
    source = np.random.default_rng(seed)
    times = np.sort(source.random(rows)) * 3600 * 144
    publisher, country = np.minimum(source.zipf(1.3, rows), 300), np.minimum(source.zipf(1.6, rows), 40)
    device, bid = source.integers(0, 20_000, rows), source.lognormal(2, 1, rows)
    taste = source.normal(size=1000)
    odds = -8.4 + 1.2 * taste[publisher] + 1.0 * taste[400 + country] + 1.0 * taste[500 + device % 40]
    odds += 0.9 * (np.log(bid) - 2)
    columns = {
        "publisher": pa.array([f"pub-{i}" for i in publisher]),
        "country": pa.array([f"C{i}" for i in country]),
        "device": pa.array([f"device {i}" for i in device]),
        "bid": pa.array(bid, pa.float32()),
        "installed": draw_labels(odds, source),
    }
    write_hours(folder, times, columns)


def rare_model() -> Model:
    """A model whose device ids occur about twice each."""
    made = Model("rare_installs", client="apps", label="installed")
    for name, buckets in (("publisher", 1_000), ("country", 200), ("device", 50_000)):
        made.input(name, text(name).hash_buckets(buckets))
    made.input("publisher_x_country", cross(text("publisher"), text("country"), buckets=20_000))
    made.input("bid", float32("bid"))
    return made


def write_drift(folder: Path, rows: int = 40_000, seed: int = 6) -> None:
    """Write clicks whose rate doubles and halves within a week, for reasons that no input shows."""
    source = np.random.default_rng(seed)
    times = np.sort(source.random(rows)) * 3600 * 168
    site, slot = source.integers(0, 200, rows), source.integers(0, 50, rows)
    by_site, by_slot = source.normal(size=200), source.normal(size=50)
    odds = -2.5 + 0.6 * by_site[site] + 0.5 * by_slot[slot] + 0.5 * np.sin(times / (3600 * 168) * 9)
    columns = {
        "site": pa.array([f"site-{i}" for i in site]),
        "slot": pa.array([f"slot-{i}" for i in slot]),
        "clicked": draw_labels(odds, source),
    }
    write_hours(folder, times, columns)


def drift_model() -> Model:
    """A model of ids and the hour of the day."""
    made = Model("drifting_rate", client="sites", label="clicked")
    for name, buckets in (("site", 1_000), ("slot", 200)):
        made.input(name, text(name).hash_buckets(buckets))
    made.input("hour", timestamp("time").hour_of_day())
    return made


def write_ids(folder: Path, rows: int = 60_000, seed: int = 7) -> None:
    """Write clicks of users on items: a bias and three hidden numbers of each, and nothing else."""
    source = np.random.default_rng(seed)
    times = np.sort(source.random(rows)) * 3600 * 144
    users, items = 5_000, 2_000
    user, item = source.integers(0, users, rows), np.minimum(source.zipf(1.2, rows), items) - 1
    of_user, of_item = source.normal(size=(users, 4)), source.normal(size=(items, 4))
    odds = -1.5 + 0.5 * of_user[user, 0] + 0.6 * of_item[item, 0] + 0.5 * (of_user[user, 1:] * of_item[item, 1:]).sum(1)
    columns = {
        "user": pa.array([f"{i:08x}" for i in user]),
        "item": pa.array([f"item {i}" for i in item]),
        "clicked": draw_labels(odds, source),
    }
    write_hours(folder, times, columns)


def ids_model() -> Model:
    """A model of hashed ids alone."""
    made = Model("ids_only", client="shop", label="clicked")
    for name, buckets in (("user", 20_000), ("item", 10_000)):
        made.input(name, text(name).hash_buckets(buckets))
    return made


def write_small(folder: Path, rows: int = 3_000, seed: int = 8) -> None:
    """Write three thousand events of two ids and a number in cents."""
    source = np.random.default_rng(seed)
    times = np.sort(source.random(rows)) * 3600 * 72
    store, kind, wish = source.integers(0, 30, rows), source.integers(0, 10, rows), source.normal(size=rows)
    by_store, by_kind = source.normal(size=30), source.normal(size=10)
    odds = -1 + 0.6 * by_store[store] + 0.5 * by_kind[kind] + 0.7 * wish
    columns = {
        "store": pa.array([f"store {i}" for i in store]),
        "kind": pa.array([f"kind {i}" for i in kind]),
        "price_cents": pa.array(np.round(np.exp(8 + 0.5 * wish)).astype(np.int64)),
        "bought": draw_labels(odds, source),
    }
    write_hours(folder, times, columns)


def small_model() -> Model:
    """A model of two ids and an unscaled number."""
    made = Model("small_log", client="stores", label="bought")
    for name, buckets in (("store", 100), ("kind", 50)):
        made.input(name, text(name).hash_buckets(buckets))
    made.input("price_cents", int64("price_cents"))
    return made


def sample_log(hours: int = 24) -> QualityLog:
    """The demo's log of search ads, with its late rows."""

    def write(folder: Path) -> None:
        config = SampleLogConfig(hours=hours)
        for late in (False, True):
            write_sample_log(folder, config, late=late)

    def model() -> Model:
        return next(each for each in load_models(EXAMPLES / "search_ads.py") if each.name == "search_ctr")

    return QualityLog("sample", write, model, table="search_log")


MADE_UP = (
    QualityLog("app installs", write_installs, installs_model),
    QualityLog("coupons", write_coupons, coupons_model),
    QualityLog("rare positives", write_rare, rare_model),
    QualityLog("drifting rate", write_drift, drift_model),
    QualityLog("ids only", write_ids, ids_model),
    QualityLog("3,000 rows", write_small, small_model),
)
