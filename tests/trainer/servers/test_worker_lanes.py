"""Laws of which embedding workers a client uses."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from trainer.servers.worker_lanes import MOST_SHARED_LANES, lanes_of


def all_lanes(workers: int, clients: int) -> list[list[tuple[int, ...]]]:
    return [list(lanes_of(workers, client, clients)) for client in range(clients)]


@given(st.integers(1, 40), st.integers(1, 40))
def test_no_worker_is_idle_while_there_are_clients_for_it(workers, clients):
    used = Counter(lane[0] for lanes in all_lanes(workers, clients) for lane in lanes)
    assert len(used) == min(workers, clients) if workers < clients else workers
    assert sum(used.values()) == max(workers, clients)
    assert max(used.values()) - min(used.values()) <= 1


@given(st.integers(1, 40), st.integers(1, 40))
def test_the_lanes_of_clients_differ_by_one_at_most(workers, clients):
    lanes = [len(one) for one in all_lanes(workers, clients)]
    assert max(lanes) - min(lanes) <= 1
    assert min(lanes) >= 1
    if workers <= clients:
        assert set(lanes) == {1}


@given(st.integers(1, 40), st.integers(1, 40))
def test_each_lane_tries_all_workers_from_its_own_on(workers, clients):
    """So that neighbours take the batches of a lost worker, each of them those of one lane."""
    for lanes in all_lanes(workers, clients):
        for lane in lanes:
            assert sorted(lane) == list(range(workers))
            assert lane == lane[:1] + tuple((lane[0] + step) % workers for step in range(1, workers))


@given(st.integers(1, 40), st.integers(1, 40), st.integers(1, 70))
def test_batches_in_flight_have_lanes_of_their_own_as_far_as_workers_share_them(workers, clients, in_flight):
    for client in range(clients):
        alone, found = lanes_of(workers, client, clients), lanes_of(workers, client, clients, in_flight)
        assert found[: len(alone)] == alone, "consecutive lanes are of different workers"
        assert set(Counter(found).values()) == {len(found) // len(alone)}
        assert len(found) >= min(in_flight, MOST_SHARED_LANES - len(alone) + 1)
        assert len(found) <= max(len(alone), MOST_SHARED_LANES)
        assert len(found) < in_flight + len(alone)


def test_a_client_alone_has_all_workers():
    assert [one[0] for one in lanes_of(3, 0, 1)] == [0, 1, 2]
    assert [one[0] for one in lanes_of(5, 1, 2)] == [1, 3]
    assert [one[0] for one in lanes_of(2, 4, 5)] == [0]
    assert [one[0] for one in lanes_of(3, 0, 1, 7)] == [0, 1, 2] * 3
