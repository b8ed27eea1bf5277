"""Hosts on a grid: which are near and far, when sums in two legs pay, what they send, and how figures of them travel."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainer.errors import ConfigError
from trainer.planning.host_grid import (
    GRID_BYTES,
    HostGrid,
    SumFigures,
    flat_bytes,
    grid_bytes,
    grid_of,
    pays,
)

GRIDS = st.builds(HostGrid, st.integers(2, 40), st.integers(2, 40))


@given(GRIDS, st.data())
def test_each_host_has_a_machine_and_a_place(grid, data):
    rank = data.draw(st.integers(0, grid.hosts - 1))
    near, far = grid.near_of(rank), grid.far_of(rank)
    assert (len(near), len(far)) == (grid.places, grid.machines)
    assert set(near) & set(far) == {rank}
    assert near[rank % grid.places] == far[rank // grid.places] == rank
    assert all(grid.near_of(one) == near for one in near)
    assert all(grid.far_of(one) == far for one in far)


@given(st.integers(1, 64), st.integers(1, 64))
def test_a_grid_is_that_of_several_full_machines(hosts, machine_hosts):
    if machine_hosts > 1 and hosts > machine_hosts and hosts % machine_hosts:
        with pytest.raises(ConfigError, match="the hosts of a machine must divide the hosts of the job") as caught:
            grid_of(hosts, machine_hosts)
        assert caught.value.allowed == f"a divisor of {hosts}"
        return
    grid = grid_of(hosts, machine_hosts)
    assert (grid is None) == (machine_hosts == 1 or hosts <= machine_hosts)
    assert grid is None or (grid.hosts, grid.places) == (hosts, machine_hosts)


@pytest.mark.parametrize(("machines", "places"), [(1, 4), (4, 1), (0, 2), (2, -1)])
def test_other_shapes_are_no_grids(machines, places):
    with pytest.raises(ConfigError, match="a grid must have two machines of two hosts or more"):
        HostGrid(machines, places)


@given(GRIDS, st.integers(0, 1 << 40), st.sampled_from([4, 6, 8]))
def test_the_far_leg_has_one_part_in_places_of_flat_bytes(grid, floats, value_bytes):
    flat = flat_bytes(floats, grid.hosts, grid.places, value_bytes)
    assert flat.far == grid.places * grid_bytes(floats, grid, value_bytes).far
    assert flat.near == value_bytes * floats * (grid.places - 1)
    everything = flat_bytes(floats, grid.hosts, 1, value_bytes)
    assert (everything.near, everything.far) == (0, flat.near + flat.far)


def test_two_legs_are_for_large_models_of_several_machines():
    grid, least = HostGrid(2, 2), GRID_BYTES // 4
    assert pays(grid, least)
    assert not pays(grid, least - 1)
    assert not pays(None, least)
    assert pays(grid, 1, least_bytes=0)
    assert not pays(grid, 0, least_bytes=0)


def test_figures_return_from_the_progress_of_hosts():
    figures = SumFigures(2, 4, 1, 0, 3 << 20, 1 << 20)
    assert SumFigures.of_numbers({**figures.to_numbers(), "loss": 0.5}) == figures
    assert SumFigures.of_numbers({"loss": 0.5}) is None
    assert SumFigures.of_numbers({**figures.to_numbers(), "dense_sum_places": -1.0}) is None
    assert figures.hosts == 8


@pytest.mark.parametrize(
    ("in_legs", "rounded", "order"), [(0, 0, ""), (1, 0, "2 x 4"), (0, 1, "bf16"), (1, 1, "2 x 4 bf16")]
)
def test_an_order_names_legs_and_rounding(in_legs, rounded, order):
    assert SumFigures(2, 4, in_legs, rounded, 0, 0).order == order
