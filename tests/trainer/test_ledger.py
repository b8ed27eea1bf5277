from __future__ import annotations

import json

import numpy as np
import pytest

from trainer.errors import TornCheckpoint
from trainer.ledger import Ledger
from trainer.readers import Span

ROWS = {"a#0": 5, "a#1": 0, "b#0": 3}


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


def test_saved_counts_come_back():
    ledger = Ledger(ROWS)
    ledger.count([Span("a#0", 1, 4), Span("b#0", 0, 3)])
    document, uneven = ledger.to_document()
    again = Ledger({**ROWS, "later#0": 9})
    again.load(json.loads(json.dumps(document)), uneven)
    assert again.to_document()[0] == document
    assert np.array_equal(again.to_document()[1], uneven)
    assert list(uneven) == [0, 1, 1, 1, 0]  # only the fragment whose events differ is stored event by event


@pytest.mark.parametrize("rows", [{"a#0": 4, "b#0": 3}, {"b#0": 3}])
def test_counts_of_other_data_are_refused(rows):
    ledger = Ledger(ROWS)
    ledger.count([Span("a#0", 0, 1)])
    document, uneven = ledger.to_document()
    with pytest.raises(TornCheckpoint):
        Ledger(rows).load(document, uneven)
    with pytest.raises(TornCheckpoint):
        Ledger(ROWS).load(document, np.concatenate([uneven, uneven]))


def test_a_counter_never_wraps():
    ledger = Ledger({"a#0": 1})
    for _ in range(255):
        ledger.count([Span("a#0", 0, 1)])
    with pytest.raises(OverflowError):
        ledger.count([Span("a#0", 0, 1)])
