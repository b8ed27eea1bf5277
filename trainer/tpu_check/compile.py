"""Compile a lowered training step for a TPU slice: ``python -m trainer.tpu_check.compile`` in the environment of ``make tpu``.

Standard input: ``{"program": path, "topology": "v5p:2x2x1", "replicas": …, "tables": …, "coordinates": …, "legs": …}``, ``tables`` the number of arguments that
are tables, ``coordinates`` those of the device of each replica. Standard output: the program's memory and costs for one device, how often it has each collective, and what crosses between host and
device; or the compiler's error. No TPU is needed.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax._src.interpreters import mlir
from jax._src.lib import _jax
from jax.experimental import topologies
from jaxlib import xla_client as xla
from jaxlib.mlir import ir

from trainer.tpu_check.program_text import exchanged, exchanged_along

#: The layout in which SparseCore keeps a table: rows one after the other, in tiles of 8 columns.
_TABLE_LAYOUT = "{1,0:T(8)}"


def compile_program(request: Mapping[str, Any]) -> dict[str, Any]:
    """What the compiler says of a program; see the module."""
    topology = topologies.get_topology_desc(platform="tpu", topology_name=request["topology"])
    devices = len(topology.devices)
    if devices != request["replicas"]:
        return {"devices": devices}
    began = time.perf_counter()
    try:
        executable = _compiled(
            Path(request["program"]).read_bytes(), topology, request["tables"], request["coordinates"]
        )
    except jax.errors.JaxRuntimeError as error:
        return {"devices": devices, "error": str(error)}
    memory = executable.get_compiled_memory_stats()
    text = "\n".join(module.to_string() for module in executable.hlo_modules())
    costs = executable.cost_analysis()
    return {
        **exchanged(text),
        "legs": [exchanged_along(text, leg["groups"]) for leg in request["legs"]],
        "devices": devices,
        "compile_secs": time.perf_counter() - began,
        "argument_bytes": memory.argument_size_in_bytes,
        "output_bytes": memory.output_size_in_bytes,
        "alias_bytes": memory.alias_size_in_bytes,
        "temporary_bytes": memory.temp_size_in_bytes,
        "code_bytes": memory.generated_code_size_in_bytes,
        "flops": costs.get("flops"),
        "bytes_accessed": costs.get("bytes accessed"),
    }


def _compiled(program: bytes, topology: Any, tables: int, coordinates: Sequence[Sequence[int]]) -> Any:
    by_place = {(*one.coords, one.core_on_chip): one for one in topology.devices}
    devices = np.array([by_place[_padded(place)] for place in coordinates]).reshape(-1, 1)
    options = xla.CompileOptions()
    options.num_replicas = options.executable_build_options.num_replicas = len(devices)
    options.num_partitions = options.executable_build_options.num_partitions = 1
    options.device_assignment = xla.DeviceAssignment.create(np.array([[one.id for one in row] for row in devices]))
    with mlir.make_ir_context():
        module = ir.Module.parse(_jax.mlir.hlo_to_stablehlo(program))
        _set_layouts(module, tables)
        return topology.devices[0].client.compile(module, _jax.DeviceList(tuple(devices.flatten())), options)


def _padded(place: Sequence[int]) -> tuple[int, ...]:
    """Coordinates in the compiler's form: of three dimensions, and the core of the chip."""
    *coords, core = place
    return (*coords, *[0] * (3 - len(coords)), core)


def _set_layouts(module: Any, tables: int) -> None:
    """Give the tables, which are the first arguments and results, SparseCore's layout: in another one a step would copy them."""
    (main,) = (one for one in module.body.operations if ir.StringAttr(one.attributes["sym_name"]).value == "main")
    own = {"mhlo.layout_mode": ir.StringAttr.get(_TABLE_LAYOUT)}
    for name, count in (("arg_attrs", len(main.type.inputs)), ("res_attrs", len(main.type.results))):
        main.attributes[name] = ir.ArrayAttr.get([ir.DictAttr.get(own if k < tables else {}) for k in range(count)])


if __name__ == "__main__":
    sys.stdout.write(json.dumps(compile_program(json.load(sys.stdin))) + "\n")
