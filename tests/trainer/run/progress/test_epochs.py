from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from trainer.run.progress.epochs import plan_epochs

segments_of = st.lists(st.integers(1, 5), min_size=1, max_size=3).map(
    lambda sizes: tuple(tuple(f"{s}/{i}" for i in range(size)) for s, size in enumerate(sizes))
)


@given(segments=segments_of, per_epoch=st.integers(1, 4), passes=st.integers(1, 3))
def test_every_partition_is_trained_once_a_pass_in_order(segments, per_epoch, passes):
    epochs = plan_epochs(segments, partitions_per_epoch=per_epoch, passes=passes)
    assert [epoch.number for epoch in epochs] == list(range(len(epochs)))
    assert all(1 <= len(epoch.partitions) <= per_epoch for epoch in epochs)
    order = [(key, epoch.pass_number) for epoch in epochs for key in epoch.partitions]
    assert order == [(key, n) for segment in segments for n in range(passes) for key in segment]
    assert set(Counter(key for key, _ in order).values()) == {passes}


@given(
    sizes=st.lists(st.integers(0, 40), min_size=1, max_size=30), events=st.integers(1, 100), passes=st.integers(1, 3)
)
def test_epochs_by_events_hold_whole_partitions_and_enough_of_them(sizes, events, passes):
    rows = {str(k): size for k, size in enumerate(sizes)}
    epochs = plan_epochs((tuple(rows),), partitions_per_epoch=1, passes=passes, events_per_epoch=events, rows=rows)
    assert [key for epoch in epochs for key in epoch.partitions] == passes * list(rows)
    first = [epoch for epoch in epochs if epoch.pass_number == 0]
    assert all(sum(rows[key] for key in epoch.partitions) >= events for epoch in first[:-1])
    assert all(sum(rows[key] for key in epoch.partitions[:-1]) < events for epoch in first), (
        "none is larger than needed"
    )


def test_thousands_of_small_partitions_are_a_few_epochs():
    rows = {f"day {k}": 300 for k in range(3_440)}
    epochs = plan_epochs((tuple(rows),), partitions_per_epoch=1, passes=1, events_per_epoch=51_600, rows=rows)
    assert len(epochs) == 20


@given(segments=segments_of, added=st.integers(0, 3), per_epoch=st.integers(1, 4), passes=st.integers(1, 3))
def test_appended_data_never_changes_the_plan_so_far(segments, added, per_epoch, passes):
    extended = (*segments, tuple(f"new/{i}" for i in range(added))) if added else segments
    before = plan_epochs(segments, partitions_per_epoch=per_epoch, passes=passes)
    after = plan_epochs(extended, partitions_per_epoch=per_epoch, passes=passes)
    assert after[: len(before)] == before
