"""The screen of ``headrace tpu check``."""

from __future__ import annotations

from dataclasses import dataclass

from rich.console import Group, RenderableType

from headrace.screens.shown import Shown
from headrace.terminal.grid import grid
from headrace.terminal.units import bytes_text, count_text, many, percent_text, secs_text
from trainer.tpu_check.check import CompiledStep
from trainer.tpu_check.compiler_errors import Problem
from trainer.tpu_check.tower_check import BagExchange, HostTraffic


@dataclass(frozen=True, slots=True)
class StackRow:
    """Tables that are one array on each device, or one table that each device has whole. See :class:`trainer.tpu_check.stacks.Stack`."""

    name: str
    tables: tuple[str, ...]
    rows: int
    dims: tuple[int, ...]
    optimizer: str
    device_rows: int
    device_bytes: int
    max_ids: int
    max_unique_ids: int
    is_replicated: bool = False

    def cells(self) -> tuple[str, ...]:
        """A row of the table of stacks."""
        tables, columns = ", ".join(self.tables), ", ".join(dict.fromkeys(map(str, self.dims)))
        limits = ("", "") if self.is_replicated else (count_text(self.max_ids), count_text(self.max_unique_ids))
        name = f"{tables} (replicated)" if self.is_replicated else tables
        rows, of_device = count_text(self.rows), count_text(self.device_rows)
        return name, columns, self.optimizer, rows, of_device, bytes_text(self.device_bytes), *limits


@dataclass(frozen=True, slots=True)
class SliceRow:
    """A model on one slice; ``hbm_bytes``, ``sparse_cores``, ``table_bytes`` and ``dense_bytes``: of each device.

    ``not_taken``: what the slice does not take of the plan, in sentences; ``exchange``: of combined bags, flat and by towers.
    """

    topology: str
    chips: int
    devices: int
    hosts: int
    sparse_cores: int
    hbm_bytes: int
    events: int
    table_bytes: int
    dense_bytes: int
    stacks: tuple[StackRow, ...]
    step: CompiledStep | None
    problem: Problem | None
    not_taken: tuple[str, ...] = ()
    exchange: BagExchange | None = None

    def render(self) -> RenderableType:
        """The slice, its tables, and the step or the problem."""
        head = (
            f"{self.topology}: {many(self.chips, 'chip')}, {many(self.devices, 'device')} with {bytes_text(self.hbm_bytes)} and "
            f"{many(self.sparse_cores, 'SparseCore')} each, {many(self.hosts, 'host')}; {count_text(self.events)} events a step"
        )
        if not self.stacks:
            return Group(head, "tables are on parameter servers: each device has the dense part", *self._outcome())
        rows = (one.cells() for one in self.stacks)
        titles = ("tables of a stack*", "columns>", "optimizer", "rows>", "rows a device>", "bytes a device>", "max ids>", "max unique ids>")  # fmt: skip
        plan = ["not taken of the plan:", *(f"  {one}" for one in self.not_taken)] if self.not_taken else []
        return Group(head, grid(titles, rows), *plan, *self._outcome(), *self._exchange_lines())

    def _outcome(self) -> list[RenderableType]:
        if self.problem is not None:
            return [*_problem_lines(self.problem)]
        if self.step is None and not self.stacks:
            return ["the step was not compiled"]
        if self.step is None:
            share = percent_text(self.table_bytes / self.hbm_bytes)
            return [
                f"tables take {bytes_text(self.table_bytes)} on each device, {share} of its HBM; the step was not compiled"
            ]
        step = self.step
        exchanged = ", ".join(f"{count} {name}" for name, count in step.collectives.items())
        share = percent_text(step.needed_bytes / self.hbm_bytes)
        return [
            f"compiles in {secs_text(step.compile_secs)}",
            f"memory: {bytes_text(step.needed_bytes)} on each device, {share} of its HBM: tables {bytes_text(self.table_bytes)}, "
            f"dense part {bytes_text(self.dense_bytes)}, temporary {bytes_text(step.temporary_bytes)}",
            f"work of a step on each device: {step.flops:.3g} floating-point operations, {bytes_text(step.accessed_bytes)} read and written",
            f"exchanged between devices: {exchanged or 'nothing'}",
            *_leg_lines(step),
            self._program_table(step),
        ]

    def _exchange_lines(self) -> list[str]:
        if self.exchange is None:
            return []
        found = self.exchange
        head = f"combined bags of {many(found.features, 'feature')} of {found.dim} columns, {many(found.bag, 'id')} each; compiled, and run on no TPU:"
        return [head, *(f"  {name}: {_traffic_text(one)}" for name, one in (("flat", found.flat), ("a tower on each host", found.towers)))]  # fmt: skip

    def _program_table(self, step: CompiledStep) -> RenderableType:
        """What a step moves, for one device: the table of program, bytes and host calls."""
        titles = (
            "program*",
            "arrays in>",
            "bytes in>",
            "arrays out>",
            "bytes out>",
            "collectives>",
            "bytes exchanged>",
            "host calls>",
        )
        name = "tables and dense part" if self.stacks else "dense part over servers"
        return grid(titles, [
            (name, count_text(step.entering.count), bytes_text(step.entering.bytes), count_text(step.leaving.count), bytes_text(step.leaving.bytes),
             count_text(sum(step.collectives.values())), bytes_text(step.collective_bytes), count_text(step.host_calls)),
        ])  # fmt: skip


def _leg_lines(step: CompiledStep) -> list[str]:
    """The exchanges of a dense update that the devices share out."""
    if not step.legs:
        return []
    legs = ", ".join(
        f"{one.name} along {one.axis} over {count_text(one.devices)} {bytes_text(one.bytes)}" for one in step.legs
    )
    return [f"dense update shared out over the devices, each with the optimizer's slots of its segment: {legs}"]


def _traffic_text(found: HostTraffic) -> str:
    """What crosses hosts, and what stays inside them."""
    places = (("between hosts", found.between), ("inside hosts", found.inside))
    texts = [
        f"{where} {', '.join(f'{count} {kind}' for kind, count in one.counts.items()) or 'nothing'}, {bytes_text(one.bytes)} a device"
        for where, one in places
    ]
    return "; ".join(texts)


def _problem_lines(problem: Problem) -> list[str]:
    lines = [f"does not compile: {problem.what}"]
    if problem.needed_bytes:
        lines.append(
            f"  needed:    {bytes_text(problem.needed_bytes)}, {bytes_text(problem.needed_bytes - problem.available_bytes)} too much"
        )
        lines.append(f"  available: {bytes_text(problem.available_bytes)}")
    if problem.next_step:
        lines.append(f"  next:      {problem.next_step}")
    return lines


@dataclass(frozen=True, slots=True, repr=False)
class TpuCheckScreen(Shown):
    """A model on slices; ``note``: what was not checked, and how to check it."""

    model: str
    version: int
    slices: tuple[SliceRow, ...]
    note: str

    def render(self) -> RenderableType:
        """One part for each slice."""
        parts: list[RenderableType] = []
        for one in self.slices:
            parts += [one.render(), ""]
        return Group(*parts, *([self.note] if self.note else []))
