"""Statistics of a feature: documents from outside, and samples that age."""

from __future__ import annotations

import copy
import json
import random

import pytest

from trainer.errors import ConfigError, TornCheckpoint
from trainer.options.document_field import OPEN, DocumentField
from trainer.planning.feature_statistics import RESIDUES, FeatureStatistics, aged_merge
from trainer.planning.row_frequencies import RowFrequencies
from trainer.planning.row_sample import RowSample
from trainer.planning.valencies import VALENCY_BOUNDS
from transforms.derived_documents import document_of

CLASSES = len(VALENCY_BOUNDS)


def statistics(events: float = 1000.0, rows: int = 50, hot: int = 3) -> FeatureStatistics:
    residues = tuple(2.0 * events if r == hot else 0.0 for r in range(RESIDUES))
    return FeatureStatistics(
        events=events,
        batches=events / 100,
        ids=2.0 * events,
        longest_bag=2,
        bags_by_valency=(0.0, 0.0, events, *(0.0,) * (CLASSES - 3)),
        ids_by_valency=(0.0, 0.0, 2.0 * events, *(0.0,) * (CLASSES - 3)),
        distinct_rows=events / 100,
        most_distinct_rows=1,
        ids_by_residue=residues,
        frequencies=RowFrequencies.of_counts(rows, {hot: 5}),
        sample=RowSample.of_counts(0, 2.0 * events, {hot: (2.0 * events, events / 100)}),
    )


def test_means_and_imbalance():
    one = statistics()
    assert (one.mean_valency, one.mean_distinct_rows, one.batch_events) == (2.0, 1.0, 100.0)
    assert one.imbalance == RESIDUES


def test_an_old_sample_counts_half_after_the_half_life():
    merged = aged_merge(statistics(1000.0, hot=3), statistics(1000.0, hot=4), half_life_events=1000.0)
    assert merged.version == 2
    assert merged.events == 1500.0
    assert dict(merged.frequencies.head) == pytest.approx({3: 1 / 3, 4: 2 / 3})
    assert merged.imbalance == pytest.approx(RESIDUES * 2 / 3)


def test_a_document_gives_the_same_statistics():
    one = aged_merge(statistics(), statistics(77.0), 500.0)
    document = json.loads(json.dumps(document_of(one)))
    assert OPEN.read(FeatureStatistics, DocumentField(document, "s")) == one


def test_a_document_of_an_earlier_release_has_no_sample():
    document = document_of(statistics())
    del document["sample"]
    found = OPEN.read(FeatureStatistics, DocumentField(document, "s"))
    assert found.sample == RowSample()
    assert aged_merge(found, statistics()).sample == statistics().sample


def test_impossible_statistics_are_refused():
    with pytest.raises(ConfigError):
        statistics(events=0.0)
    with pytest.raises(ConfigError):
        aged_merge(statistics(), statistics(), 0.0)


HOSTILE = [None, True, -1, 0, 1.5, 10**400, 2**70, float("nan"), float("inf"), "x", [], {}, [[1, 2, 3]], [["a", 0.1]], [1, [2]]]  # fmt: skip


def mutate(value: object, draw: random.Random) -> object:
    """``value`` with one part replaced, removed or repeated."""
    if isinstance(value, dict) and value and draw.random() < 0.9:
        name = draw.choice(sorted(value))
        if draw.random() < 0.1:
            return {key: item for key, item in value.items() if key != name}
        return {**value, name: mutate(value[name], draw)}
    if isinstance(value, list) and value and draw.random() < 0.8:
        place = draw.randrange(len(value))
        if draw.random() < 0.2:
            return value[:place] + value[place + draw.randrange(2) :] + value[:1]
        return [*value[:place], mutate(value[place], draw), *value[place + 1 :]]
    return copy.deepcopy(draw.choice(HOSTILE))


@pytest.mark.medium
def test_a_damaged_document_is_one_error():
    draw = random.Random(5)
    document = document_of(aged_merge(statistics(), statistics(77.0), 500.0))
    refused = [str(error) for error in (error_of(mutate(document, draw)) for _ in range(5000)) if error]
    assert len(refused) > 1000
    assert all("must" in text for text in refused)


def error_of(document: object) -> TornCheckpoint | None:
    """The error of a document; an intact one merges with others."""
    try:
        found = OPEN.read(FeatureStatistics, DocumentField(document, "s"))
    except TornCheckpoint as error:
        return error
    aged_merge(found, statistics())
    return None
