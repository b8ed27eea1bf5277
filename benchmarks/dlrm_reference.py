"""MLPerf's DLRM on slices of 256 chips: the whole training step, compiled ahead of time by the real TPU compiler.

``python -m benchmarks.dlrm_reference [--topology v6e:16x16] [--events 65536] [--placement-only] --environment .tpu`` (``make tpu`` makes the environment)

First the planner places the tables, and the bytes that a device sends and receives in a step are counted by formula for all tables spread and as planned: ids,
rows and gradients between SparseCores, where each row is asked for once a SparseCore and ids are equally frequent; and two passes of a ring for the sums of replicated
tables. ``--placement-only`` ends there. Then the planned step is compiled.

The model has the 26 tables of Criteo's terabyte log with at most 40 million rows, 128 columns, and the MLPs of MLPerf's reference; 65,536 events a step.
Printed are the compiler's figures, and a bill of the step's time that is computed from them and from the rates that makers of chips publish, with the
shares of these rates that ``benchmarks/support/host_topologies.py`` assumes. The compiler counts what SparseCores do as if they read whole tables, so the
bill is also counted by shapes: 6 operations for each dense weight and event, dense weights and looked-up rows moved. Nothing ran on a TPU.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path

from benchmarks.support.host_topologies import REACHED, host_topology
from trainer.model.heads import BINARY
from trainer.model.inputs import TypedInput
from trainer.options.config import TrainConfig
from trainer.options.topology import Topology
from trainer.planning.plan import PartitionPlan
from trainer.planning.planner import make_plan
from trainer.planning.tables import FeatureLoad, TableFacts
from trainer.planning.topologies import PlanTopology, topology_of
from trainer.run.weights.slice_plan import replicated_tables
from trainer.tables.planned_tables import tables_to_plan
from trainer.tables.sparse_core import SparseCoreSettings
from trainer.tpu_check.check import SliceCheck, check_slice
from trainer.tpu_check.checked_model import CheckedModel
from trainer.tpu_check.environment import TpuEnvironment
from transforms.types import Dense, DType, Vector

#: Rows of the tables of Criteo's terabyte log, of which ids are taken modulo 40 million: MLPerf's reference.
ROWS = (39_884_406, 39_043, 17_289, 7_420, 20_263, 3, 7_120, 1_543, 63, 38_532_951, 2_953_546, 403_346, 10, 2_208, 11_938, 155, 4, 976, 14,
        39_979_771, 25_641_295, 39_664_984, 585_935, 12_972, 108, 36)  # fmt: skip
COLUMNS, NUMBERS = 128, 13
#: Events of an epoch, of which MLPerf trains about one.
EPOCH_EVENTS = 4_195_197_692


def reference_model(events_per_replica: int, settings: SparseCoreSettings) -> CheckedModel:
    """MLPerf's DLRM: one id in each bag, and SGD for all weights."""
    inputs = [TypedInput(f"c{k}", Dense(DType.INT64, rows)) for k, rows in enumerate(ROWS)]
    config = TrainConfig(
        run_dir="none",
        dim=COLUMNS,
        linear=False,
        bottom_mlp=(512, 256),
        top_mlp=(1024, 1024, 512, 256),
        embedding_optimizer="sgd",
        dense_optimizer="sgd",
    )
    numbers = TypedInput("numbers", Vector(DType.FLOAT32, NUMBERS))
    return CheckedModel((*inputs, numbers), config, BINARY, events_per_replica, settings=settings)


