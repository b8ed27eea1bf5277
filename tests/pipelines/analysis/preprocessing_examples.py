"""Preprocessing functions like those of tf.Transform's public examples, and rows for them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import tensorflow as tf
import tensorflow_transform as tft

import transforms.expressions.expression as hr

ROWS = 120
CATEGORIES = ["red", "blue", "green", "yellow", "violet", ""]
WORDS = ["a", "good", "bad", "film", "the", "not", "very", "plot", "one", "two"]


@dataclass(frozen=True)
class Example:
    """A function, its columns, and how they enter."""

    function: Callable[[dict[str, Any]], dict[str, Any]]
    columns: Mapping[str, Any]
    ways: Mapping[str, Any] = field(default_factory=dict)


def table() -> pa.Table:
    """Rows with what such functions meet: nulls, repeated and rare values, empty text, skewed and constant numbers."""
    random = np.random.default_rng(7)
    some = random.random(ROWS) < 0.15
    words = [" ".join(random.choice(WORDS, random.integers(1, 7))) for _ in range(ROWS)]
    return pa.table({
        "age": pa.array(random.integers(17, 90, ROWS)),
        "hours": pa.array(random.integers(1, 99, ROWS).astype(np.float32)),
        "job": pa.array(random.choice(CATEGORIES, ROWS)),
        "fare": pa.array(np.round(random.gamma(2.0, 8.0, ROWS), 2).astype(np.float32), mask=some),
        "company": pa.array(random.choice(CATEGORIES, ROWS), mask=random.random(ROWS) < 0.2),
        "trips": pa.array(random.integers(0, 5, ROWS), mask=some),
        "review": pa.array(words),
        "count": pa.array(random.integers(0, 1_000, ROWS), mask=random.random(ROWS) < 0.3),
        "length": pa.array(np.round(random.normal(40, 5, ROWS), 1).astype(np.float32)),
        "depth": pa.array(np.round(random.normal(17, 2, ROWS), 1).astype(np.float32)),
        "constant": pa.array(np.full(ROWS, 3.0, np.float32)),
        "user": pa.array([f"u{i}" for i in random.zipf(1.6, ROWS) % 30]),
        "movie": pa.array(random.zipf(1.5, ROWS) % 40),
        "rating": pa.array(random.integers(1, 11, ROWS).astype(np.float32) / 2),
        "genres": pa.array([list(random.choice(CATEGORIES[:4], random.integers(0, 4))) for _ in range(ROWS)], pa.list_(pa.string())),
        "clicked": pa.array(random.integers(0, 2, ROWS)),
        "vector": pa.array(random.normal(0, 1, (ROWS, 3)).astype(np.float32).tolist(), pa.list_(pa.float32(), 3)),
    })  # fmt: skip


def census(inputs: dict[str, Any]) -> dict[str, Any]:
    """Dense columns: numbers scaled to 0..1, text by a vocabulary, a one-hot row."""
    index = tft.compute_and_apply_vocabulary(inputs["job"], vocab_filename="job")
    return {
        "age": tft.scale_to_0_1(inputs["age"]),
        "hours": tft.scale_to_0_1(inputs["hours"]),
        "job": index,
        "job_row": tf.one_hot(index, 8, on_value=1.0, off_value=0.0),
        "label": tf.cast(inputs["age"] > 40, tf.int64),
    }


def taxi(inputs: dict[str, Any]) -> dict[str, Any]:
    """Sparse columns that are filled and squeezed, as in the tutorial's pipelines."""

    def dense(value: Any) -> Any:
        default = "" if value.dtype == tf.string else 0
        shaped = tf.SparseTensor(value.indices, value.values, [value.dense_shape[0], 1])
        return tf.squeeze(tf.sparse.to_dense(shaped, default), axis=1)

    fare = dense(inputs["fare"])
    return {
        "fare_xf": tft.scale_to_z_score(fare),
        "fare_bucket": tft.bucketize(fare, 10),
        "company_xf": tft.compute_and_apply_vocabulary(dense(inputs["company"]), top_k=4, num_oov_buckets=3),
        "trips_xf": tft.bucketize(dense(inputs["trips"]), 3),
        "tips_xf": tf.where(tf.math.is_nan(fare), tf.zeros_like(fare, tf.int64), tf.cast(fare > 20.0, tf.int64)),
    }


def sentiment(inputs: dict[str, Any]) -> dict[str, Any]:
    """Words of a text by frequency, and their weights."""
    tokens = tf.compat.v1.string_split(inputs["review"], " ")
    indices = tft.compute_and_apply_vocabulary(tokens, top_k=6)
    buckets, weights = tft.tfidf(indices, 7)
    return {"tokens": indices, "buckets": buckets, "weights": weights}


def criteo(inputs: dict[str, Any]) -> dict[str, Any]:
    """Counts with gaps: filled, logarithms scaled, hashed pairs."""
    count = tf.sparse.to_dense(tft_filled(inputs["count"]), 0)[:, 0]
    logarithm = tf.math.log1p(tf.cast(count, tf.float32))
    return {
        "count_z": tft.scale_to_z_score(logarithm),
        "count_bucket": tft.apply_buckets(logarithm, tft.quantiles(logarithm, 5, epsilon=0.01)),
        "pair": tft.hash_strings(tf.strings.join([inputs["user"], tf.strings.as_string(count)], "_"), 50),
    }


def tft_filled(value: Any) -> Any:
    return tf.SparseTensor(value.indices, value.values, [value.dense_shape[0], 1])


