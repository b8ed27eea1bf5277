"""Lower a model's training step to HLO: ``python -m trainer.tpu_check.lower`` in the environment of ``make tpu``.

Standard input: ``{"model": …, "replicas": …, "hosts": …, "sparse_cores": …, "coordinates": …, "program": path}``, ``coordinates`` those of each
device. The program is written to the path; standard output: what is known of its arguments, and of the exchanges of its dense update (``legs``), if it is
sharded. No TPU is needed.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tensorflow as tf
from tensorflow.compiler.xla.service import hlo_pb2

from trainer.model.dense_step import DensePart, DenseResult
from trainer.model.packed_step import PackedStep
from trainer.model.sharded_step import ShardedStep, pays
from trainer.planning.meshes import SliceMesh, mesh_of
from trainer.tables.tpu.planned_strategy import PlannedSlice, planned_strategy
from trainer.tables.tpu.slice_collectives import SliceCollectives
from trainer.tables.tpu.sparse_core_engine import SparseCoreEngine
from trainer.tables.tpu.traced_tables import TracedTables
from trainer.tpu_check.checked_model import CheckedModel
from trainer.tpu_check.sparse_core_count import set_sparse_cores

#: What a step changes, in the order of its first arguments and of its results.
_STATE = ("tables", "replicated", "state")


def lower(request: Mapping[str, Any]) -> dict[str, Any]:
    """Write the program of a request; see the module."""
    model = CheckedModel.from_document(request["model"])
    slice_ = PlannedSlice(request["replicas"], request["hosts"], request["sparse_cores"])
    mesh = mesh_of(request["coordinates"])
    if model.is_served:
        return _lower_dense(model, mesh, Path(request["program"]))
    set_sparse_cores(slice_.sparse_cores)
    with planned_strategy(slice_).scope():
        engine = SparseCoreEngine(
            model.features, seed=0, events_per_replica=model.events_per_replica, pipelined=model.pipelined,
            settings=model.settings,
        )  # fmt: skip
    dense = DensePart.build(model.layout, model.config, model.head)
    tables = TracedTables(engine)
    update = _DenseUpdate.of(dense, mesh)
    signature = _signature(model, tables, update)
    step = _step(tables, update, signature)
    program = _hlo(step, signature, donated=len(tf.nest.flatten([signature[name] for name in _STATE])))
    Path(request["program"]).write_bytes(program)
    return {
        "tables": len(tf.nest.flatten(signature["tables"])),
        "csr": {stack: [list(spec.shape) for spec in specs] for stack, specs in signature["csr"].items()},
        "dense_bytes": _bytes_of(signature["state"]),
        "legs": update.legs,
        "table_bytes": _bytes_of([signature["tables"], signature["replicated"]]),
        "program_bytes": len(program),
    }


@dataclass(frozen=True)
class _DenseUpdate:
    """The dense part's step on the devices of a mesh; ``sharded``: None for a whole update on each."""

    dense: DensePart
    sharded: ShardedStep | None
    collectives: SliceCollectives

    @classmethod
    def of(cls, dense: DensePart, mesh: SliceMesh) -> _DenseUpdate:
        is_sharded = pays(dense.config.dense_optimizer, dense.model.trainable, mesh.devices)
        return cls(dense, ShardedStep(dense, mesh) if is_sharded else None, SliceCollectives(mesh.devices))

    @property
    def legs(self) -> list[dict[str, Any]]:
        """The exchanges of a sharded update."""
        found = () if self.sharded is None else self.sharded.mesh.legs(self.sharded.floats)
        return [{"name": one.name, "axis": one.axis, "groups": one.groups, "bytes": 4 * one.floats} for one in found]

    def state_specs(self) -> Any:
        return self.dense.state_specs() if self.sharded is None else self.sharded.state_specs()

    def step(self, state: Any, *inputs: Any) -> DenseResult:
        if self.sharded is not None:
            return self.sharded.step(state, *inputs, collectives=self.collectives)
        return self.dense.step(state, *inputs, replicas=self.collectives.devices, total_of=self.collectives.total)


def _lower_dense(model: CheckedModel, mesh: SliceMesh, program: Path) -> dict[str, Any]:
    """Write the program of a slice whose tables are on servers: the state, and one array, to the state after the step and one array."""
    dense = DensePart.build(model.layout, model.config, model.head)
    packed = PackedStep.of(dense, model.layout, model.events_per_replica)
    update = _DenseUpdate.of(dense, mesh)
    signature = {"state": update.state_specs(), "packed": tf.TensorSpec([packed.events, packed.columns])}

    def step(*flat: Any) -> list[Any]:
        state, entering = tf.nest.pack_sequence_as(list(signature.values()), flat)
        answer, after = packed.run(update.step, state, entering)
        return [*tf.nest.flatten(after), answer]

    made = _hlo(step, signature, donated=len(tf.nest.flatten(signature["state"])))
    program.write_bytes(made)
    dense_bytes = _bytes_of(signature["state"])
    return {
        "tables": 0,
        "csr": {},
        "dense_bytes": dense_bytes,
        "legs": update.legs,
        "table_bytes": 0,
        "program_bytes": len(made),
    }


def _signature(model: CheckedModel, tables: TracedTables, update: _DenseUpdate) -> dict[str, Any]:
    """The arguments of a step of one replica. State comes first, in the order of the results."""
    events, layout = model.events_per_replica, model.layout
    return {
        "tables": tables.table_specs(),
        "replicated": tables.replicated_specs(),
        "state": update.state_specs(),
        "csr": tables.csr_specs(),
        "minibatches": tf.TensorSpec([], tf.int32),
        "bags": tables.bag_specs(),
        "dense": tf.TensorSpec([events, layout.dense_width]),
        "labels": tf.TensorSpec(model.head.label_shape(events)),
        "weights": tf.TensorSpec([events]),
    }


def _step(tables: TracedTables, update: _DenseUpdate, signature: Mapping[str, Any]) -> Any:
    """The step as a function of flat arguments, in the order of the signature, to the new state."""
    names = list(signature)

    def step(*flat: Any) -> list[Any]:
        given = dict(zip(names, tf.nest.pack_sequence_as(list(signature.values()), flat), strict=True))
        activations, kept = tables.begin(
            *(given[name] for name in ("csr", "minibatches", "tables", "replicated", "bags"))
        )
        inputs = (activations, given["dense"], given["labels"], given["weights"])
        found = update.step(given["state"], *inputs)
        tables.end(found.gradients, kept, update.collectives.total)
        return tf.nest.flatten([tables.arrays(), tables.replicated(), found.state])  # type: ignore[no-any-return]

    return step


def _hlo(step: Any, signature: Mapping[str, Any], donated: int) -> bytes:
    """The step's HLO module. The first results are written in place of the first arguments: the state of training."""
    traced = tf.function(step, jit_compile=True, autograph=False)
    flat = tf.nest.flatten(list(signature.values()))
    ir = traced.experimental_get_compiler_ir(*flat)
    module = hlo_pb2.HloModuleProto.FromString(ir(stage="hlo_serialized", platform_name="TPU"))
    for position in range(donated):
        module.input_output_alias.entries.add(
            output_shape_index=[position], parameter_number=position, kind=hlo_pb2.Kind.MUST_ALIAS
        )
    return module.SerializeToString()  # type: ignore[no-any-return]


def _bytes_of(specs: Any) -> int:
    return sum(math.prod(spec.shape) * tf.as_dtype(spec.dtype).size for spec in tf.nest.flatten(specs))


if __name__ == "__main__":
    sys.stdout.write(json.dumps(lower(json.load(sys.stdin))) + "\n")
