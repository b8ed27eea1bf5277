"""tf.Transform's analyzers: which one an operator needs, and how what partitions contributed is put together.

A partition's *contribution* is the accumulator that tf.Transform's analyzer cache keeps of it. Beam merges accumulators in
whatever order they arrive, and the last bits of means and quantiles depend on that order. So they are merged here, in the
order of the partitions, by tf.Transform's own combiners: the same contributions give the same bits, on any number of workers.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import tensorflow as tf
import tensorflow_transform as tft
from google.protobuf import text_format
from tensorflow_metadata.proto.v0 import schema_pb2
from tensorflow_transform import analyzer_nodes, analyzers, tf_utils
from tensorflow_transform.beam import analyzer_impls
from tfx_bsl.tfxio.tensor_adapter import TensorAdapterConfig

from pipelines.analysis.values import LABEL, values_name
from transforms.errors import DataError
from transforms.full_pass import Analysis
from transforms.operators.declaration import Scalar
from transforms.operators.full_pass import QUANTILE_EPSILON, VOCABULARIES

Accumulators = Iterable[Sequence[bytes]]
Tensors = Mapping[str, Any]

_LISTS = 'varlen_sparse_tensor { column_name: "%s" }'
#: How many quantiles are asked of a partition: its accumulator is the same for any number.
_ANY = 2
_SCOPE = "part"


def preprocessing_fn(operators: Sequence[str]) -> Callable[[Tensors], Tensors]:
    """What tf.Transform is given: an analyzer for each operator. Its output is not used, only what it accumulates."""

    def analyze(inputs: Tensors) -> Tensors:
        for i, operator in enumerate(operators):
            _analyzer(operator, inputs[values_name(i)], f"{_SCOPE}{i}.")
        return {"events": tf.zeros(inputs[values_name(0)].dense_shape[:1], tf.int64)}

    return analyze


def _analyzer(operator: str, lists: Any, name: str) -> None:
    match operator:
        case "vocabulary_ids":
            tft.vocabulary(lists, top_k=1, vocab_filename=name, file_format="tfrecord_gzip", name=name)
        case "quantile_buckets":
            tft.quantiles(lists.values, _ANY, epsilon=QUANTILE_EPSILON, name=name)
        case "standardize_over":
            tft.var(lists.values, name=name)
        case _:
            tft.min(lists.values, name=name)


def part_of(entry: bytes) -> int:
    """Which operator of :func:`preprocessing_fn` an entry of the analyzer cache belongs to."""
    found = re.search(rb"\[" + _SCOPE.encode() + rb"(\d+)\.", entry)
    if found is None:
        raise AssertionError(f"tf.Transform names cache entries in another way: {entry!r}")
    return int(found.group(1))


def adapter_config(operators: Sequence[str]) -> TensorAdapterConfig:
    """How the record batches of :func:`pipelines.analysis.values.batches` become tensors."""
    types = {
        values_name(i): pa.binary() if operator in VOCABULARIES else pa.float64()
        for i, operator in enumerate(operators)
    }
    arrow_schema = pa.schema([(name, pa.list_(item)) for name, item in types.items()])
    representations = {name: text_format.Parse(_LISTS % name, schema_pb2.TensorRepresentation()) for name in types}
    return TensorAdapterConfig(arrow_schema, representations)


def labelled_accumulators(batches: Iterable[pa.RecordBatch], position: int) -> list[bytes]:
    """What tf.Transform's analyzer cache would hold of the values at ``position`` beside their label.

    The steps are tft.vocabulary's own: co-occurrences of a batch, then a combiner a term. They run here because Beam's
    in-process runner could not carry these accumulators for partitions of more than some ten thousand terms.
    """
    combiner, totals = _label_combiner(), dict[bytes, Any]()
    for batch in batches:
        lists = batch.column(values_name(position))
        ragged = tf.RaggedTensor.from_row_lengths(
            tf.constant(np.array(lists.flatten().to_pylist(), object), tf.string), np.asarray(lists.value_lengths())
        )
        label = tf.constant(batch.column(LABEL).flatten().to_numpy(), tf.int64)
        found = tf_utils.reduce_batch_weighted_cooccurrences(ragged.to_sparse(), label)
        parts = (found.unique_x.numpy(), found.summed_positive_per_x_and_y.numpy(), found.counts_per_x.numpy())
        for term, one in analyzer_impls._flatten_to_key_and_means_accumulator_list(parts, compute_weighted=False):
            totals[term] = combiner.add_input(totals.get(term, combiner.create_accumulator()), one)
    coder = _vocabulary_coder()
    return [coder.encode_cache((term, combiner.extract_output(total))) for term, total in totals.items()]


def _label_combiner() -> Any:
    return analyzers.WeightedMeanAndVarCombiner(
        np.float32, output_shape=(None,), compute_variance=False, compute_weighted=False
    )


def merged(analysis: Analysis, contributions: Accumulators) -> pa.Array:
    """What an analysis finds, from what its partitions contributed, in their order: terms, or float64 numbers.

    Raises :class:`DataError` if there is nothing to find: no value in the range, or none that the operator can work with.
    """
    params = analysis.params
    match analysis.operator:
        case "vocabulary_ids":
            return _terms(_frequent(contributions, params))
        case "labelled_vocabulary_ids":
            return _terms(_informative(contributions, params))
        case "quantile_buckets":
            return _numbers(_quantiles(contributions, params))
        case "standardize_over":
            return _numbers(_mean_and_deviation(contributions))
        case _:
            return _numbers(_least_and_greatest(contributions))


def _frequent(contributions: Accumulators, params: Mapping[str, Scalar]) -> pa.Array:
    """Terms by falling count, then by falling bytes: tft.vocabulary's order."""
    coder = _vocabulary_coder()
    parts = []
    for encoded in contributions:
        decoded = [coder.decode_cache(one) for one in encoded]
        terms = pa.array([term for term, _ in decoded], pa.binary())
        parts.append(pa.table({"term": terms, "count": pa.array([int(count) for _, count in decoded], pa.int64())}))
    counts = pa.concat_tables(parts).group_by("term").aggregate([("count", "sum")])
    counts = counts.filter(pa.compute.greater_equal(counts["count_sum"], params["min_frequency"]))
    return _first(counts.sort_by([("count_sum", "descending"), ("term", "descending")])["term"], params)


