"""Values of the optimizers that TensorFlow lowers for SparseCore, as a document on standard output.

For each case the gradient operator is lowered as ``TPUEmbeddingV2`` calls it; the computation that updates one row is taken out of the
program and run by XLA on the CPU. It runs in the environment of ``make tpu``.
"""

from __future__ import annotations

import importlib.metadata
import itertools
import json
import re
import sys
from typing import Any

import numpy as np

from tests.tpu_aot.sparse_core_step import lower_update
from trainer.tables import optimizers as specs
from trainer.tables.optimizers import Optimizer
from trainer.tables.tensorflow_optimizers import OWN_FIELD
from trainer.tpu_check.sparse_core_count import set_sparse_cores

_SPARSE_CORES = 4
#: A SparseCore's rows have a multiple of these columns: each point of a case is a column of one row.
_COLUMNS = 8
#: Points of a case: every combination of these gradients, weights and states of the slots.
_GRADIENTS = (0.0, 0.25, -0.75, 3.0, -1e-3, 1e-5, -120.0)
_WEIGHTS = (0.0, 0.5, -1.5, 1e-3)
_ACCUMULATORS = (0.1, 1.0, 25.0)
#: A momentum has a sign, the moment of squares and an accumulator have none.
_SIGNED, _UNSIGNED = (0.0, 0.3, -2.0), (0.0, 0.04, 9.0)


def cases() -> list[Optimizer]:
    """One case for every hyper-parameter away from its default, and some together."""
    adagrad_momentum = [
        {},
        {"momentum": 0.9},
        {"momentum": 0.9, "use_nesterov": True},
        {"momentum": 0.5, "exponent": 3.0},
        {"momentum": 0.9, "beta2": 0.95},
        {"momentum": 0.9, "use_nesterov": True, "exponent": 2.5, "beta2": 0.95, "epsilon": 1e-3},
    ]
    adam = [
        {},
        {"sum_inside_sqrt": False},
        {"beta_1": 0.0, "beta_2": 0.5},
        {"beta_1": 0.5, "beta_2": 0.9, "epsilon": 1e-2},
        {"beta_1": 0.5, "beta_2": 0.9, "epsilon": 1e-2, "sum_inside_sqrt": False},
    ]
    ftrl = [
        {},
        {"beta": 0.5},
        {"l1_regularization_strength": 0.05},
        {"l2_regularization_strength": 0.2},
        {"l1_regularization_strength": 0.05, "l2_regularization_strength": 0.2, "beta": 0.5},
        {"learning_rate_power": -0.7},
        {"learning_rate_power": -1.0},
        {"learning_rate_power": 0.0},
        {"multiply_linear_by_learning_rate": True},
        {"multiply_linear_by_learning_rate": True, "l1_regularization_strength": 0.05, "beta": 0.5,
         "l2_regularization_strength": 0.2, "learning_rate_power": -0.7},
    ]  # fmt: skip
    return [
        specs.SGD(0.1),
        specs.SGD(1.5),
        specs.Adagrad(0.1),
        specs.Adagrad(2.0),
        *(specs.AdagradMomentum(0.1, **settings) for settings in adagrad_momentum),  # type: ignore[arg-type]
        *(specs.Adam(0.01, **settings) for settings in adam),  # type: ignore[arg-type]
        *(specs.FTRL(0.1, **settings) for settings in ftrl),  # type: ignore[arg-type]
    ]


def slot_points(optimizer: Optimizer) -> list[tuple[float, ...]]:
    """The states of the slots in a case."""
    if isinstance(optimizer, specs.SGD):
        return [()]
    if isinstance(optimizer, specs.Adagrad):
        return [(value,) for value in _ACCUMULATORS]
    if isinstance(optimizer, specs.Adam):
        return list(zip(_SIGNED, _UNSIGNED, strict=True))
    return list(zip(_ACCUMULATORS, _SIGNED, strict=True))