def main() -> int:
    """Print the figures of each slice."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--topology", action="append", default=[])
    parser.add_argument("--events", type=int, default=65_536, help="of a step, on all devices")
    parser.add_argument("--max-ids", type=int, default=256)
    parser.add_argument("--placement-only", action="store_true")
    parser.add_argument("--environment", type=Path, default=Path(".tpu"))
    options = parser.parse_args()
    environment = TpuEnvironment(options.environment)
    if not environment.is_ready and not options.placement_only:
        print("make tpu makes the environment with TensorFlow for TPUs and the TPU compiler", file=sys.stderr)
        return 2
    print(
        f"{sum(ROWS):,} rows of {COLUMNS} columns, {4 * COLUMNS * sum(ROWS) / 1e9:.1f} GB; {options.events:,} events a step"
    )
    for name in options.topology or ["v5p:4x8x8", "v6e:16x16"]:
        topology = Topology.parse(name)
        settings = SparseCoreSettings(default_max_ids=options.max_ids, default_max_unique_ids=options.max_ids)
        model = reference_model(options.events // topology.chips, settings)
        plan = placement(model, name, options.events)
        if options.placement_only:
            continue
        model = replace(
            model, settings=replace(settings, replicated=replicated_tables(plan, model.layout, model.features))
        )
        report(name, topology, check_slice(model, topology, environment), options.events)
    return 0


def placement(model: CheckedModel, name: str, events: int) -> PartitionPlan:
    """Plan the tables of a slice, and print where they are and what crosses for them."""
    topology = topology_of(name)
    loads = {
        one.name: FeatureLoad.assumed(one.name, one.table.vocabulary_size, (), has_one_id=True)
        for one in model.features
    }
    facts = tables_to_plan(model.features, loads)
    plan = make_plan(facts, topology, events).plan
    whole = {one.name for one in plan.tables if one.is_replicated}
    print(f"\n{name}, planned: {len(whole)} tables replicated ({', '.join(str(one.rows) for one in plan.tables if one.is_replicated) or 'none'} rows), "
          f"{len(plan.tables) - len(whole)} spread by rows over {topology.cores} SparseCores")  # fmt: skip
    spread = {one.name: exchanged_bytes(one, topology, events) for one in facts}
    summed = sum(summed_bytes(one, topology) for one in facts if one.name in whole)
    left = sum(count for table, count in spread.items() if table not in whole)
    print(f"  exchanged by a device in a step, by formula: all spread {sum(spread.values()) / 1e6:.3f} MB; as planned {(left + summed) / 1e6:.3f} MB, "
          f"{left / 1e6:.3f} MB between SparseCores and {summed / 1e6:.3f} MB in sums")  # fmt: skip
    return plan


def exchanged_bytes(table: TableFacts, topology: PlanTopology, events: int) -> float:
    """What the SparseCores of a device send and receive for a table that is spread: the number of each row, the row and its gradient."""
    rows = table.frequencies().distinct(table.ids_per_event * events / topology.cores)
    return 2 * topology.device_cores * (1 - 1 / topology.cores) * rows * (8 + 2 * 4 * table.columns)


def summed_bytes(table: TableFacts, topology: PlanTopology) -> float:
    """What a device sends and receives for the sums of a replicated table, with the count of each row's ids."""
    devices = topology.cores // topology.device_cores
    return 4 * (1 - 1 / devices) * table.rows * 4 * (table.columns + 1)


def report(name: str, topology: Topology, found: SliceCheck, events: int) -> None:
    """Print the compiler's figures of a slice, and the computed bill."""
    print(
        f"\n{name}: {topology.chips} chips, {found.devices.count} devices, {events // found.devices.count} events each"
    )
    if found.step is None:
        print(f"  not compiled: {found.problem}")
        return
    step = found.step
    tables = sum(stack.device_bytes for stack in found.stacks)
    print(f"  compiled in {step.compile_secs:.0f} s")
    for what, count in {
        "tables, with padding and slots": tables,
        "dense weights": found.dense_bytes,
        "memory of the program": step.needed_bytes,
        "memory of a device": found.devices.hbm_bytes,
        "read and written in a step": step.accessed_bytes,
        "left by collectives in a step": step.collective_bytes,
    }.items():
        print(f"  {what:>34}: {count / 1e6:12,.2f} MB a device")
    print(f"  {'operations in a step':>34}: {step.flops / 1e9:12,.3f} G a device, without SparseCores")
    print(
        f"  {'collectives':>34}: {', '.join(f'{kind} {number}' for kind, number in sorted(step.collectives.items()))}"
    )
    rates, chip_events = host_topology(f"{topology.generation.name}:16"), events // found.devices.count
    rows = 3 * 4 * COLUMNS * len(ROWS) * chip_events  # read, then read and written by the update
    bills = {
        "the compiler's estimate": (step.flops, step.accessed_bytes),
        "counted by shapes": (6 * found.dense_bytes / 4 * chip_events, 4 * found.dense_bytes + rows),
    }
    sent_secs = step.collective_bytes / (rates.intra_bytes_per_sec * REACHED.intra)
    waited_secs = sum(step.collectives.values()) * REACHED.message_secs
    for name_of_bill, (flops, moved_bytes) in bills.items():
        parts = {
            "operations": rates.compute_secs(flops),
            "memory": rates.memory_secs(moved_bytes),
            "collectives": sent_secs + waited_secs,
        }
        step_secs = sum(parts.values())
        minutes = EPOCH_EVENTS / events * step_secs / 60
        print(f"  computed, not measured, by {name_of_bill}, one part after another:")
        print(f"    {', '.join(f'{part} {secs * 1e3:.3f} ms' for part, secs in parts.items())}; {step_secs * 1e3:.3f} ms a step, "
              f"{events / step_secs / 1e6:,.0f} M events/s, an epoch in {minutes:.2f} minutes")  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
