"""The devices of a slice as a grid, along whose lines arrays are summed and gathered in two legs. Pure.

Chips of a large slice are a grid whose lines are rings. A sum along one ring of all chips has as many hops as chips; in two legs the first, along
Y, has the whole array, and the second, along X, 1/Y of it (Kumar et al., MLSys 2021, section 3.3).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from math import log2, prod

from trainer.errors import ConfigError

Groups = tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class Leg:
    """One exchange of a sharded update, for one device.

    Attributes:
        name: ``reduce-scatter`` or ``all-gather``.
        axis: ``Y`` or ``X``.
        groups: of devices that exchange.
        floats: of the longer array: that which enters a reduce-scatter, or leaves an all-gather.
    """

    name: str
    axis: str
    groups: Groups
    floats: int


@dataclass(frozen=True, slots=True)
class SliceMesh:
    """A grid of devices, numbered from 0.

    Attributes:
        columns: the groups of the first leg, along Y; each device is in one.
        rows: the groups of the second leg, along X; each device is in one, at the place of its column.

    Raises :class:`ConfigError` for groups that are no grid.
    """

    columns: Groups
    rows: Groups

    def __post_init__(self) -> None:
        if not self.columns or self.rows != tuple(zip(*self.columns, strict=True)):
            raise ConfigError(
                "the rows of a mesh must be those of its columns", value=(self.columns[:2], self.rows[:2])
            )
        if sorted(one for group in self.columns for one in group) != list(range(self.devices)):
            raise ConfigError("each device must be in one column of a mesh", value=self.columns[:2])

    @property
    def y(self) -> int:
        """Devices of a column."""
        return len(self.rows)

    @property
    def x(self) -> int:
        """Devices of a row."""
        return len(self.columns)

    @property
    def devices(self) -> int:
        """Of the grid."""
        return self.x * self.y

    @property
    def segments(self) -> tuple[int, ...]:
        """By device, the segment of an array that it has after both legs of a reduce-scatter."""
        found = [0] * self.devices
        for x, column in enumerate(self.columns):
            for y, device in enumerate(column):
                found[device] = y * self.x + x
        return tuple(found)

    def legs(self, floats: int) -> tuple[Leg, ...]:
        """The exchanges of an update of an array of so many floats, a multiple of the devices; those of one device with itself are left out."""
        found = [
            Leg("reduce-scatter", "Y", self.columns, floats),
            Leg("reduce-scatter", "X", self.rows, floats // self.y),
            Leg("all-gather", "X", self.rows, floats // self.y),
            Leg("all-gather", "Y", self.columns, floats),
        ]
        return tuple(one for one in found if len(one.groups[0]) > 1)


def mesh_of(coordinates: Sequence[Sequence[int]]) -> SliceMesh:
    """The mesh of devices by their coordinates: that of the most equal sides whose lines are along coordinates.

    Devices that are no whole grid are one column. Coordinates that are equal for all devices do not count.
    """
    axes = [k for k in range(len(coordinates[0])) if len({one[k] for one in coordinates}) > 1]
    places = {tuple(one[k] for k in axes): device for device, one in enumerate(coordinates)}
    sides = [sorted({one[k] for one in coordinates}) for k in axes]
    if len(places) != len(coordinates) or prod(map(len, sides)) != len(coordinates):
        return _one_column(len(coordinates))
    cuts = [one for size in range(len(axes) + 1) for one in combinations(range(len(axes)), size)]
    rows_along = min(cuts, key=lambda cut: (abs(log2(prod(len(sides[k]) for k in cut)) - log2(len(places)) / 2), cut))
    columns: dict[tuple[int, ...], list[int]] = {}
    for place in sorted(places):
        columns.setdefault(tuple(place[k] for k in rows_along), []).append(places[place])
    ordered = tuple(tuple(columns[key]) for key in sorted(columns))
    return SliceMesh(ordered, tuple(zip(*ordered, strict=True)))


def grid_coordinates(shape: Sequence[int], cores: int = 1) -> tuple[tuple[int, ...], ...]:
    """The coordinates of the devices of a slice, the first one counting fastest; ``cores``: devices of a chip, the last coordinate."""
    found = []
    for number in range(prod(shape)):
        place = []
        for size in shape:
            number, at = divmod(number, size)
            place.append(at)
        found += [(*place, core) for core in range(cores)]
    return tuple(found)


def _one_column(devices: int) -> SliceMesh:
    column = tuple(range(devices))
    return SliceMesh((column,), tuple((one,) for one in column))
