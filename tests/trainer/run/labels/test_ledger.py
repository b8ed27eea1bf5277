from __future__ import annotations

import json

import numpy as np
import pytest

from trainer.errors import TornCheckpoint
from trainer.options.document_field import DocumentField
from trainer.run.progress.ledger import Ledger, SavedCounts, label_sum
from trainer.run.reading.batches import Span

ROWS = {"a#0": 5, "a#1": 0, "b#0": 3}


def read_back(saved: SavedCounts) -> SavedCounts:
    return SavedCounts.read(DocumentField(json.loads(json.dumps(saved.to_document())), "ledger"), saved.uneven)


def test_counts_what_was_trained_and_nothing_else():
    ledger = Ledger(ROWS)
    ledger.count([Span("a#0", 0, 5), Span("b#0", 0, 2)])
    summary = ledger.summary(ROWS, expected=1)
    assert (summary.events, summary.least, summary.most, summary.exact) == (8, 0, 1, False)
    ledger.count([Span("b#0", 2, 3)])
    assert ledger.summary(ROWS, expected=1).exact
    assert not ledger.summary(ROWS, expected=2).exact
    ledger.count([Span("a#0", 1, 2)])
    assert ledger.summary(ROWS, expected=1).most == 2
    assert ledger.summary(["b#0"], expected=1).exact


def test_nothing_to_count_is_exact():
    assert Ledger({}).summary([], expected=1).exact


def test_saved_counts_round_trip():
    ledger = Ledger(ROWS)
    ledger.count([Span("a#0", 1, 4), Span("b#0", 0, 3)])
    saved = ledger.counts()
    again = Ledger({**ROWS, "later#0": 9})
    again.load(read_back(saved))
    assert again.counts().fragments == saved.fragments
    assert np.array_equal(again.counts().uneven, saved.uneven)
    assert list(saved.uneven) == [0, 1, 1, 1, 0]  # only the fragment whose events differ is stored event by event


@pytest.mark.parametrize("rows", [{"a#0": 4, "b#0": 3}, {"b#0": 3}])
def test_counts_of_other_data_are_refused(rows):
    ledger = Ledger(ROWS)
    ledger.count([Span("a#0", 0, 1)])
    saved = ledger.counts()
    with pytest.raises(TornCheckpoint, match="only events of this data"):
        Ledger(rows).load(saved)


@pytest.mark.parametrize(
    ("changes", "uneven"),
    [
        ({}, np.zeros(10, np.uint8)),
        ({}, np.zeros(5, np.int64)),
        ({}, np.zeros((5, 1), np.uint8)),
        ({"count": 256}, np.zeros(0, np.uint8)),
        ({"count": 1.0}, np.zeros(0, np.uint8)),
        ({"count": True}, np.zeros(0, np.uint8)),
        ({"rows": -5}, np.zeros(5, np.uint8)),
        ({"key": 7}, np.zeros(5, np.uint8)),
    ],
)
def test_counts_that_do_not_fit_each_other_are_torn(changes, uneven):
    fragment = {"key": "a#0", "rows": 5, "count": None, **changes}
    with pytest.raises(TornCheckpoint, match="must"):
        SavedCounts.read(DocumentField({"fragments": [fragment]}, "ledger"), uneven)


def test_a_fragment_is_counted_once():
    fragment = {"key": "a#0", "rows": 5, "count": 1}
    with pytest.raises(TornCheckpoint, match="distinct"):
        SavedCounts.read(DocumentField({"fragments": [fragment, fragment]}, "ledger"), np.zeros(0, np.uint8))


def test_a_counter_never_wraps():
    ledger = Ledger({"a#0": 1})
    for _ in range(255):
        ledger.count([Span("a#0", 0, 1)])
    with pytest.raises(OverflowError):
        ledger.count([Span("a#0", 0, 1)])


def test_labels_are_added_up_alike_for_a_range_and_for_listed_events():
    labels = np.array([1, 0, 1, 1], np.float32)
    by_range, by_list = Ledger({"a": 9}), Ledger({"a": 9})
    for _ in range(2):  # once each: the second training of an event adds nothing
        by_range.count([Span("a", 3, 7)], labels)
        by_list.count([Span("a", 0, 4, np.arange(3, 7))], labels)
    assert by_range.labels_of("a") == by_list.labels_of("a") == label_sum(np.arange(3, 7), labels)
    assert by_range.of("a").tolist() == by_list.of("a").tolist() == [0, 0, 0, 2, 2, 2, 2, 0, 0]
