"""Grids of devices: groups of both legs, segments, and the bytes of each exchange."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.examples import scaled
from trainer.errors import ConfigError
from trainer.planning.meshes import SliceMesh, grid_coordinates, mesh_of

SHAPES = st.lists(st.sampled_from([1, 2, 3, 4]), min_size=1, max_size=3)


@settings(max_examples=scaled(100))
@given(shape=SHAPES, cores=st.sampled_from([1, 2]), seed=st.integers(0, 2**32))
def test_groups_are_lines_and_segments_are_those_of_two_reduce_scatters(shape, cores, seed):
    coordinates = list(grid_coordinates(shape, cores))
    np.random.default_rng(seed).shuffle(coordinates)
    mesh = mesh_of(coordinates)
    count = len(coordinates)
    assert mesh.x * mesh.y == mesh.devices == count == int(np.prod(shape)) * cores
    for groups in (mesh.columns, mesh.rows):
        assert sorted(one for group in groups for one in group) == list(range(count))
    vector = np.arange(2 * count).reshape(count, 2)
    held = dict.fromkeys(range(count), vector)
    for groups in (mesh.columns, mesh.rows):
        for group in groups:
            parts = np.split(held[group[0]], len(group))
            held.update(dict(zip(group, parts, strict=True)))
    assert [int(held[device][0, 0]) // 2 for device in range(count)] == list(mesh.segments)


@pytest.mark.parametrize(
    ("shape", "cores", "sides"),
    [((16, 16), 1, (16, 16)), ((4, 8, 8), 1, (8, 32)), ((2, 2, 1), 1, (2, 2)), ((2, 2, 1), 2, (2, 4)), ((1, 1), 1, (1, 1)),
     ((4, 4, 4), 1, (4, 16)), ((2, 4), 1, (2, 4))],
)  # fmt: skip
def test_the_sides_are_as_equal_as_lines_allow(shape, cores, sides):
    mesh = mesh_of(grid_coordinates(shape, cores))
    assert tuple(sorted((mesh.x, mesh.y))) == tuple(sorted(sides))


def test_the_second_leg_has_a_column_less():
    mesh = mesh_of(grid_coordinates((16, 16)))
    assert mesh.columns[0] == tuple(range(0, 256, 16)) or mesh.columns[0] == tuple(range(16))
    legs = mesh.legs(256 * 100)
    assert [(one.name, one.axis, one.floats) for one in legs] == [
        ("reduce-scatter", "Y", 25600), ("reduce-scatter", "X", 1600), ("all-gather", "X", 1600), ("all-gather", "Y", 25600),
    ]  # fmt: skip
    line = mesh_of([[device] for device in range(3)])
    assert {one.axis for one in line.legs(6)} == {"Y"}


def test_devices_that_are_no_grid_are_a_line():
    mesh = mesh_of([(0, 0), (0, 1), (1, 0)])
    assert (mesh.y, mesh.x) == (3, 1)


@pytest.mark.parametrize(
    ("columns", "rows"), [((), ()), (((0, 1),), ((0, 1),)), (((0, 2),), ((0,), (2,))), (((0,), (0,)), ((0, 0),))]
)
def test_groups_that_are_no_grid_are_refused(columns, rows):
    with pytest.raises(ConfigError, match="of a mesh"):
        SliceMesh(columns, rows)
