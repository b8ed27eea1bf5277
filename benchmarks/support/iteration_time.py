"""The time of a training iteration, part by part: one flat exchange of all activations, or an exchange by towers. Pure.

Luo et al., "Disaggregated Multi-Tower" (MLSys 2024): in a flat exchange each chip sends to all others. By towers a host looks up its features
for the events of all chips; activations are put in the order of peers, exchanged among the chips of the host, compressed by a tower module, and
sent to the peers of the chip: those with its number in the other towers.

Both sides have the parts: ids are exchanged a step ahead and cost no time, and the gradients of dense weights are added between hosts while the
backward pass runs, so that only what is longer than two thirds of the dense time counts. All other parts follow each other.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Final

from benchmarks.support.dense_shapes import DenseShape, ModuleShape, even_towers
from benchmarks.support.host_topologies import HostTopology
from trainer.errors import ConfigError
from trainer.planning.towers.tower_plan import check_hosts, check_tower_count

_VALUE_BYTES: Final = 4
#: A training step has the operations of three forward passes, two of which are the backward pass.
_PASSES, _BACKWARD_SHARE = 3, 2 / 3
#: A looked-up value is read; its gradient is written once and read once; the value and its slot are read and written.
_MOVES_OF_LOOKUP: Final = 7


@dataclass(frozen=True, slots=True)
class TrainedModel:
    """A model as the simulation takes it.

    Attributes:
        dense: its dense part.
        features: the embedded features.
        width: the columns of an activation.
        ids_per_event: of a feature.
        chip_events: the events of a chip in an iteration.
    """

    dense: DenseShape
    features: int
    width: int
    ids_per_event: float
    chip_events: int

    def __post_init__(self) -> None:
        if min(self.features, self.width, self.chip_events) < 1 or not (
            math.isfinite(self.ids_per_event) and self.ids_per_event >= 0
        ):
            raise ConfigError("a simulated model must have features, columns, events and ids", where=self.dense.name,
                              value=(self.features, self.width, self.chip_events, self.ids_per_event), allowed=">= 1; ids >= 0")  # fmt: skip

    @property
    def activation_bytes(self) -> int:
        """The bytes of the activations of all features, for a chip's events."""
        return self.chip_events * self.features * self.width * _VALUE_BYTES


@dataclass(frozen=True, slots=True)
class TowerModules:
    """The modules of towers as the simulation takes them.

    Attributes:
        shape: the module of each tower, for whole inputs.
        above: the dense part over their outputs.
    """

    shape: ModuleShape
    above: DenseShape


@dataclass(frozen=True, slots=True)
class TowerShape:
    """Towers as the simulation takes them.

    Attributes:
        towers: their number.
        modules: None: activations leave their tower as they are.
        column_slices: the slices into which the columns of each table are cut, each of which counts as a feature of its own.
    """

    towers: int
    modules: TowerModules | None = None
    column_slices: int = 1

    def __post_init__(self) -> None:
        if min(self.towers, self.column_slices) < 1:
            raise ConfigError("the numbers of towers and of their column slices must be in range", value=(self.towers, self.column_slices), allowed=">= 1")  # fmt: skip

    def imbalance(self, features: int) -> float:
        """What the largest tower has by the mean, of ``features`` features: exchanges and lookups wait for it."""
        units = features * self.column_slices
        return math.ceil(units / self.towers) * self.towers / units


