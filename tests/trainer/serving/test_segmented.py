"""The figures by the values of a column: those of hosts are those of one process, however events and values are divided among them."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.examples import scaled
from tests.trainer.model.test_host_figures import HEADS, drawn_labels
from tests.trainer.thread_channels import on_channels
from trainer.model.heads import BINARY
from trainer.serving.scored_events import ScoredEvents
from trainer.serving.segmented import evaluate_by
from trainer.serving.shared_values import share_values
from transforms.errors import InputError


def evaluated(head, labels, logits, raw, cuts, most):
    """The evaluation on each host, whose events are those between two cuts, in fragments of at most 40."""

    def work(channels):
        first, stop = cuts[channels.steps.rank], cuts[channels.steps.rank + 1]
        starts = range(first, stop, 40)
        fragments = [SimpleNamespace(rows=slice(at, min(at + 40, stop))) for at in starts]
        positions = tuple(
            np.arange(one.rows.stop - one.rows.start) if k % 2 else None for k, one in enumerate(fragments)
        )
        own = ScoredEvents(head, labels[first:stop], logits[first:stop], positions)
        read = lambda fragment: raw.slice(fragment.rows.start, fragment.rows.stop - fragment.rows.start)  # noqa: E731
        return evaluate_by(own, fragments, raw.column_names, read, most=most, exchange=channels.steps)

    return on_channels(len(cuts) - 1, work)


@settings(max_examples=scaled(40))
@given(st.sampled_from(sorted(HEADS)), st.integers(0, 300), st.sampled_from([2, 3, 4]), st.sampled_from([1, 3, 50]), st.integers(0, 2**32 - 1))  # fmt: skip
def test_hosts_have_the_segments_of_one_process(kind, rows, hosts, most, seed):
    source, head = np.random.default_rng(seed), HEADS[kind]
    labels = drawn_labels(head, rows, source)
    logits = np.round(source.normal(0, 3, (rows, head.width) if head.width > 1 else rows), 1).astype(np.float32)
    codes = np.minimum(source.zipf(1.4, rows), 40)
    raw = pa.table({
        "text": pa.array([None if one == 3 else f"é{one}" for one in codes.tolist()], pa.string()),
        "number": pa.array(codes % 7),
    })  # fmt: skip
    cuts = [0, *sorted(source.integers(0, rows + 1, hosts - 1).tolist()), rows]
    (alone,) = evaluated(head, labels, logits, raw, [0, rows], most)
    assert evaluated(head, labels, logits, raw, cuts, most) == [alone] * hosts
    assert [one.values for one in alone.by] == [len(pa.compute.unique(raw[name])) for name in raw.column_names]
    assert sum(one.figures.scores.events for one in alone.by[0].segments) + (alone.by[0].others.scores.events if alone.by[0].others else 0) == rows  # fmt: skip


@given(st.lists(st.sampled_from(["a", "b", "c", "None", "", None]), max_size=30), st.integers(1, 4))
def test_each_value_has_one_host_that_hears_of_it_from_all(values, hosts):
    def work(channels):
        own = values[channels.steps.rank :: hosts]
        names = list(dict.fromkeys(own))
        shared = share_values(channels.steps, names, np.array([own.count(name) for name in names], np.int64), 2)
        return names, shared

    found = on_channels(hosts, work)
    counts = sorted(((name, values.count(name)) for name in {*values}), key=lambda one: (-one[1], one[0] or "", one[0] is not None))  # fmt: skip
    owned = [name for _, shared in found for name in shared.owned]
    assert sorted(owned, key=repr) == sorted({*values}, key=repr)
    for _, shared in found:
        assert (shared.count, shared.events) == (len(counts), len(values))
        assert list(shared.frequent) == counts[:2]
        heard = [[shared.owned[k] for k in places.tolist()] for places in shared.places]
        assert heard == [[name for name in names if name in shared.owned] for names, _ in found]


def test_a_column_of_lists_is_refused():
    raw = pa.table({"x": pa.array([[1], [2]])})
    with pytest.raises(InputError, match="must have single values"):
        evaluated(BINARY, np.zeros(2, np.float32), np.zeros(2, np.float32), raw, [0, 2], 5)