def movielens(inputs: dict[str, Any]) -> dict[str, Any]:
    """Users and items by vocabularies of text and integers, lists of genres."""
    return {
        "user_id": tft.compute_and_apply_vocabulary(inputs["user"], num_oov_buckets=1, frequency_threshold=2),
        "movie_id": tft.compute_and_apply_vocabulary(inputs["movie"], num_oov_buckets=2, top_k=10),
        "genres": tft.compute_and_apply_vocabulary(inputs["genres"]),
        "rating": tft.scale_by_min_max(inputs["rating"], -1.0, 1.0),
    }


def penguin(inputs: dict[str, Any]) -> dict[str, Any]:
    """Measurements of shape [1], each scaled; one of them is constant."""
    scaled = {f"{key}_xf": tft.scale_to_z_score(inputs[key]) for key in ("length", "depth", "constant")}
    return {**scaled, "species": tft.compute_and_apply_vocabulary(inputs["job"], num_oov_buckets=1)}


def questions(inputs: dict[str, Any]) -> dict[str, Any]:
    """Ragged words, looked up in a vocabulary that several outputs share."""
    words = tf.strings.split(tf.strings.lower(inputs["review"]))
    vocabulary = tft.vocabulary(words, top_k=8, vocab_filename="words")
    ids = tf.ragged.map_flat_values(lambda flat: tft.apply_vocabulary(flat, vocabulary, num_oov_buckets=2), words)
    return {"ids": ids, "lengths": tft.scale_to_0_1(tf.cast(words.row_lengths(), tf.float32)), "plain": words}


def reddit(inputs: dict[str, Any]) -> dict[str, Any]:
    """N-grams as a bag, with a vocabulary by frequency, and a statistic beside a plain output."""
    tokens = tf.compat.v1.string_split(inputs["review"], " ")
    bag = tft.bag_of_words(tokens, (1, 2), " ")
    return {
        "bag": tft.compute_and_apply_vocabulary(bag, top_k=20),
        "above": tf.cast(inputs["hours"] > tft.mean(inputs["hours"]), tf.int64),
        "tokens": tft.hash_strings(inputs["review"], 32),
    }


def statistics(inputs: dict[str, Any]) -> dict[str, Any]:
    """Analyzers whose values enter arithmetic."""
    hours = inputs["hours"]
    return {
        "range": (hours - tft.min(hours)) / (tft.max(hours) - tft.min(hours)),
        "spread": (hours - tft.mean(hours)) / tf.sqrt(tft.var(hours)),
        "share": hours / tft.sum(hours),
        "size": tf.cast(tf.ones_like(inputs["age"]) * tft.size(inputs["age"]), tf.int64),
    }


def components(inputs: dict[str, Any]) -> dict[str, Any]:
    """Vectors, centred and turned."""
    vector = inputs["vector"]
    return {
        "turned": tf.matmul(vector, tft.pca(vector, 2, tf.float32)),
        "scaled": tft.scale_to_z_score(vector, elementwise=True),
        "whitened": tf.matmul(vector, tft.covariance(vector, tf.float32)),
    }


def by_key(inputs: dict[str, Any]) -> dict[str, Any]:
    """Statistics of each group."""
    return {
        "z": tft.scale_to_z_score_per_key(inputs["hours"], inputs["job"]),
        "range": tft.scale_to_0_1_per_key(inputs["hours"], inputs["job"]),
    }


def after_another(inputs: dict[str, Any]) -> dict[str, Any]:
    """Analyzers over what other analyzers found: a second pass."""
    z = tft.scale_to_z_score(inputs["hours"])
    index = tft.compute_and_apply_vocabulary(inputs["job"])
    return {"bucket": tft.bucketize(z, 4), "index": tft.scale_to_0_1(tf.cast(index, tf.float32))}


def labelled(inputs: dict[str, Any]) -> dict[str, Any]:
    """A vocabulary by mutual information with a label, and one by weight."""
    return {
        "telling": tft.compute_and_apply_vocabulary(inputs["job"], labels=inputs["clicked"], top_k=3),
        "heavy": tft.compute_and_apply_vocabulary(inputs["job"], weights=inputs["hours"], top_k=3),
    }


def one(kind: Any) -> Any:
    return tf.io.FixedLenFeature([1], kind)


EXAMPLES: dict[str, Example] = {
    "census": Example(census, {"age": hr.int64("age"), "hours": hr.float32("hours"), "job": hr.text("job")}),
    "taxi": Example(taxi, {"fare": tf.io.VarLenFeature(tf.float32), "company": tf.io.VarLenFeature(tf.string),
                           "trips": tf.io.VarLenFeature(tf.int64)}),
    "sentiment": Example(sentiment, {"review": hr.text("review")}),
    "criteo": Example(criteo, {"count": hr.int64("count"), "user": hr.text("user")}, {"sparse": ["count"]}),
    "movielens": Example(movielens, {"user": hr.text("user"), "movie": hr.int64("movie"), "rating": hr.float32("rating"),
                                     "genres": hr.ragged("genres", "string")}),
    "penguin": Example(penguin, {"length": one(tf.float32), "depth": one(tf.float32), "constant": one(tf.float32),
                                 "job": one(tf.string)}),
    "questions": Example(questions, {"review": hr.text("review")}),
    "reddit": Example(reddit, {"review": hr.text("review"), "hours": hr.float32("hours")}),
    "statistics": Example(statistics, {"hours": hr.float32("hours"), "age": hr.int64("age")}),
    "components": Example(components, {"vector": hr.vector("vector", "float32", 3)}),
    "by key": Example(by_key, {"hours": hr.float32("hours"), "job": hr.text("job")}),
    "after another": Example(after_another, {"hours": hr.float32("hours"), "job": hr.text("job")}),
    "labelled": Example(labelled, {"job": hr.text("job"), "clicked": hr.int64("clicked"), "hours": hr.float32("hours")}),
}  # fmt: skip
