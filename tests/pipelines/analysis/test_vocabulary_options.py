"""Vocabularies with tf.Transform's options equal tf.Transform's own and its published tests."""

from __future__ import annotations

import os
import unittest
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pytest

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")

import transforms.expressions.expression as hr
from pipelines.analysis.accumulators import merge_contributions, new_accumulator
from pipelines.analysis.batch import Batch
from tests.pipelines.analysis.tf_transform import vocabularies
from transforms.analysis.full_pass import analyses
from transforms.errors import InputError
from transforms.ranges import between

DAY = between("2026-01-01", "2026-01-02")
#: By tf.Transform's names, ours.
NAMES = {"top_k": "top_k", "use_adjusted_mutual_info": "use_adjusted_mutual_info", "min_diff_from_avg": "min_diff_from_avg",
         "fingerprint_shuffle": "fingerprint_shuffle"}  # fmt: skip


def found(
    values: Sequence[Any], labels: Sequence[int] | None, weights: Sequence[float] | None, given: Mapping[str, Any]
) -> list[str]:
    """The vocabulary of a column that is given by tf.Transform's names, in three partitions."""
    whole = any(isinstance(item, int) for row in values for item in (row if isinstance(row, list) else [row]))
    options = {NAMES[name]: value for name, value in given.items() if name in NAMES and value is not None}
    if (least := given.get("frequency_threshold")) is not None:
        whole_times = labels is None and weights is None
        options["min_frequency" if labels is None else "min_information"] = int(least) if whole_times else float(least)
    options["top_k"] = int(options.get("top_k", 0))
    expression = (hr.ragged("x", "int64") if whole else hr.ragged("x", "string")).vocabulary_ids(
        over=DAY, label=None if labels is None else hr.int64("y"), weights=None if weights is None else hr.float64("w"),
        **options)  # fmt: skip
    (analysis,) = analyses([expression.node])
    lists = pa.array([row if isinstance(row, list) else [row] for row in values],
                     pa.list_(pa.int64() if whole else pa.string()))  # fmt: skip
    batch = Batch(lists, None if labels is None else pa.array(labels, pa.int64()),
                  None if weights is None else pa.array(np.float32(weights), pa.float32()).cast(pa.float64()))  # fmt: skip
    contributions = []
    for rows in np.array_split(np.arange(len(values)), 3):
        accumulator = new_accumulator(analysis.operator)
        accumulator.add(Batch(*(None if one is None else one.take(pa.array(rows)) for one in batch)))
        contributions.append(accumulator.contribution())
    return [str(term) for term in merge_contributions(analysis, contributions).to_pylist()]


class Published(NamedTuple):
    """A case of tf.Transform's own tests: columns, options, and what it says comes of them."""

    name: str
    columns: Mapping[str, list[Any]]
    given: Mapping[str, Any]
    terms: list[str] | None
    ids: list[Any] | None


def published(monkeypatch: pytest.MonkeyPatch) -> Iterator[Published]:
    """The cases of its vocabulary tests: each test is run as far as to what it would hold against Beam."""
    import tensorflow_transform as tft

    theirs = pytest.importorskip("tensorflow_transform.beam.vocabulary_integration_test").VocabularyIntegrationTest
    given: dict[str, Any] = {}
    monkeypatch.setattr(tft, "vocabulary", lambda x, **options: given.update(options))
    monkeypatch.setattr(tft, "compute_and_apply_vocabulary", lambda x, **options: given.update(options))
    for name in dir(theirs):
        if not name.startswith(("testVocabulary_", "testComputeAndApplyVocabulary_")):
            continue
        held: list[Any] = []
        test = theirs(name)
        monkeypatch.setattr(test, "_VocabFormat", lambda: "tfrecord_gzip")
        monkeypatch.setattr(
            test, "assertAnalyzeAndTransformResults", lambda *args, held=held, **more: held.extend([args, more])
        )
        try:
            getattr(test, name)()
        except unittest.SkipTest:
            continue
        (rows, _, preprocessing_fn, expected, *_), more = held
        columns = {key: [row[key] for row in rows] for key in rows[0]}
        given.clear()
        preprocessing_fn(columns)
        contents = (more.get("expected_vocab_file_contents") or {}).get("my_vocab")
        terms = contents and [text(entry[0] if isinstance(entry, tuple) else entry) for entry in contents]
        ids = [row["index"] for row in expected] if "index" in expected[0] else None
        yield Published(name, columns, dict(given), terms, ids)


def text(term: Any) -> Any:
    if isinstance(term, list):
        return [text(one) for one in term]
    return term.decode() if isinstance(term, bytes) else term


#: A vocabulary with coverage, tensors of rank 2, and vocabularies that are empty, of which we make an error.
ELSEWHERE = ("key_fn", "rank_2", "empty_vocabulary")


def ids_of(values: Sequence[Any], ids: Sequence[Any]) -> list[tuple[str, int]]:
    """Each item with the id that is published of it."""
    pairs = zip(values, ids, strict=True)
    return [
        (str(item), place)
        for row, places in pairs
        for item, place in (zip(row, places, strict=True) if isinstance(row, list) else [(row, places)])
    ]


