from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transforms.errors import InputError
from warehouse.scheduling.backlog import Backlog, ClientBacklog
from warehouse.scheduling.capacity import CapacityHint, CapacitySettings, FleetState, drain_work, workers_wanted

#: A worker gets one second of one core done in a second, at once.
PLAIN = CapacitySettings(threads=1, utilisation=1.0, start_secs=0.0, target_share=1.0, max_workers=1000)


def client(name: str = "ads", secs: float = 3600.0, oldest_secs: float = 0.0, **others: float) -> ClientBacklog:
    return replace(ClientBacklog(name, tasks=1000, secs=secs, oldest_secs=oldest_secs), **others)  # type: ignore[arg-type]


def hint(*clients: ClientBacklog, running: int = 0, fragments: int = 10**6, settings: CapacitySettings = PLAIN,
         now: float = 0.0, wishes: tuple[tuple[float, int], ...] = ()) -> CapacityHint:  # fmt: skip
    return workers_wanted(Backlog(clients, fragments), FleetState(now, running, wishes), settings)


def test_nothing_queued_is_worth_nothing() -> None:
    found = hint(ClientBacklog("ads"))
    assert (found.workers, found.binding, found.drain_secs, found.why) == (0, "", 0.0, "nothing is queued")
    assert hint(settings=replace(PLAIN, min_workers=2)).workers == 2


def test_an_hour_of_work_in_an_hour_is_one_worker() -> None:
    assert hint(client(secs=3600)).workers == 1
    assert hint(client(secs=3601)).workers == 2
    assert hint(client(secs=3600, oldest_secs=1800)).workers == 2
    assert hint(client(secs=1e-3)).workers == 1


def test_what_is_late_is_caught_up_with_in_a_tenth_of_the_deadline() -> None:
    found = hint(client(secs=3600, oldest_secs=7200))
    assert found.workers == 10
    assert "60 minutes late" in found.why


def test_starting_takes_time_and_who_runs_already_works_meanwhile() -> None:
    slow = replace(PLAIN, start_secs=600.0)
    assert hint(client(secs=30_000), settings=slow).workers == 10
    assert hint(client(secs=30_000 + 8 * 600), running=8, settings=slow).workers == 10
    assert hint(client(secs=3600 * 10), running=10, settings=slow).workers == 10, "they need not start"


def test_the_client_with_the_least_time_binds() -> None:
    found = hint(client("ads", 3600, deadline_secs=360.0), client("batch", 3600))
    assert found.binding == "ads"
    # While both wait, each gets half of the fleet.
    assert {one.client: one.workers for one in found.clients} == {"ads": 20, "batch": 2}
    assert {one.client: one.drain_secs for one in found.clients} == pytest.approx({"ads": 360.0, "batch": 360.0})


def test_shares_count() -> None:
    found = drain_work([client("ads", 100, weight=3.0), client("batch", 100)])
    assert found == pytest.approx({"ads": 100 / 0.75, "batch": 200})


def test_there_are_no_more_workers_than_fragments_for_their_threads() -> None:
    found = hint(client(secs=36_000), fragments=5, settings=replace(PLAIN, threads=2))
    assert found.workers == 3
    assert "fragments for 3 only" in found.why
    assert hint(client(secs=1e9)).workers == 1000
    assert "the most allowed" in hint(client(secs=1e9)).why


def test_the_fleet_grows_at_once_and_shrinks_after_a_while() -> None:
    first = hint(client(secs=36_000))
    assert first.workers == 10
    calm = hint(client(secs=3600), running=10, now=60.0, wishes=first.wishes)
    assert (calm.workers, calm.needed) == (10, 1)
    assert "1 would do" in calm.why
    later = hint(client(secs=3600), running=10, now=400.0, wishes=calm.wishes)
    assert later.workers == 1
    assert hint(ClientBacklog("ads"), running=10, now=350.0, wishes=calm.wishes).workers == 1
    assert hint(ClientBacklog("ads"), running=10, now=1000.0, wishes=calm.wishes).workers == 0


clients = st.lists(
    st.builds(
        client,
        st.just("x"),
        st.floats(0, 1e6),
        st.floats(0, 1e5),
        deadline_secs=st.floats(1, 1e5),
        weight=st.floats(0.01, 100),
    ),
    min_size=1,
    max_size=5,
).map(lambda found: [replace(one, client=f"client {n}") for n, one in enumerate(found)])


@given(clients, st.integers(0, 50), st.floats(0, 900))
def test_deadlines_that_can_be_met_are_met(found: list[ClientBacklog], running: int, start_secs: float) -> None:
    settings = CapacitySettings(threads=2, start_secs=start_secs, max_workers=10**9)
    given_hint = hint(*found, running=running, settings=settings, fragments=10**12)
    assert given_hint.workers >= max(one.workers for one in given_hint.clients)
    for one, told in zip(found, given_hint.clients, strict=True):
        patience = one.deadline_secs * settings.target_share - one.oldest_secs
        if patience > start_secs + one.deadline_secs * settings.late_share:
            assert told.drain_secs <= patience * (1 + 1e-6) + 1e-6


@given(clients, st.integers(0, 50), st.floats(1, 10), st.integers(0, 4))
def test_more_work_and_less_time_never_ask_for_fewer(
    found: list[ClientBacklog], running: int, times: float, which: int
) -> None:
    base = hint(*found, running=running).workers
    which %= len(found)
    busier = [replace(one, secs=one.secs * times) if n == which else one for n, one in enumerate(found)]
    later = [replace(one, oldest_secs=one.oldest_secs * times) if n == which else one for n, one in enumerate(found)]
    assert hint(*busier, running=running).workers >= base
    assert hint(*later, running=running).workers >= base


@given(clients)
def test_all_work_is_done_when_the_last_queue_is_empty(found: list[ClientBacklog]) -> None:
    work = drain_work(found)
    assert max(work.values()) == pytest.approx(math.fsum(one.secs for one in found), abs=1e-6)


@pytest.mark.parametrize(
    "nonsense",
    [{"threads": 0}, {"min_workers": 5, "max_workers": 4}, {"utilisation": 0.0}, {"target_share": 1.5},
     {"start_secs": -1.0}, {"shrink_after_secs": math.inf}],
)  # fmt: skip
def test_nonsense_is_refused(nonsense: dict[str, float]) -> None:
    with pytest.raises(InputError):
        CapacitySettings(**nonsense)  # type: ignore[arg-type]
