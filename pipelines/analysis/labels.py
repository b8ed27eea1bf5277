"""Count terms by label, and rank them by mutual information."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from pipelines.analysis.batch import Batch
from pipelines.analysis.information import label_shares, mutual_information, recommended_difference
from pipelines.analysis.terms import TERM, TermSums, by_term, ranked, text_of
from transforms.errors import DataError
from transforms.operators.declaration import Scalar

_LABEL, _COUNT, _WEIGHT = "label", "count", "weight"
_LABELS_MAX = 1000
#: The most counts of terms and labels that are expanded at once.
_CELLS = 1 << 20


class LabelledAccumulator:
    """The events with each term and label, and their weights. Rows without a term hold all events of a label."""

    def __init__(self, *, weighted: bool = False) -> None:
        fields = {TERM: pa.binary(), _LABEL: pa.int64(), _COUNT: pa.int64()}
        self._schema = pa.schema(fields | ({_WEIGHT: pa.float64()} if weighted else {}))
        self._sums = TermSums([TERM, _LABEL], self._schema.names[2:])

    def add(self, batch: Batch) -> None:
        """Add a batch of terms, each once per event. Raises :class:`DataError` for a label that is not a class."""
        batch = batch.weighed()
        labels = _classes(batch)
        weights = None if batch.weight is None else batch.weight.to_numpy()
        coded, events = batch.items.dictionary_encode(), batch.events
        beside = None if weights is None else weights[events]
        self._sums.add(self._counted(text_of(coded.dictionary), np.asarray(coded.indices), labels[events], beside))
        self._sums.add(self._counted(pa.nulls(1, pa.binary()), np.zeros(len(labels), np.int64), labels, weights))

    def _counted(
        self,
        terms: pa.Array,
        codes: NDArray[np.integer],
        labels: NDArray[np.int64],
        weights: NDArray[np.float64] | None,
    ) -> pa.RecordBatch:
        classes = 1 + int(labels.max(initial=0))
        met, place, counts = np.unique(codes * np.int64(classes) + labels, return_inverse=True, return_counts=True)
        columns = [terms.take(pa.array(met // classes)), pa.array(met % classes), pa.array(counts)]
        if weights is not None:
            columns.append(pa.array(np.bincount(place, weights, len(met))))
        return pa.record_batch(columns, schema=self._schema)

    def contribution(self) -> pa.RecordBatch:
        """Every pair of term and label, sorted by term."""
        return by_term(self._whole())

    def merge(self, contribution: pa.RecordBatch) -> None:
        """Merge the contribution of a later partition."""
        self._sums.add(contribution)

    def extract(self, params: Mapping[str, Scalar]) -> pa.Array:
        """Terms by descending information, then by descending bytes: the order of ``tft.vocabulary``."""
        whole = by_term(self._whole())
        of_all = whole.filter(pc.is_null(whole[TERM]))
        if not of_all.num_rows:
            return pa.array([], pa.binary())
        of_terms = whole.slice(0, whole.num_rows - of_all.num_rows)  # nulls sort last
        terms = of_terms[TERM].dictionary_encode()
        scores = pa.array(_scores(of_terms, np.asarray(terms.indices), of_all, params), pa.float64())
        found = pa.table({TERM: terms.dictionary, "information": scores})
        least = params.get("min_information", -np.inf)
        return ranked(found.filter(pc.greater_equal(scores, least)), "information", params)

    def _whole(self) -> pa.RecordBatch:
        return self._sums.whole(self._schema)


def _classes(batch: Batch) -> NDArray[np.int64]:
    assert batch.label is not None, "an analysis by label has a label"
    labels: NDArray[np.int64] = batch.label.to_numpy()
    if len(labels) and not 0 <= labels.min() <= labels.max() <= _LABELS_MAX:
        raise DataError("a label must be a class", value={"min": int(labels.min()), "max": int(labels.max())},
                        allowed=f"0 to {_LABELS_MAX}", next_step="correct the label's expression")  # fmt: skip
    return labels


def _scores(
    of_terms: pa.RecordBatch, codes: NDArray[np.integer], of_all: pa.RecordBatch, params: Mapping[str, Scalar]
) -> list[float]:
    """The information of each term; equal counts are computed once."""
    classes = 1 + int(pc.max(of_all[_LABEL]).as_py())
    ((events, weights),) = _spread(of_all, np.zeros(of_all.num_rows, np.int64), classes)
    everything = label_shares(events, weights)
    adjusted, given = bool(params.get("use_adjusted_mutual_info")), params.get("min_diff_from_avg", 0.0)
    assert isinstance(given, float | int), "min_diff_from_avg is a number"
    least = recommended_difference(everything.weight) if given < 0 else given
    known: dict[tuple[int, bytes], float] = {}
    scores = []
    for events, weights in _spread(of_terms, codes, classes):
        key = events, weights.tobytes()
        if key not in known:
            known[key] = mutual_information(label_shares(events, weights), everything, adjusted, least) + 0.0
        scores.append(known[key])
    return scores


def _spread(
    rows: pa.RecordBatch, codes: NDArray[np.integer], classes: int
) -> Iterator[tuple[int, NDArray[np.float64]]]:
    """The events of each code, in order, and its weight (or events) by label. ``codes`` ascend."""
    counts, labels = rows[_COUNT].to_numpy(), rows[_LABEL].to_numpy()
    weights = rows[_WEIGHT].to_numpy() if _WEIGHT in rows.schema.names else counts
    step = max(1, _CELLS // classes)
    for start in range(0, int(codes[-1]) + 1 if len(codes) else 0, step):
        first, last = np.searchsorted(codes, [start, start + step])
        some = codes[first:last] - start
        table = np.zeros((int(some[-1]) + 1, classes))
        table[some, labels[first:last]] = weights[first:last]
        events = np.bincount(some, counts[first:last]).astype(np.int64)
        yield from zip(events.tolist(), table, strict=True)
