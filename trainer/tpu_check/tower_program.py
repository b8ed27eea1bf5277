"""The exchange of combined bags on a slice, flat and by towers, compiled for it: ``python -m trainer.tpu_check.tower_program`` in the environment of ``make tpu``.

Standard input: ``{"topology": "v5p:2x2x2", "hosts": 2, "events": …, "features": …, "bag": …, "rows": …, "dim": …}``: events of a device, features
in towers of one host each, ids of a bag, rows of a table on a device. Standard output: for each way what the program exchanges, by groups
(:func:`~trainer.tpu_check.program_text.exchanged_by_hosts`). With ``"topology": ""`` both programs run on as many simulated devices of this
machine as ``"devices"`` says, and ``"difference"`` is the largest one of their outputs. No TPU is needed, and nothing here is a measurement of one.

Devices stand host after host. *Flat*: a feature's rows are spread over all devices; each has the ids of all events, adds its rows of every bag, and a
reduce-scatter over all devices gives each the bags of its events. *By towers*: a tower's rows are on the devices of its host; ids go to peers
(all-to-all between hosts), all devices of a host have those of its tower (all-gather inside it), each adds its rows of a bag, a
reduce-scatter inside the host adds these sums, and combined bags return to peers (all-to-all between hosts).
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from functools import partial
from typing import Any

_HOSTS, _CHIPS = "hosts", "chips"


def run(request: Mapping[str, Any]) -> dict[str, Any]:
    """The answer to a request; see the module."""
    if not request["topology"]:
        os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={request['devices']}"
        os.environ["JAX_PLATFORMS"] = "cpu"
    import jax
    import numpy as np
    from jax.experimental import topologies
    from jax.sharding import Mesh

    if request["topology"]:
        devices = list(topologies.get_topology_desc(platform="tpu", topology_name=request["topology"]).devices)
    else:
        devices = jax.devices()
    devices = sorted(devices, key=lambda one: (one.process_index, one.id))
    mesh = Mesh(np.array(devices).reshape(request["hosts"], -1), (_HOSTS, _CHIPS))
    programs = {"flat": _flat(mesh, request), "towers": _by_towers(mesh, request)}
    if not request["topology"]:
        return {"difference": _difference(programs, request, len(devices))}
    from trainer.tpu_check.program_text import exchanged_by_hosts

    found: dict[str, Any] = {"devices": len(devices)}
    host_of = [one.process_index for one in devices]
    if any(
        len(set(host_of[first : first + mesh.shape[_CHIPS]])) > 1
        for first in range(0, len(devices), mesh.shape[_CHIPS])
    ):
        raise ValueError(f"each host of the mesh must be one of the slice, got {request['hosts']} hosts of {host_of}")
    for name, program in programs.items():
        compiled = program.lower(*_shapes(request, len(devices))).compile()
        found[name] = exchanged_by_hosts(compiled.as_text(), host_of)
    return found


def _shapes(request: Mapping[str, Any], devices: int) -> tuple[Any, Any]:
    """Of the ids of all events, [events, features, ids], and of the rows of all devices, [features, rows, dim]."""
    import jax
    import jax.numpy as jnp

    ids = (devices * request["events"], request["features"], request["bag"])
    rows = (request["features"], devices * request["rows"], request["dim"])
    return jax.ShapeDtypeStruct(ids, jnp.int32), jax.ShapeDtypeStruct(rows, jnp.float32)


def _flat(mesh: Any, request: Mapping[str, Any]) -> Any:
    import jax
    from jax.sharding import PartitionSpec as P

    both = (_HOSTS, _CHIPS)

    @partial(jax.shard_map, mesh=mesh, in_specs=(P(both), P(None, both)), out_specs=P(both), check_vma=False)
    def exchange(ids: Any, rows: Any) -> Any:
        of_all = jax.lax.all_gather(ids, both, tiled=True)
        own = _sums(of_all, rows, jax.lax.axis_index(both), mesh.size)
        return jax.lax.psum_scatter(own, both, tiled=True)

    return jax.jit(exchange)


def _by_towers(mesh: Any, request: Mapping[str, Any]) -> Any:
    import jax
    from jax.sharding import PartitionSpec as P

    both = (_HOSTS, _CHIPS)
    hosts, chips = mesh.shape[_HOSTS], mesh.shape[_CHIPS]
    of_tower = request["features"] // hosts

    @partial(jax.shard_map, mesh=mesh, in_specs=(P(both), P(_HOSTS, _CHIPS)), out_specs=P(both), check_vma=False)
    def exchange(ids: Any, rows: Any) -> Any:
        events, _, bag = ids.shape
        by_tower = ids.reshape(events, hosts, of_tower, bag).swapaxes(0, 1)
        taken = jax.lax.all_to_all(by_tower, _HOSTS, 0, 0, tiled=True)  # step a: of the peers' events, by source
        asked = jax.lax.all_gather(taken, _CHIPS)  # step b
        sums = _sums(asked.reshape(-1, of_tower, bag), rows, jax.lax.axis_index(_CHIPS), chips)  # step c
        added = jax.lax.psum_scatter(sums, _CHIPS, tiled=True)  # step d
        back = jax.lax.all_to_all(added.reshape(hosts, events, of_tower, -1), _HOSTS, 0, 0, tiled=True)  # step e
        return back.swapaxes(0, 1).reshape(events, hosts * of_tower, -1)

    return jax.jit(exchange)


def _sums(ids: Any, rows: Any, place: Any, owners: int) -> Any:
    """What one of ``owners`` adds of each bag: its rows are those whose numbers modulo ``owners`` are its place."""
    import jax.numpy as jnp

    features = jnp.arange(ids.shape[1])[None, :, None]
    read = rows[features, ids // owners]
    return jnp.where((ids % owners == place)[..., None], read, 0.0).sum(axis=2)


def _difference(programs: Mapping[str, Any], request: Mapping[str, Any], devices: int) -> float:
    """The largest difference of the outputs of both programs, and from those of one device."""
    import numpy as np

    random = np.random.default_rng(0)
    ids, rows = (one.shape for one in _shapes(request, devices))
    whole = random.standard_normal((rows[0], rows[1], rows[2]), np.float32)
    drawn = random.integers(0, rows[1], ids).astype(np.int32)
    expected = whole[np.arange(ids[1])[None, :, None], drawn].sum(axis=2)
    flat = np.asarray(programs["flat"](drawn, _divided(whole, devices)))
    owners = devices // request["hosts"]
    towers = np.asarray(programs["towers"](drawn, _divided(whole, owners)))
    return float(max(np.abs(flat - expected).max(), np.abs(towers - expected).max()))


def _divided(whole: Any, owners: int) -> Any:
    """Rows owner after owner; those of an owner have its place as their remainder."""
    import numpy as np

    return np.concatenate([whole[:, place::owners] for place in range(owners)], axis=1)


if __name__ == "__main__":
    sys.stdout.write(json.dumps(run(json.load(sys.stdin))) + "\n")
