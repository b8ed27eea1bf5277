"""Which rows were changed since a full shard."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.examples import scaled
from trainer.servers.changed_since import ChangedSince
from trainer.tables.stores.step_changes import StepChanges, TableChanges

SIZES = (11, 0, 30)
ROWS = st.tuples(st.lists(st.integers(0, 10)), st.lists(st.integers(0, 10**12)), st.lists(st.integers(0, 29)))


def note(changed: ChangedSince, rows) -> None:
    changed.note(
        np.array([one for own in rows for one in own], np.int64), np.array([len(own) for own in rows], np.int64)
    )


STEPS = st.sampled_from(["update", "snapshot", "full", "publish", "forget"])


@settings(max_examples=scaled(100))
@given(st.lists(st.tuples(STEPS, ROWS), max_size=20))
def test_rows_since_a_full_shard_are_those_that_were_updated_after_its_snapshot(steps):
    """As sets of rows say it; a table of size 0, such as a hashed one, is not noted. A shard may be whole long after its snapshot."""
    changed, interval, after_snapshot, since = ChangedSince(SIZES, {1: 0}), None, (set(), set()), {}
    for number, (step, rows) in enumerate(steps):
        if step == "update":
            note(changed, rows)
            for found in [after_snapshot, *since.values()]:
                found[0].update(rows[0])
                found[1].update(rows[2])
        elif step == "snapshot":
            interval, after_snapshot = changed.begin(), (set(), set())
            assert list(interval.since) == list(since)
            for name, found in since.items():
                of = interval.since[name]
                assert set(np.flatnonzero(of.of_range(0, 0, 11))) == found[0]
                assert set(7 + np.flatnonzero(of.of_range(2, 7, 30))) == {one for one in found[1] if one >= 7}
                assert (of.count(0), of.count(1), of.count(2)) == (len(found[0]), 0, len(found[1]))
        elif step == "full" and interval is not None:
            changed.wrote(f"shard {number}", interval.number)
            since = dict([*since.items(), (f"shard {number}", tuple(map(set, after_snapshot)))][-4:])
        elif step == "publish" and since:
            published = list(since)[rows[0][0] % len(since)] if rows[0] else "a shard of another server"
            changed.keep_from(published)
            if published in since:
                since = dict(list(since.items())[list(since).index(published) :])
        elif step == "forget":
            changed.forget()
            since, interval = {}, None


def test_rows_that_change_while_a_full_shard_is_written_count():
    changed = ChangedSince([8])
    moment = changed.begin()
    note(changed, [[3]])
    changed.wrote("full", moment.number)
    assert np.flatnonzero(changed.begin().since["full"].of_range(0, 0, 8)).tolist() == [3]


def test_a_shard_of_rows_that_were_replaced_is_no_base():
    changed = ChangedSince([8])
    moment = changed.begin()
    changed.forget()  # as by a load, before the shard is whole
    changed.wrote("full", moment.number)
    assert not changed.begin().since


def test_intervals_begin_again():
    """After 65,535 snapshots of a process the next shard is full."""
    changed = ChangedSince([8])
    changed.wrote("full", changed.begin().number)
    changed._interval = 65_535
    note(changed, [[1]])
    moment = changed.begin()
    assert not moment.since
    changed.wrote("other", moment.number)
    note(changed, [[2]])
    assert np.flatnonzero(changed.begin().since["other"].of_range(0, 0, 8)).tolist() == [2]


def more(numbers, removed=(), lines=()) -> StepChanges:
    return StepChanges({1: TableChanges(*(np.array(one, np.int64) for one in (numbers, removed, lines)))})


PLACES = st.lists(st.integers(0, 19), max_size=4)


@settings(max_examples=scaled(100))
@given(
    st.lists(
        st.tuples(STEPS, PLACES, st.lists(st.integers(0, 10**12), max_size=4), st.lists(st.integers(0, 5), max_size=2)),
        max_size=20,
    )
)
def test_rows_that_lost_their_places_are_listed_since_a_full_shard(steps):
    """As sets say it, for a hashed table of 20 places; after more removed rows than half of what is noted no shard is a base."""
    changed, interval, since = ChangedSince((11, 20), {1: 6}), None, {}
    after_snapshot = (set(), [], set())
    for number, (step, places, removed, lines) in enumerate(steps):
        if step == "update":
            note(changed, [[], places])
            changed.note_more(more(places, removed, lines))
            for found in [after_snapshot, *since.values()]:
                found[0].update(places)
                found[1].extend(removed)
                found[2].update(lines)
        elif step == "snapshot":
            interval, after_snapshot = changed.begin(), (set(), [], set())
            for name, of in interval.since.items():
                assert set(np.flatnonzero(of.among(1, np.arange(20)))) == since[name][0]
                assert of.removed_rows(1).tolist() == sorted(set(since[name][1]))
                assert of.lines(1).tolist() == sorted(since[name][2])
                assert len(since[name][1]) <= 15
            since = {name: since[name] for name in interval.since}
        elif step == "full" and interval is not None:
            changed.wrote(f"shard {number}", interval.number)
            since[f"shard {number}"] = tuple(type(one)(one) for one in after_snapshot)
        elif step == "forget":
            changed.forget()
            since, interval = {}, None


def test_after_many_removed_rows_the_next_shard_is_full():
    changed = ChangedSince([20], {0: 0})
    changed.wrote("full", changed.begin().number)
    for removed, is_base in ((10, True), (1, False)):
        changed.note_more(StepChanges({0: TableChanges(np.zeros(0, np.int64), np.arange(removed))}))
        assert ("full" in changed.begin().since) == is_base


def test_a_shard_whose_removed_rows_are_listed_no_more_is_no_base():
    """It is whole only after two later ones, of which the first was published."""
    changed = ChangedSince([20], {0: 0})
    late = changed.begin()
    changed.note_more(StepChanges({0: TableChanges(np.zeros(0, np.int64), np.array([5]))}))
    changed.wrote("first", changed.begin().number)
    changed.begin()
    changed.wrote("late", late.number)
    assert list(changed.begin().since) == ["first"]


def test_values_of_all_rows_that_change_leave_no_base():
    changed = ChangedSince([8])
    changed.wrote("full", changed.begin().number)
    changed.note_more(StepChanges(is_all=True))
    assert not changed.begin().since
