"""A window of shuffled events that hosts share says where the parts of its batches begin."""

from __future__ import annotations

import numpy as np
import pytest

from tests.trainer.run.loading.streams import LogStream
from tests.trainer.run.loading.test_stream import partial_log
from trainer.job.host.shared_batches import SharedBatches
from trainer.run.loading.batch_order import counts_before
from trainer.run.preparation.due_places import DuePlaces
from trainer.run.reading.shuffling import ShuffleWindow
from trainer.scheduling.batch_parts import BatchParts


@pytest.mark.parametrize("hosts", [1, 3, 7])
def test_the_cuts_of_a_window_are_the_parts_of_its_batches(hosts):
    stream = LogStream(partial_log())
    plan = stream.begin().plan
    places = DuePlaces(plan, counts_before(plan))
    events = 0
    for rank in range(hosts):
        parts = BatchParts(4, rank, hosts, 0, plan.units.due_before(plan.stops[0]))
        shared = SharedBatches(plan, places, parts, ShuffleWindow(20, 5, 0))
        found: list[int] = []
        window = shared.window(0)
        while window is not None and shared.dealt(window.number) is not None:
            cuts = window.cuts(window.rows, 4)
            assert cuts[0] == 0
            assert cuts[-1] == window.rows
            found += np.diff(cuts).tolist()
            window = window.following()
        assert found == [rows for k in range(parts.batches) if (rows := shared.rows(k))]
        events += sum(found)
    assert events == parts.stop > 100
