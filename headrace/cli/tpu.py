"""``headrace tpu``: what a model needs of a TPU slice, before the slice is paid for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli.feature_statistics import read_document
from headrace.cli.options.session import AsJson, Home, open_warehouse
from headrace.cli.train import read_options
from headrace.terminal.output import emit, say
from headrace.terminal.quiet import import_tensorflow_quietly
from transforms.errors import InputError

if TYPE_CHECKING:
    from headrace.screens.tpu import SliceRow
    from trainer.planning.buffer_limits import BufferLimits
    from trainer.planning.feature_statistics import FeatureStatistics
    from trainer.tpu_check.check import SliceCheck
    from trainer.tpu_check.checked_model import CheckedModel
    from trainer.tpu_check.devices import Devices

#: The exit status if a slice cannot run the model: as for other input that is wrong.
DOES_NOT_FIT = 2

app = typer.Typer(
    help="Check a model against TPU slices, without a TPU.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@app.callback()
def _group() -> None:
    """Keep ``check`` a command of a group."""


@app.command("check")
def check(
    model: Annotated[str, typer.Argument(help="Name of a submitted model.")],
    topology: Annotated[list[str], typer.Option(help="A slice, such as v5p:4x4x4; may be repeated.")],
    version: Annotated[
        int, typer.Option("--version", help="The model's version. Default: the newest.", show_default=False)
    ] = 0,
    config: Annotated[str, typer.Option(help="A JSON file of training options: docs/training.md.")] = "",
    events: Annotated[
        int,
        typer.Option(help="Events of a step on each device. Default: batch_rows of the options.", show_default=False),
    ] = 0,
    serial: Annotated[bool, typer.Option("--serial", help="Do not overlap lookups with the dense part.")] = False,
    max_ids: Annotated[
        int | None,
        typer.Option(
            help="Ids that one SparseCore may request from another for a stack in a step. Default: by statistics, else 256.",
            show_default=False,
        ),
    ] = None,
    max_unique_ids: Annotated[int | None, typer.Option(help="The same for distinct ids.", show_default=False)] = None,
    environment: Annotated[
        str, typer.Option(help="The folder in which `make tpu` has installed the TPU compiler.")
    ] = ".tpu",
    home: Home = "",
    as_json: AsJson = False,
) -> None:
    """Report memory, tables, exchanges and work of a training step on TPU slices, by compiling it for them.

    Exit status 2 if a slice cannot run it.
    """
    from headrace.screens.tpu import TpuCheckScreen
    from trainer.embedding.sparse_core import SparseCoreSettings
    from trainer.topology import Topology
    from trainer.tpu_check.environment import TpuEnvironment

    slices = [Topology.parse(one) for one in topology]
    options = read_options(config)
    import_tensorflow_quietly()
    from trainer.tpu_check.check import check_slice
    from trainer.tpu_check.devices import devices_of

    for one in slices:
        devices_of(one)  # raises before anything is checked
    checked, number, known = _model(home, model, version, options, events, pipelined=not serial)
    compiler = TpuEnvironment(Path(environment))
    rows = []
    for one in slices:
        say(f"checking {one}" + (": lowering and compiling, about a minute" if compiler.is_ready else ""))
        limits = _limits(checked, known, devices_of(one))
        settings = SparseCoreSettings(
            default_max_ids=limits.ids if max_ids is None else max_ids,
            default_max_unique_ids=limits.rows if max_unique_ids is None else max_unique_ids,
        )
        rows.append(_row(check_slice(replace(checked, settings=settings), one, compiler)))
    note = "" if compiler.is_ready else (
        f"The step was not compiled: no TPU compiler in {environment}.\n  next: make tpu, or --environment FOLDER"
    )  # fmt: skip
    emit(TpuCheckScreen(model, number, tuple(rows), note), as_json=as_json)
    if any(row.problem for row in rows):
        raise typer.Exit(DOES_NOT_FIT)


def _model(
    home: str,
    name: str,
    version: int,
    options: Mapping[str, Any],
    events: int,
    *,
    pipelined: bool,
) -> tuple[CheckedModel, int, Mapping[str, FeatureStatistics]]:
    """The model to check, its version, and the statistics of its inputs that the catalog has."""
    from trainer.config import TrainConfig
    from trainer.model.inputs import TypedInput
    from trainer.model.task_heads import heads_of
    from trainer.tpu_check.checked_model import CheckedModel
    from warehouse.models.feature_statistics import newest_statistics
    from warehouse.models.models import get_model, stored_inputs

    with open_warehouse(home) as warehouse, warehouse.catalog.read() as connection:
        record = get_model(connection, name, version or None)
        stored = stored_inputs(connection, record.id)
        found = newest_statistics(connection, [one.fingerprint for one in stored])
    inputs = tuple(TypedInput(one.name, one.component.type) for one in stored)
    known = {
        one.name: read_document(found[one.fingerprint].document, one.fingerprint)
        for one in stored
        if one.fingerprint in found
    }
    run = TrainConfig.from_document(options, run_dir="none")
    if not any(one.type.buckets for one in inputs):
        raise InputError("a checked model must have an input of ids", where=f"model {name}",
                         next_step="TPU slices are checked for their embedding tables")  # fmt: skip
    checked = CheckedModel(inputs, run, heads_of(record.target), events or run.batch_rows, pipelined)
    return checked, record.version, known


def _limits(checked: CheckedModel, known: Mapping[str, FeatureStatistics], devices: Devices) -> BufferLimits:
    """The limits of SparseCore's buffers by the statistics of all features; TensorFlow's without those of any feature."""
    from trainer.embedding.partitioned.static_buffers import stacks_of
    from trainer.embedding.sparse_core import SparseCoreSettings
    from trainer.embedding.spec import tables_of
    from trainer.planning.buffer_limits import BufferLimits, limits_of
    from trainer.training.one_engine import LINEAR

    rows = {one.name: one.table.vocabulary_size for one in checked.features}
    named = {name: known.get(name.removeprefix(LINEAR)) for name in rows}
    found = {name: one for name, one in named.items() if one is not None and one.frequencies.rows == rows[name]}
    missing = dict.fromkeys(name.removeprefix(LINEAR) for name in rows if name not in found)
    if missing:
        unset = SparseCoreSettings()
        say(f"limits of SparseCore are {unset.default_max_ids}, for there are no statistics of {', '.join(missing)}")
        return BufferLimits(unset.default_max_ids, unset.default_max_unique_ids)
    tables = tables_of(checked.features)
    stacks = {
        stack.name: [found[one.name] for one in checked.features if one.table in [tables[t] for t in stack.tables]]
        for stack in stacks_of(tables, None)
    }
    partitions = devices.count * devices.sparse_cores
    limits = limits_of(stacks, checked.events_per_replica * devices.count, partitions).values()
    return BufferLimits(max(one.ids for one in limits), max(one.rows for one in limits))


def _row(found: SliceCheck) -> SliceRow:
    from headrace.screens.tpu import SliceRow, StackRow

    devices = found.devices
    return SliceRow(
        topology=str(found.topology),
        chips=found.topology.chips,
        devices=devices.count,
        hosts=devices.hosts,
        sparse_cores=devices.sparse_cores,
        hbm_bytes=devices.hbm_bytes,
        events=found.events,
        table_bytes=sum(one.device_bytes for one in found.stacks),
        dense_bytes=found.dense_bytes,
        stacks=tuple(
            StackRow(one.name, tuple(table.name for table in one.tables), sum(table.rows for table in one.tables),
                     tuple(table.dim for table in one.tables), one.optimizer, one.device_rows, one.device_bytes, one.max_ids,
                     one.max_unique_ids)
            for one in found.stacks
        ),
        step=found.step,
        problem=found.problem,
    )  # fmt: skip
