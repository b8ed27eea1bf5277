"""Matching is a pure function of requests and known memos."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warehouse.matching.match import MemoAction, Requeue, match_memos, memo_requests
from warehouse.memos.memos import MemoRecord
from warehouse.scheduling.task_states import MemoState
from warehouse.tables.manifests import PlacedFragment
from warehouse.tables.table import Fragment, memo_key

_WHEN = datetime(2026, 1, 1, tzinfo=UTC)


def placed(row: int, **digests: str) -> PlacedFragment:
    return PlacedFragment(row, "date=2026-01-01", 1, _WHEN, _WHEN, row, Fragment("f", "p", (0,), 1, 1, digests))


def record(key: str, state: MemoState) -> MemoRecord:
    return MemoRecord(key, "f", 1, state)


def test_the_key_covers_the_component_and_what_it_reads() -> None:
    digests = {"a": "1", "b": "2", "label": "3"}
    key = memo_key("f", digests, ["a", "b"])
    assert key == memo_key("f", {"b": "2", "a": "1"})
    assert key == memo_key("f", {**digests, "label": "changed"}, ["b", "a", "a"])
    assert key != memo_key("f", {**digests, "b": "changed"}, ["a", "b"])
    assert key != memo_key("g", digests, ["a", "b"])
    assert memo_key("f", {"a": "2", "b": "1"}) != memo_key("f", {"a": "1", "b": "2"})


def test_golden_key() -> None:
    """Keys are stored: if this changes, every memo of every catalog is lost."""
    assert memo_key("f" * 64, {"a": "1" * 64}) == "ffffffffffffffff4d6f501087b4ed6d91e7d9794affec7441b66ac248210ba1"


@pytest.mark.parametrize(
    ("state", "action"),
    [
        (None, MemoAction.QUEUE),
        (MemoState.PENDING, MemoAction.WAIT),
        (MemoState.RUNNING, MemoAction.WAIT),
        (MemoState.READY, MemoAction.LOAD),
        (MemoState.FAILED, MemoAction.QUARANTINED),
        (MemoState.EVICTED, MemoAction.QUEUE),
    ],
)
def test_what_is_done_about_each_state(state: MemoState | None, action: MemoAction) -> None:
    (wanted,) = memo_requests({"f": ["a"]}, [placed(1, a="1")])
    memos = {} if state is None else {wanted.memo_key: record(wanted.memo_key, state)}
    (found,) = match_memos([wanted], memos)
    assert found.action is action


def test_new_data_does_not_bring_back_what_was_evicted() -> None:
    wanted = memo_requests({"f": ["a"]}, [placed(1, a="1"), placed(2, a="2")])
    memos = {wanted[0].memo_key: record(wanted[0].memo_key, MemoState.EVICTED)}
    assert [one.action for one in match_memos(wanted, memos, requeue=Requeue.NONE)] == [
        MemoAction.LEAVE,
        MemoAction.QUEUE,
    ]


def test_the_same_content_in_two_places_is_queued_once() -> None:
    wanted = memo_requests({"f": ["a"]}, [placed(1, a="1"), placed(2, a="1"), placed(3, a="3")])
    assert [one.action for one in match_memos(wanted, {})] == [MemoAction.QUEUE, MemoAction.WAIT, MemoAction.QUEUE]


@given(
    st.dictionaries(st.sampled_from("fgh"), st.lists(st.sampled_from("abc"), min_size=1, unique=True), min_size=1),
    st.lists(st.fixed_dictionaries(dict.fromkeys("abc", st.sampled_from("123"))), max_size=5),
    st.lists(st.sampled_from(list(MemoState))),
)
def test_every_pair_gets_one_decision_and_no_memo_is_queued_twice(
    components: dict[str, list[str]], contents: list[dict[str, str]], states: list[MemoState]
) -> None:
    fragments = [placed(row, **digests) for row, digests in enumerate(contents)]
    wanted = memo_requests(components, fragments)
    keys = sorted({item.memo_key for item in wanted})
    memos = {key: record(key, state) for key, state in zip(keys, states, strict=False)}
    found = match_memos(wanted, memos)
    assert [one.request for one in found] == wanted
    assert len(wanted) == len(components) * len(fragments)
    queued = [one.request.memo_key for one in found if one.action is MemoAction.QUEUE]
    assert len(queued) == len(set(queued))
    for one in found:
        assert (one.action is MemoAction.LOAD) == (one.record is not None and one.record.state is MemoState.READY)
        if one.action is MemoAction.WAIT and one.record is None:
            assert one.request.memo_key in queued