def _informative(contributions: Accumulators, params: Mapping[str, Scalar]) -> pa.Array:
    """Terms by falling mutual information, then by falling bytes: tft.vocabulary's order, by its own formulas."""
    coder = _vocabulary_coder()
    combiner = _label_combiner()
    merged_by_term: dict[bytes, Any] = {}
    for encoded in contributions:
        for term, accumulator in map(coder.decode_cache, encoded):
            before = merged_by_term.get(term, combiner.create_accumulator())
            merged_by_term[term] = combiner.add_input(before, accumulator)
    results = {term: combiner.extract_output(accumulator) for term, accumulator in merged_by_term.items()}
    everything = results.pop(tf_utils.GLOBAL_Y_COUNT_SENTINEL_STRING, None)
    if everything is None:
        return pa.array([], pa.binary())
    least = analyzers.calculate_recommended_min_diff_from_avg(everything.count * everything.weight)
    ranked = sorted(
        ((_information(term, found, everything, least), term) for term, found in results.items()), reverse=True
    )
    return _first(pa.array([term for _, term in ranked], pa.binary()), params)


def _information(term: bytes, found: Any, everything: Any, least: int) -> float:
    # tf.Transform's private function; a test holds the outcome against tft.vocabulary.
    _, (information, _, _) = analyzer_impls._calculate_mutual_information_for_feature_value(
        (term, found), everything, use_adjusted_mutual_info=False, min_diff_from_avg=least
    )
    return float(information)


def _first(terms: pa.Array | pa.ChunkedArray, params: Mapping[str, Scalar]) -> pa.Array:
    top_k = params["top_k"]
    assert isinstance(top_k, int)
    return terms.slice(0, top_k) if top_k else terms


def _quantiles(contributions: Accumulators, params: Mapping[str, Scalar]) -> list[float]:
    combiner = analyzers.QuantilesCombiner(params["n"], QUANTILE_EPSILON, np.float32)
    (boundaries,) = combiner.extract_output(_in_order(combiner, contributions))
    found = np.unique(boundaries.astype(np.float64) + 0.0)
    return [float(boundary) for boundary in found if math.isfinite(boundary)]


def _mean_and_deviation(contributions: Accumulators) -> list[float]:
    combiner = analyzers.WeightedMeanAndVarCombiner(np.float64, ())
    total = _in_order(combiner, contributions, combiner.accumulator_class._make)
    if not total.count:
        return []
    mean, variance = combiner.extract_output(total)
    return [float(mean) + 0.0, math.sqrt(float(variance))]


def _least_and_greatest(contributions: Accumulators) -> list[float]:
    combiner = analyzers.NumPyCombiner(np.max, -np.inf, [np.float64, np.float64], [(), ()])
    minus_least, greatest = combiner.extract_output(_in_order(combiner, contributions))
    if not math.isfinite(greatest):
        return []
    least, greatest = 0.0 - float(minus_least), float(greatest) + 0.0
    if not least < greatest or math.isinf(greatest - least):
        raise DataError("min_max needs a range", value=(least, greatest),
                        allowed="least < greatest, and their difference a finite number",
                        next_step="widen the range of time, or leave the input out")  # fmt: skip
    return [least, greatest]


def _in_order(combiner: Any, contributions: Accumulators, made: Callable[[Any], Any] = lambda decoded: decoded) -> Any:
    """The accumulators of the partitions merged one after another."""
    coder = combiner.accumulator_coder
    return combiner.merge_accumulators(
        [
            combiner.create_accumulator(),
            *(made(coder.decode_cache(one)) for encoded in contributions for one in encoded),
        ]
    )


def _vocabulary_coder() -> Any:
    return analyzer_nodes._VocabularyAccumulatorCoder()


def _terms(found: pa.Array | pa.ChunkedArray) -> pa.Array:
    if len(found) == 0:
        raise _nothing("no term is left for the vocabulary", "lower min_frequency, or widen the range")
    chunks = found.chunks if isinstance(found, pa.ChunkedArray) else [found]
    return pa.concat_arrays(chunks).cast(pa.string())


def _numbers(found: list[float]) -> pa.Array:
    if not found:
        raise _nothing("no finite number is in the range of an analysis", "widen the range")
    return pa.array(found, pa.float64())


def _nothing(what: str, next_step: str) -> DataError:
    return DataError(what, next_step=next_step)
