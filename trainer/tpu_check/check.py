"""Check a model against a slice: its tables by device, and its training step compiled by the TPU compiler."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainer.errors import CheckFailed
from trainer.options.topology import Topology
from trainer.tpu_check.checked_model import CheckedModel
from trainer.tpu_check.compiler_errors import Problem, problem_of
from trainer.tpu_check.devices import Devices, devices_of
from trainer.tpu_check.environment import TpuEnvironment
from trainer.tpu_check.stacks import Stack, stacks_of

#: How long the TPU compiler may take for one step.
COMPILE_TIMEOUT_SECS = 3600.0


@dataclass(frozen=True, slots=True)
class Arrays:
    """Arrays of one device: their number, and the bytes of all of them."""

    count: int = 0
    bytes: int = 0


NO_ARRAYS = Arrays()


@dataclass(frozen=True, slots=True)
class UpdateLeg:
    """One exchange of a dense update that is shared out over the devices.

    Attributes:
        name: ``reduce-scatter`` or ``all-gather``.
        axis: ``Y`` or ``X``, of the grid of devices.
        devices: that exchange.
        bytes: of the longer array, by formula.
        compiled_bytes: of the collectives of these devices in the program, in the form of the compiler: a sum of which a part is kept, and an all-to-all of
            copies.
    """

    name: str
    axis: str
    devices: int
    bytes: int
    compiled_bytes: int


@dataclass(frozen=True, slots=True)
class CompiledStep:
    """What the compiler says of a step, for one device.

    Attributes:
        needed_bytes: of HBM: arguments, results, temporary values and code. Results that replace arguments count once.
        temporary_bytes: of these, what is free again after the step.
        flops: floating-point operations, without those inside SparseCores.
        accessed_bytes: read and written in HBM, by the compiler's estimate.
        collectives: how often the step exchanges values between devices, by kind.
        compile_secs: that the compiler took.
        collective_bytes: that these leave on the device.
        entering, leaving: the arrays that cross from the host and back each step, in one call of the program.
        host_calls: how often the program calls the host while it runs.
        gathers: operations that pick rows: those of SparseCores' programs and of replicated tables. The dense part of a DLRM has none.
        legs: the exchanges of a dense update that is shared out over the devices; none of one that each device makes.
    """

    needed_bytes: int
    temporary_bytes: int
    flops: float
    accessed_bytes: float
    collectives: Mapping[str, int]
    compile_secs: float
    collective_bytes: int = 0
    entering: Arrays = NO_ARRAYS
    leaving: Arrays = NO_ARRAYS
    host_calls: int = 0
    gathers: int = 0
    legs: tuple[UpdateLeg, ...] = ()


@dataclass(frozen=True, slots=True)
class SliceCheck:
    """A model on a slice.

    Attributes:
        topology: the slice.
        devices: of the slice.
        events: of a step on all devices.
        stacks: the tables; none if servers hold them.
        dense_bytes: weights and optimizer slots of the dense part, on each device; 0 if it was not lowered.
        step: the compiled step, or None.
        problem: why there is none, or None if it compiled or was not compiled.
    """

    topology: Topology
    devices: Devices
    events: int
    stacks: tuple[Stack, ...]
    dense_bytes: int = 0
    step: CompiledStep | None = None
    problem: Problem | None = None


def check_slice(model: CheckedModel, topology: Topology, environment: TpuEnvironment) -> SliceCheck:
    """Check a model on a slice; without the step if the environment is not installed.

    Raises the errors of the engine's construction, and :class:`CheckFailed` if lowering or the compiler ends in another way than with
    a program or an error.
    """
    devices = devices_of(topology, is_served=model.is_served)
    stacks = () if model.is_served else stacks_of(model, devices)
    events = model.events_per_replica * devices.count
    if not environment.is_ready:
        return SliceCheck(topology, devices, events, stacks)
    with tempfile.TemporaryDirectory() as folder:
        program = str(Path(folder) / "step.hlo.pb")
        lowered = _lower(model, devices, environment, program)
        found = environment.run(
            "compiling", "trainer.tpu_check.compile",
            {"program": program, "topology": str(topology), "replicas": devices.count, "tables": lowered["tables"],
             "coordinates": devices.coordinates, "legs": lowered["legs"]},
            timeout_secs=COMPILE_TIMEOUT_SECS,
        )  # fmt: skip
    if found["devices"] != devices.count:
        raise CheckFailed("a slice must have the devices that the program was lowered for", where=str(topology),
                          value=found["devices"], allowed=str(devices.count))  # fmt: skip
    if "error" in found:
        problem = problem_of(found["error"], topology, devices, stacks)
        return SliceCheck(topology, devices, events, stacks, lowered["dense_bytes"], problem=problem)
    return SliceCheck(topology, devices, events, stacks, lowered["dense_bytes"], _compiled(found, lowered["legs"]))


def _lower(model: CheckedModel, devices: Devices, environment: TpuEnvironment, program: str) -> dict[str, Any]:
    request = {
        "model": model.to_document(),
        "replicas": devices.count,
        "hosts": devices.hosts,
        "sparse_cores": devices.sparse_cores,
        "coordinates": devices.coordinates,
        "program": program,
    }
    return environment.run("lowering", "trainer.tpu_check.lower", request, timeout_secs=COMPILE_TIMEOUT_SECS)


#: The collective of the program for each exchange.
_COMPILED_AS = {"reduce-scatter": ("all-reduce", "reduce-scatter"), "all-gather": ("all-to-all", "all-gather")}


def _counted(leg: Mapping[str, Any], found: Mapping[str, Sequence[int]]) -> int:
    return sum(found[kind][1] for kind in _COMPILED_AS[leg["name"]] if kind in found)


def _compiled(found: Mapping[str, Any], legs: Sequence[Mapping[str, Any]]) -> CompiledStep:
    new_outputs = found["output_bytes"] - found["alias_bytes"]
    return CompiledStep(
        needed_bytes=found["argument_bytes"] + new_outputs + found["temporary_bytes"] + found["code_bytes"],
        temporary_bytes=found["temporary_bytes"],
        flops=found["flops"],
        accessed_bytes=found["bytes_accessed"],
        collectives=found["collectives"],
        compile_secs=found["compile_secs"],
        collective_bytes=found["collective_bytes"],
        entering=Arrays(*found["entering"]),
        leaving=Arrays(*found["leaving"]),
        host_calls=found["host_calls"],
        gathers=found["gathers"],
        legs=tuple(
            UpdateLeg(leg["name"], leg["axis"], len(leg["groups"][0]), leg["bytes"], _counted(leg, counted))
            for leg, counted in zip(legs, found["legs"], strict=True)
        ),
    )
