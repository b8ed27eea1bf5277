"""Errors of the TPU compiler in our words: what is exceeded, by how much, and what would fit. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from trainer.options.topology import Topology
from trainer.tpu_check.devices import Devices, smallest_slice
from trainer.tpu_check.stacks import Stack

_HBM = re.compile(r"Ran out of memory on HBM.*?\(([\d.]+)([KMGT]?)\) exceeds available HBM \(([\d.]+)([KMGT]?)\)")
_SPARSE_CORE = re.compile(
    r"E3001.*?max_nz_per_row = (\d+), max_unique_nz_per_row = (\d+).*?fixed_size_allocation_bytes = (\d+).*?"
    r"total_spmem_size_bytes = (\d+)",
    re.DOTALL,
)
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
#: What is shown of an error that is none of these.
_SHOWN_CHARACTERS = 600


@dataclass(frozen=True, slots=True)
class Problem:
    """Why a step does not compile.

    Attributes:
        kind: "hbm", "sparse_core_memory", or "compiler" for any other error.
        what: the rule that it breaks.
        needed_bytes: of a device or a SparseCore; 0 if the error does not say.
        available_bytes: the same.
        next_step: what would fit.
    """

    kind: str
    what: str
    needed_bytes: int = 0
    available_bytes: int = 0
    next_step: str = ""


def problem_of(error: str, topology: Topology, devices: Devices, stacks: Sequence[Stack]) -> Problem:
    """The problem that an error of the compiler reports."""
    if found := _HBM.search(error):
        needed, available = (_bytes(found.group(k), found.group(k + 1)) for k in (1, 3))
        return Problem(
            "hbm", "a training step must fit in the HBM of a device", needed, available,
            _what_fits(needed, available, topology, devices, stacks),
        )  # fmt: skip
    if found := _SPARSE_CORE.search(error):
        ids, unique, needed, available = map(int, found.groups())
        return Problem(
            "sparse_core_memory", "the buffers of a stack must fit in the memory of a SparseCore", needed, available,
            f"lower the limits of {_stacks_with(stacks, ids, unique)}, now {ids} ids and {unique} distinct ids, or train fewer events on each device",
        )  # fmt: skip
    return Problem("compiler", f"the TPU compiler must accept the step: {error[:_SHOWN_CHARACTERS]}")


def _what_fits(needed: int, available: int, topology: Topology, devices: Devices, stacks: Sequence[Stack]) -> str:
    """Tables spread over more devices; the rest of a step stays as large on each."""
    tables = sum(stack.device_bytes for stack in stacks)
    rest = max(needed - tables, 0)
    if rest >= available:
        return "train fewer events on each device, or make the dense layers smaller: tables are not what is too large"
    share = tables / (available - rest)
    chips = math.ceil(share * topology.chips)
    if slice_ := smallest_slice(topology, chips):
        return f"check {slice_}, the smallest slice with {chips} chips or more; or hash into fewer buckets"
    return "hash into fewer buckets, or make dim smaller: no slice of this generation has enough memory"


def _stacks_with(stacks: Sequence[Stack], ids: int, unique: int) -> str:
    names = [stack.name for stack in stacks if (stack.max_ids, stack.max_unique_ids) == (ids, unique)]
    return f"stack {', '.join(names)}" if names else "the stack"


def _bytes(number: str, unit: str) -> int:
    return round(float(number) * _UNITS[unit])
