"""Count terms, in memory proportional to the distinct terms."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipelines.analysis.batch import Batch
from transforms.errors import DataError
from transforms.operators.declaration import Scalar

#: Buffered rows, beyond the number of distinct terms, before equal terms are summed.
_WAITING_ROWS = 1 << 18
TERM = "term"


class TermSums:
    """Sums of the ``summed`` columns by ``keys`` (a term, or a term and a label), in the order of the rows."""

    def __init__(self, keys: Sequence[str], summed: Sequence[str]) -> None:
        self._keys, self._summed = list(keys), list(summed)
        self._parts: list[pa.RecordBatch] = []
        self._waiting = self._distinct = 0

    def add(self, rows: pa.RecordBatch) -> None:
        """Add rows; keys may repeat."""
        if rows.num_rows:
            self._parts.append(rows)
            self._waiting += rows.num_rows
        if self._waiting > _WAITING_ROWS + self._distinct:
            self._add_up()

    def whole(self, schema: pa.Schema) -> pa.RecordBatch:
        """Every key once, unordered. Raises :class:`DataError` for more text than one array holds."""
        if len(self._parts) > 1:
            self._add_up()
        if not self._parts:
            return pa.RecordBatch.from_pylist([], schema)
        batches = pa.Table.from_batches(self._parts, schema).combine_chunks().to_batches()
        if len(batches) > 1:
            raise DataError("the distinct terms of a range must fit into 2 GiB", value=f"{self._distinct} terms",
                            next_step="analyze a shorter range, or coarser values: lower(), hash_buckets(n)")  # fmt: skip
        return batches[0]

    def _add_up(self) -> None:
        whole = pa.Table.from_batches(self._parts)
        # One thread: floating-point sums follow the order of the rows.
        sums = whole.group_by(self._keys, use_threads=False).aggregate([(name, "sum") for name in self._summed])
        columns = [sums[name] for name in self._keys] + [sums[f"{name}_sum"] for name in self._summed]
        self._parts = pa.table(columns, names=self._keys + self._summed).to_batches()
        self._waiting, self._distinct = 0, sums.num_rows


def text_of(terms: pa.Array) -> pa.Array:
    """Terms as bytes: text in UTF-8, integers by their decimal text."""
    return terms.cast(pa.string()).cast(pa.binary())


def by_term(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Rows sorted by term, so that equal contributions have equal bytes."""
    keys = [(name, "ascending") for name in rows.schema.names if name in (TERM, "label")]
    return rows.take(pc.sort_indices(rows, sort_keys=keys))


class FrequencyAccumulator:
    """The occurrences of each term, or the weight of the events in which it occurs."""

    def __init__(self, *, weighted: bool = False) -> None:
        self._by = "weight" if weighted else "count"
        self._schema = pa.schema({TERM: pa.binary(), self._by: pa.float64() if weighted else pa.int64()})
        self._sums = TermSums([TERM], [self._by])

    def add(self, batch: Batch) -> None:
        """Add a batch of terms."""
        batch = batch.weighed()
        terms, sums = batch.items.value_counts().flatten() if batch.weight is None else _weigh(batch)
        self._sums.add(pa.record_batch([text_of(terms), sums], schema=self._schema))

    def contribution(self) -> pa.RecordBatch:
        """Every term with its sum, sorted by term."""
        return by_term(self._sums.whole(self._schema))

    def merge(self, contribution: pa.RecordBatch) -> None:
        """Merge the contribution of a later partition."""
        self._sums.add(contribution)

    def extract(self, params: Mapping[str, Scalar]) -> pa.Array:
        """Terms by descending sum, then by descending bytes: the order of ``tft.vocabulary``."""
        found = pa.Table.from_batches([self._sums.whole(self._schema)])
        return ranked(found.filter(pc.greater_equal(found[self._by], params["min_frequency"])), self._by, params)


def _weigh(batch: Batch) -> tuple[pa.Array, pa.Array]:
    assert batch.weight is not None, "a weighted analysis has weights"
    coded = batch.items.dictionary_encode()
    weights = batch.weight.to_numpy()[batch.events]
    sums = np.bincount(np.asarray(coded.indices), weights, len(coded.dictionary))
    return coded.dictionary, pa.array(sums)


def ranked(found: pa.Table, by: str, params: Mapping[str, Scalar]) -> pa.Array:
    """The first ``top_k`` terms by descending ``by``, then by descending bytes, or by fingerprints if the parameters say so."""
    order = pc.sort_indices(found, sort_keys=[(by, "descending"), (TERM, "descending")])
    top_k = params["top_k"]
    assert isinstance(top_k, int)
    terms = found[TERM].take(order[:top_k] if top_k else order).combine_chunks()
    if not params.get("fingerprint_shuffle"):
        return terms
    return pa.array(sorted(terms.to_pylist(), key=lambda term: hashlib.sha1(term).digest()), pa.binary())