def test_published_vocabularies_are_found_row_for_row(monkeypatch: pytest.MonkeyPatch) -> None:
    cases, labelled_rows, contradictory = 0, 0, []
    for case in published(monkeypatch):
        if any(word in case.name for word in ELSEWHERE):
            continue
        values = [text(value) for value in case.columns["x"]]
        terms = found(values, case.columns.get("label"), case.columns.get("weights"), case.given)
        if case.terms is not None:
            assert terms == case.terms, case.name
        if case.ids is not None:
            default = case.given.get("default_value", -1)
            place = {term: position for position, term in enumerate(terms)}
            pairs = ids_of(values, case.ids)
            theirs = [default if published_id >= len(terms) else published_id for _, published_id in pairs]
            ours = [place.get(item, default) for item, _ in pairs]
            if len(set(pairs)) > len({item for item, _ in pairs}):
                contradictory.append(case.name.removeprefix("testComputeAndApplyVocabulary_"))
                ours, theirs = sorted(ours), sorted(theirs)
            assert ours == theirs, case.name
            labelled_rows += len(values) if "label" in case.columns and "weights" not in case.columns else 0
        cases += 1
    assert (cases, labelled_rows) == (42, 59)
    # These publish two ids of one term: rows are in each other's places, so they are compared without their order.
    assert contradictory == ["int_feature_with_label_top_2", "string_feature_with_label_top_1",
                             "string_feature_with_label_top_2", "whitespace_newlines_and_empty_strings_tfrecord",
                             "whitespace_newlines_empty_oov_buckets_tfrecord"]  # fmt: skip


def random_events(seed: int, rows: int) -> list[dict[str, Any]]:
    random = np.random.default_rng(seed)
    words = [f"w{rank}" for rank in range(12)] + ["né", "", "line\nbreak"]
    events = []
    for row in range(rows):
        label = int(random.integers(0, 3))
        terms = random.choice(len(words), int(random.integers(0, 5)), replace=False, p=skewed(len(words), label))
        events.append({"row": row, "y": label, "x": [words[term] for term in terms], "one": words[int(random.integers(0, 15))],
                       "w": float(random.integers(0, 24)) / 8})  # fmt: skip
    return events


def skewed(count: int, label: int) -> np.ndarray:
    weights = 1.0 / (1 + (np.arange(count) + 4 * label) % count)
    return weights / weights.sum()


WANTED: dict[str, dict[str, Any]] = {
    "plain": {"x": "x"},
    "thresholds": {"x": "x", "frequency_threshold": 20, "top_k": 5},
    "weighted": {"x": "one", "weights": "w"},
    "shuffled": {"x": "x", "top_k": 6, "fingerprint_shuffle": True},
    "labelled": {"x": "x", "labels": "y", "min_diff_from_avg": 0},
    "labelled one": {"x": "one", "labels": "y", "min_diff_from_avg": 0, "frequency_threshold": 0.5},
    "regularised": {"x": "x", "labels": "y", "min_diff_from_avg": 4},
    "chosen": {"x": "x", "labels": "y", "min_diff_from_avg": None},
    "adjusted": {"x": "x", "labels": "y", "use_adjusted_mutual_info": True, "min_diff_from_avg": 0},
    "weighted label": {"x": "one", "labels": "y", "weights": "w", "min_diff_from_avg": 0},
    "weighted adjusted": {
        "x": "one",
        "labels": "y",
        "weights": "w",
        "use_adjusted_mutual_info": True,
        "min_diff_from_avg": 1,
    },
}


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1])
def test_every_option_finds_what_tf_transform_finds(seed: int) -> None:
    import tensorflow as tf

    events = random_events(seed, 400)
    spec = {"x": tf.io.VarLenFeature(tf.string), "one": tf.io.FixedLenFeature([], tf.string),
            "y": tf.io.FixedLenFeature([], tf.int64), "w": tf.io.FixedLenFeature([], tf.float32),
            "row": tf.io.FixedLenFeature([], tf.int64)}  # fmt: skip
    theirs = vocabularies(events, spec, {name.replace(" ", "_"): given for name, given in WANTED.items()})
    for name, given in WANTED.items():
        labels = [event["y"] for event in events] if "labels" in given else None
        weights = [event["w"] for event in events] if "weights" in given else None
        options = {key: value for key, value in given.items() if key not in ("x", "labels", "weights")}
        if options.get("min_diff_from_avg", 0) is None:
            options["min_diff_from_avg"] = -1
        ours = found([event[given["x"]] for event in events], labels, weights, options)
        assert ours == theirs[name.replace(" ", "_")], name


@pytest.mark.parametrize(
    "option",
    ["key_fn", "coverage_top_k", "store_frequency", "reserved_tokens", "file_format", "labels", "num_oov_buckets"],
)
def test_an_option_without_meaning_here_is_refused_by_name_with_what_to_do(option: str) -> None:
    with pytest.raises(InputError, match=f"does not take {option}: ") as caught:
        hr.text("x").vocabulary_ids(over=DAY, **{option: 1})
    assert caught.value.next_step


def test_an_unknown_option_is_refused_with_those_that_exist() -> None:
    with pytest.raises(InputError, match="no such option") as caught:
        hr.text("x").vocabulary_ids(over=DAY, topk=3)
    assert "top_k" in caught.value.allowed
    with pytest.raises(InputError, match="without a label"):
        hr.text("x").vocabulary_ids(over=DAY, use_adjusted_mutual_info=True)