@dataclass(frozen=True, slots=True)
class IterationTime:
    """The seconds of the parts of an iteration, in their order. Parts that a kind of exchange does not have are 0.

    Attributes:
        lookup: reading rows, and their update.
        peer_permute: putting activations and their gradients in the order of peers.
        intra_host_shuffle: the exchanges among the chips of a tower, forward and backward.
        all_to_all: the exchanges with other hosts: among all chips, or among peers.
        tower_modules: their operations.
        tower_gradients: adding the gradients of a tower module over the chips of its tower.
        dense: the operations of the dense part.
        dense_gradients: adding the gradients of dense weights over all chips, what the backward pass does not hide.
    """

    lookup: float
    peer_permute: float
    intra_host_shuffle: float
    all_to_all: float
    tower_modules: float
    tower_gradients: float
    dense: float
    dense_gradients: float

    @property
    def secs(self) -> float:
        """All parts."""
        return math.fsum(self.parts().values())

    def parts(self) -> dict[str, float]:
        """The seconds of each part by name."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}


def tower_count(features: int, hosts: int) -> int:
    """The most towers that have equally many hosts each and of which none is empty."""
    return max(towers for towers in range(1, min(features, hosts) + 1) if hosts % towers == 0)


def flat_iteration(model: TrainedModel, topology: HostTopology) -> IterationTime:
    """An iteration with one exchange of activations among all chips."""
    exchange = topology.exchange_secs(model.activation_bytes, topology.hosts, topology.chips_per_host)
    dense, gradients = _dense(model, topology, model.features * model.width, model.width)
    return IterationTime(_lookup(model, topology, 1.0), 0.0, 0.0, 2 * exchange, 0.0, 0.0, dense, gradients)


def tower_iteration(model: TrainedModel, topology: HostTopology, shape: TowerShape) -> IterationTime:
    """An iteration by towers. Raises :class:`ConfigError` for more towers than features or hosts, or hosts that they do not divide."""
    check_tower_count(shape.towers, model.features * shape.column_slices)
    hosts, imbalance = check_hosts(shape.towers, topology.hosts), shape.imbalance(model.features)
    raw = model.activation_bytes * imbalance
    inside = topology.exchange_secs(raw, hosts, topology.chips_per_host)
    crossing, modules, gradients_of_modules = raw, 0.0, 0.0
    dense, gradients = _dense(model, topology, model.features * model.width, model.width)
    if shape.modules is not None:
        slices, module = shape.column_slices, shape.modules.shape.of_slices(shape.column_slices)
        columns, towers = model.width // slices, even_towers(model.features * slices, shape.towers)
        largest = max(towers)
        crossing = shape.towers * module.outputs(largest, columns) * model.chip_events * _VALUE_BYTES
        modules = topology.compute_secs(
            _PASSES * 2 * module.products(largest, columns) * shape.towers * model.chip_events
        )
        gradients_of_modules = topology.sum_secs(module.weights(largest, columns) * _VALUE_BYTES, hosts)
        above, embedded = replace(model, dense=shape.modules.above), sum(module.outputs(one, columns) for one in towers)
        dense, gradients = _dense(above, topology, embedded, shape.modules.shape.width or model.width)
    return IterationTime(
        lookup=_lookup(model, topology, imbalance),
        peer_permute=topology.memory_secs(2 * 2 * raw),  # read and written, forward and backward
        intra_host_shuffle=2 * inside,
        all_to_all=2 * topology.exchange_secs(crossing, shape.towers, 1),
        tower_modules=modules,
        tower_gradients=gradients_of_modules,
        dense=dense,
        dense_gradients=gradients,
    )


def _lookup(model: TrainedModel, topology: HostTopology, imbalance: float) -> float:
    """A chip looks up its share of the features for the events of all chips: as much as all features of its own events."""
    return topology.memory_secs(_MOVES_OF_LOOKUP * model.activation_bytes * model.ids_per_event * imbalance)


def _dense(model: TrainedModel, topology: HostTopology, embedded: int, width: int) -> tuple[float, float]:
    """The seconds of the dense part, and of its gradients beyond the backward pass."""
    dense = topology.compute_secs(model.dense.step_flops(embedded, width) * model.chip_events)
    summed = topology.sum_secs(model.dense.weights(embedded, width) * _VALUE_BYTES, topology.hosts)
    return dense, max(0.0, summed - _BACKWARD_SHARE * dense)
