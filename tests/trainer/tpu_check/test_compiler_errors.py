"""Errors of the TPU compiler, as it has written them, become ours."""

from __future__ import annotations

from trainer.options.topology import Topology
from trainer.tpu_check.compiler_errors import problem_of
from trainer.tpu_check.devices import devices_of
from trainer.tpu_check.stacks import Stack, TableRow

TOPOLOGY = Topology.parse("v5p:2x2x1")
DEVICES = devices_of(TOPOLOGY)
GIB = 1 << 30
HBM = (
    "RESOURCE_EXHAUSTED: Ran out of memory on HBM, the total memory required for HLO temporaries (192.24G) exceeds "
    "available HBM (95.74G)."
)
SPARSE_CORE = (
    "INVALID_ARGUMENT: E3001: CompileTimeSparseCoreInvalidReplicaCount:\nNo viable logical replica count for the embedding table "
    "with metadata: max_nz_per_row = 65536, max_unique_nz_per_row = 4096, feature_width = 8, sample_count = 2048 (last tried split "
    "factor for vector splitting = 1, fixed_size_allocation_bytes = 2360320, row_dependent_size_allocation_bytes = 786432, "
    "total_spmem_size_bytes = 524288)\nSee https://openxla.org/xla/errors/error_3001 for more details."
)


def stack(name, device_bytes, max_ids=256, max_unique_ids=256):
    return Stack(name, (TableRow(name, 1, 1, 1, 8),), "Adagrad", 1, 1, device_bytes, max_ids, max_unique_ids)


def test_too_little_hbm_names_a_slice_that_would_do():
    found = problem_of(HBM, TOPOLOGY, DEVICES, [stack("a", 100 * GIB), stack("b", 80 * GIB)])
    assert found.kind == "hbm"
    assert round(found.needed_bytes / GIB, 2) == 192.24
    assert round(found.available_bytes / GIB, 2) == 95.74
    assert (
        "check v5p:2x4x4, the smallest slice with 9 chips or more" in found.next_step or "v5p:2x2x4" in found.next_step
    )


def test_too_large_steps_need_fewer_events_not_more_chips():
    assert "fewer events" in problem_of(HBM, TOPOLOGY, DEVICES, [stack("a", 1)]).next_step


def test_tables_that_no_slice_holds():
    topology = Topology.parse("v6e:16x16")
    found = problem_of(HBM, topology, devices_of(topology), [stack("a", 192 * GIB)])
    assert "no slice of this generation" in found.next_step


def test_too_large_buffers_name_the_stack():
    found = problem_of(SPARSE_CORE, TOPOLOGY, DEVICES, [stack("a", 1), stack("b", 1, 65536, 4096)])
    assert (found.kind, found.needed_bytes, found.available_bytes) == ("sparse_core_memory", 2360320, 524288)
    assert "stack b, now 65536 ids and 4096 distinct ids" in found.next_step


def test_another_error_is_shown():
    found = problem_of("INTERNAL: something else", TOPOLOGY, DEVICES, [])
    assert found.kind == "compiler"
    assert "INTERNAL: something else" in found.what
