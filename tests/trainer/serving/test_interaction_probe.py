"""Two DLRMs find which features of a planted log interact, and agree on no more than chance where none does."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

pytest.importorskip("tensorflow")

from benchmarks.support.planted_logs import paired_ids
from tests.trainer.synthetic import Synthetic
from trainer.model.metrics import auc
from trainer.serving.interaction_probe import newest_partitions, probe_interactions
from transforms.types import Dense, DType

PARTITIONS, ROWS = 4, 6_000


def log_of(*, is_planted: bool, seed: int = 3) -> tuple[Synthetic, set[tuple[int, int]]]:
    """A log of 8 ids, of which pairs interact or none does, and the places of the pairs."""
    source, rows = np.random.default_rng(seed), PARTITIONS * (2 * ROWS + 17)
    columns, logits, pairs = paired_ids(source, rows, pairs=4, values=10, width=2)
    odds = logits if is_planted else np.zeros(rows)
    labels = (source.random(rows) < 1 / (1 + np.exp(-odds))).astype(np.int64)
    table = pa.table({**{name: values for name, (_, values) in columns.items()}, "__label__": labels})

    def part(number, count, _types):
        first = number // 1000 * (2 * ROWS + 17) + number % 1000 * ROWS
        return table.slice(first, count).combine_chunks()

    log = Synthetic(PARTITIONS, ROWS, types={name: Dense(DType.INT64, 1000) for name in columns}, make=part)
    names = list(columns)
    return log, {(names.index(one), names.index(other)) for one, other in pairs}


def probed(log):
    return probe_interactions(
        log.solution, log.read, {"dim": 8, "network": "dcn"}, most_trained=10**6, most_sampled=2_000
    )


@pytest.mark.slow
def test_two_dlrms_find_the_pairs_that_interact():
    log, pairs = log_of(is_planted=True)
    found = probed(log)
    assert found.trained_events == log.solution.rows
    assert found.interactions.events == 2_000
    assert found.agreement.is_found
    assert found.agreement.correlation > 0.5
    matrix = found.interactions.matrix()
    places = [(i, j) for i in range(8) for j in range(i)]
    is_pair = np.array([float((i, j) in pairs or (j, i) in pairs) for i, j in places], np.float32)
    assert auc(is_pair, np.array([matrix[i, j] for i, j in places])) == 1.0


@pytest.mark.slow
def test_labels_that_depend_on_nothing_give_interactions_of_chance():
    log, _ = log_of(is_planted=False)
    found = probed(log)
    assert not found.agreement.is_found
    assert found.interactions.matrix()[np.tril_indices(8, -1)].mean() > 0.5 * found.agreement.floor


def test_the_newest_partitions_are_whole():
    solution = Synthetic(4, 100).solution  # 217 events each
    assert [one.key for one in newest_partitions(solution, 1).partitions] == ["hour=03"]
    assert [one.key for one in newest_partitions(solution, 218).partitions] == ["hour=02", "hour=03"]
    assert newest_partitions(solution, 10**9) == solution
