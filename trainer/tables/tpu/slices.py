"""The devices of a TPU slice, as an interface: the engine that fits them, and the programs that run on them.

A slice has the tables and the dense part, or the dense part alone (:meth:`TpuSlice.dense_program`) of a model with tables elsewhere.

Programs take whole batches, of which each replica gets its own events. :class:`~trainer.tables.tpu.connected_slice.ConnectedSlice` has
the devices that TensorFlow is connected to.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from trainer.planning.meshes import SliceMesh
from trainer.tables.batches import IdBatch
from trainer.tables.sparse_core import SparseCoreSettings
from trainer.tables.spec import FeatureSpec
from trainer.tables.tpu.engine import TpuEngine
from transforms.arrays import Array

#: From activations, [events, width], and the other tensors of a replica's step to the gradients of the activations.
DenseStep = Callable[..., Any]
#: From activations, [events, width], and the other tensors of a replica's step; it keeps what it finds in variables of the strategy.
Predict = Callable[..., None]
#: A batch of ids with its other arrays, which have all events of the batch in their first dimension.
StepInputs = tuple[IdBatch, tuple[Array, ...]]
#: Sends the inputs of a call of several steps to the slice, perhaps beside the call before; what it returns runs the call.
CallProgram = Callable[[Sequence[StepInputs]], Callable[[], None]]


class DenseProgram(Protocol):
    """A step of all replicas without tables. Its input may be sent in another thread, while the program runs with that of an earlier step."""

    def send(self, packed: Array) -> Any:
        """The input of a step on the devices, from the events of all replicas, float32 [replicas * events, columns]."""

    def run(self, sent: Any) -> Array:
        """A step of an input that was sent: float32 [replicas, size]."""


class TpuSlice(Protocol):
    """The devices of a slice. All of its programs of an engine come from the slice that made the engine."""

    @property
    def strategy(self) -> Any:
        """The ``TPUStrategy`` of the slice."""

    @property
    def replicas(self) -> int:
        """Copies of the model, one a device."""

    @property
    def mesh(self) -> SliceMesh:
        """The replicas as a grid, by the places of their devices."""

    @property
    def collectives(self) -> Any:
        """What replicas exchange inside a step: see :class:`~trainer.model.sharded_step.Collectives`."""

    @property
    def machines(self) -> int:
        """Machines with equally many of the devices, one after another."""

    @property
    def sparse_cores(self) -> int:
        """SparseCores of a device; 0 for the embedding hardware of v2 to v4, and without any."""

    @property
    def holds_tables(self) -> bool:
        """Whether its devices have hardware for embedding tables: v5e has none."""

    def make_engine(
        self,
        features: Sequence[FeatureSpec],
        *,
        seed: int,
        events_per_replica: int,
        pipelined: bool,
        settings: SparseCoreSettings | None = None,
    ) -> TpuEngine:
        """The built engine that fits the generation of the slice, with initial values.

        ``settings``: of SparseCore, in place of those with which the slice was connected.
        """

    def lookup(self, engine: TpuEngine) -> Callable[[IdBatch], Array]:
        """A program that looks a batch up: activations, float32 [events, width]."""

    def update(self, engine: TpuEngine) -> Callable[[IdBatch, Array], None]:
        """A program that updates the rows of a batch by the gradients of its activations."""

    def training(self, engine: TpuEngine, dense_step: DenseStep, other_specs: tuple[Any, ...]) -> CallProgram:
        """A program that trains batches, one step each, in order; the lookups of a pipelined engine run ahead by one step.

        ``other_specs``: the types of the other arrays of one replica.
        """

    def scoring(self, engine: TpuEngine, predict: Predict, other_specs: tuple[Any, ...]) -> CallProgram:
        """A program that looks batches up and predicts them, in order, in one call; it updates nothing.

        ``other_specs``: see :meth:`training`.
        """

    def dense_program(self, step: Callable[[Any], Any]) -> DenseProgram:
        """A program without tables: a step of all replicas, which one array enters and one array leaves.

        ``step``: of one replica, from a float32 tensor [events, columns] to a flat float32 tensor; it may change variables of the strategy.
        """