def settings_of(optimizer: Optimizer) -> dict[str, Any]:
    """Everything that the spec of a case says to TensorFlow."""
    names = [name for kind in type(optimizer).__mro__ for name in getattr(kind, "__dataclass_fields__", {})]
    return {name: getattr(optimizer, name) for name in dict.fromkeys(names) if name != OWN_FIELD}


def computation_of(hlo: str) -> tuple[str, str]:
    """The name and the text of the computation that updates one row."""
    (found,) = (part for part in re.split(r"\n(?=%|ENTRY )", hlo) if re.match(r"%\w+_optimizer_builder", part))
    name = re.match(r"%(\w+)", found)
    assert name is not None
    return name.group(1), found


def run_on_cpu(computation: str, arguments: list[np.ndarray]) -> list[np.ndarray]:
    """The results of one computation, run by XLA on the CPU."""
    import jax
    from jax._src.interpreters import mlir
    from jaxlib import _jax
    from jaxlib import xla_client as xla
    from jaxlib.mlir import ir

    full_name = computation.split()[0]
    text = "HloModule update\n\n" + computation.strip().replace(full_name, f"ENTRY {full_name}", 1)
    module = _jax.hlo_module_from_text(text)
    device = jax.devices("cpu")[0]
    with mlir.make_ir_context():
        program = ir.Module.parse(_jax.mlir.hlo_to_stablehlo(module.as_serialized_hlo_module_proto()))
        bytecode = mlir.module_to_bytecode(program)
        executable = device.client.compile_and_load(bytecode, _jax.DeviceList((device,)), xla.CompileOptions())
    put = [jax.device_put(argument, device) for argument in arguments]
    outputs = executable.execute_sharded(put).disassemble_into_single_device_arrays()
    return [np.asarray(output[0]) for output in outputs]


def values_of(optimizer: Optimizer) -> dict[str, Any]:
    """A case: the inputs, and what the computation makes of them."""
    points = list(itertools.product(_GRADIENTS, _WEIGHTS, slot_points(optimizer)))
    points += points[: -len(points) % _COLUMNS]
    gradients = np.array([point[0] for point in points], np.float32)
    weights = np.array([point[1] for point in points], np.float32)
    slots = np.array([point[2] for point in points], np.float32).reshape(len(points), -1)
    rates = np.full(len(points), optimizer.learning_rate, np.float32)
    name, computation = computation_of(lower_update(optimizer, dim=len(points)))
    arguments = [np.ascontiguousarray(column)[None, :] for column in (gradients, weights, *slots.T, rates)]
    new = [result.ravel() for result in run_on_cpu(computation, arguments)]
    return {
        "optimizer": type(optimizer).__name__,
        "settings": settings_of(optimizer),
        "computation": re.sub(r"\.\d+$", "", name),
        "gradients": exact(gradients),
        "weights": exact(weights),
        "slots": {slot.name: exact(slots[:, k]) for k, slot in enumerate(optimizer.slots)},
        "new_weights": exact(new[0]),
        "new_slots": {slot.name: exact(new[1 + k]) for k, slot in enumerate(optimizer.slots)},
    }


def exact(values: np.ndarray) -> list[float]:
    """Decimals that read back to the same float32 values. Raises :class:`ValueError` for others than finite numbers."""
    if not np.isfinite(values).all():
        raise ValueError(f"golden values must be finite, got {values}")
    decimals = [float(str(value)) for value in values.astype(np.float32)]
    assert (np.array(decimals, np.float32) == values).all()
    return decimals


def golden_document() -> dict[str, Any]:
    """All cases, and the releases that they come from."""
    set_sparse_cores(_SPARSE_CORES)
    releases = {name: importlib.metadata.version(name) for name in ("tensorflow-tpu", "libtpu", "jaxlib")}
    return {
        "about": "The update of one row by each optimizer that TensorFlow lowers for SparseCore; see tests/tpu_aot/optimizer_formulas.py",
        "releases": releases,
        "cases": [values_of(optimizer) for optimizer in cases()],
    }


if __name__ == "__main__":
    sys.stdout.write(json.dumps(golden_document()))
