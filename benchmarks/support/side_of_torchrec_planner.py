"""TorchRec's planner as a side of ``benchmarks.planners``; runs in the environment ``.fbgemm``.

It reads a request from standard input and writes its plan, or why it has none, to standard output, both JSON: :func:`answer`. It plans
with its default proposers, partitioner and estimator, and with all of the memory. A request with ``plans`` is answered with what its
estimator says of them: :func:`rate`.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import torch
import torchrec
from torchrec import EmbeddingBagCollection, EmbeddingBagConfig
from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
from torchrec.distributed.planner import EmbeddingShardingPlanner, Topology
from torchrec.distributed.planner.enumerators import EmbeddingEnumerator
from torchrec.distributed.planner.perf_models import NoopPerfModel
from torchrec.distributed.planner.storage_reservations import FixedPercentageStorageReservation
from torchrec.distributed.planner.types import ParameterConstraints, PlannerError
from torchrec.optim.apply_optimizer_in_backward import apply_optimizer_in_backward
from torchrec.optim.rowwise_adagrad import RowWiseAdagrad

#: An optimizer that keeps so many values for each value of a row, and for each row.
_OPTIMIZERS = {
    (0, 0): torch.optim.SGD,
    (1, 0): torch.optim.Adagrad,
    (2, 0): torch.optim.Adam,
    (0, 1): RowWiseAdagrad,
}
#: The kernels that keep a table in the memory that is planned.
_KERNELS = ["fused", "dense"]


def _module(tables: list[dict[str, Any]]) -> Any:
    configs = [
        EmbeddingBagConfig(
            name=one["name"],
            embedding_dim=one["columns"],
            num_embeddings=one["rows"],
            feature_names=[f"{one['name']}_{k}" for k in range(len(one["ids_per_event"]))],
        )
        for one in tables
    ]
    module = EmbeddingBagCollection(tables=configs, device=torch.device("meta"))
    for one in tables:
        optimizer = _OPTIMIZERS[one["column_slots"], one["row_slots"]]
        apply_optimizer_in_backward(optimizer, module.embedding_bags[one["name"]].parameters(), {"lr": 0.1})
    return module


def _topology(request: dict[str, Any]) -> Any:
    is_cpu, memory = request["is_cpu"], request["memory_bytes"]
    memory_rate, link_rate = request["memory_bytes_per_sec"] / 1000, request["link_bytes_per_sec"] / 1000
    return Topology(
        world_size=request["cores"],
        compute_device="cpu" if is_cpu else "cuda",
        local_world_size=request["host_cores"],
        hbm_cap=0 if is_cpu else memory,
        ddr_cap=memory if is_cpu else None,
        hbm_mem_bw=memory_rate,
        ddr_mem_bw=memory_rate,
        intra_host_bw=link_rate,
        inter_host_bw=link_rate,
    )


def _constraints(request: dict[str, Any]) -> dict[str, Any]:
    return {
        one["name"]: ParameterConstraints(pooling_factors=one["ids_per_event"], compute_kernels=_KERNELS)
        for one in request["tables"]
    }


def _planner(request: dict[str, Any]) -> Any:
    """A planner that knows of a core what the request says, and of a table how many ids an event has."""
    return EmbeddingShardingPlanner(
        topology=_topology(request),
        batch_size=request["events_per_core"],
        constraints=_constraints(request),
        storage_reservation=FixedPercentageStorageReservation(0.0),
        stats=[],
        debug=False,
        timeout_seconds=request["search_secs"],
    )


def _shards(sharding: Any) -> list[dict[str, int]]:
    """The shards of a table; none of a table with a copy on every core."""
    return [
        {
            "first_row": one.shard_offsets[0],
            "rows": one.shard_sizes[0],
            "first_column": one.shard_offsets[1],
            "columns": one.shard_sizes[1],
            "core": one.placement.rank(),
        }
        for one in (sharding.sharding_spec.shards if sharding.sharding_spec else ())
    ]


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """The plan of a request: the sharding and the shards of each table; ``refused`` if there is none."""
    module = _module(request["tables"])
    planner = _planner(request)
    began = time.perf_counter()
    try:
        plan = planner.plan(module, [EmbeddingBagCollectionSharder()])
    except PlannerError as error:
        return {"refused": str(error), "secs": time.perf_counter() - began, "torchrec": torchrec.__version__}
    took = time.perf_counter() - began
    tables = [
        {"name": name, "sharding": sharding.sharding_type, "shards": _shards(sharding)}
        for name, sharding in plan.plan[""].items()
    ]
    return {"tables": tables, "secs": took, "torchrec": torchrec.__version__}


def rate(request: dict[str, Any]) -> dict[str, Any]:
    """The milliseconds of the slowest core in each of the request's plans, which state the sharding and the cores of each table."""
    topology, module = _topology(request), _module(request["tables"])
    enumerator = EmbeddingEnumerator(topology, request["events_per_core"], _constraints(request))
    options = enumerator.enumerate(module, [EmbeddingBagCollectionSharder()])
    of_sharding = {(one.name, one.sharding_type): one for one in options}
    found = []
    for plan in request["plans"]:
        chosen = [of_sharding[one["name"], one["sharding"]] for one in plan]
        for option, told in zip(chosen, plan, strict=True):
            for shard, core in zip(option.shards, told["cores"], strict=True):
                shard.rank = core
        found.append(NoopPerfModel(topology).rate(chosen))
    return {"millis": found}


if __name__ == "__main__":
    asked = json.load(sys.stdin)
    print(json.dumps(rate(asked) if "plans" in asked else answer(asked)))
