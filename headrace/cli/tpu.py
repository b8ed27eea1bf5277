"""``headrace tpu``: what a model needs of a TPU slice, before the slice is paid for."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli.options.completions import model_names
from headrace.cli.options.files import read_file
from headrace.cli.options.session import AsJson, Home, open_warehouse
from headrace.cli.options.training import read_options
from headrace.feature_statistics import statistics_of_inputs
from headrace.terminal.output import emit, say
from headrace.terminal.quiet import import_tensorflow_quietly
from transforms.errors import InputError

if TYPE_CHECKING:
    from headrace.screens.tpu import SliceRow
    from trainer.planning.feature_statistics import FeatureStatistics
    from trainer.planning.plan import PartitionPlan
    from trainer.tables.sparse_core import SparseCoreSettings
    from trainer.tpu_check.check import SliceCheck
    from trainer.tpu_check.checked_model import CheckedModel
    from trainer.tpu_check.devices import Devices
    from trainer.tpu_check.tower_check import BagExchange

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
    model: Annotated[str, typer.Argument(autocompletion=model_names, help="Name of a submitted model.")],
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
    plan: Annotated[
        str,
        typer.Option(
            metavar="FILE",
            help="Stack tables as this plan of `headrace plan make` does, and say what a slice does not take of it.",
            show_default=False,
        ),
    ] = "",
    servers: Annotated[
        bool,
        typer.Option(
            "--servers",
            help="Servers hold the tables: check the dense part alone, with activations in and gradients out.",
        ),
    ] = False,
    towers: Annotated[
        bool,
        typer.Option(
            "--towers",
            help="Also compile the exchange of combined bags, flat and by a tower on each host, and say what crosses hosts.",
        ),
    ] = False,
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
    from trainer.options.topology import Topology
    from trainer.planning.plan_document import read_plan
    from trainer.tpu_check.environment import TpuEnvironment

    slices = [Topology.parse(one) for one in topology]
    if servers:
        _refuse_with_servers(
            {
                "--plan": plan,
                "--max-ids": max_ids,
                "--max-unique-ids": max_unique_ids,
                "--serial": serial,
                "--towers": towers,
            }
        )
    options = read_options(config)
    import_tensorflow_quietly()
    from trainer.tpu_check.check import check_slice
    from trainer.tpu_check.devices import devices_of
    from trainer.tpu_check.tower_check import check_bag_exchange, check_hosts_of_towers

    for one in slices:
        devices = devices_of(one, is_served=servers)  # raises before anything is checked
        if towers:
            check_hosts_of_towers(str(one), devices)
    partition = read_plan(read_file(plan, "--plan"), plan) if plan else None
    checked, number, known = _model(home, model, version, options, events, pipelined=not serial, is_served=servers)
    if partition is not None:
        from trainer.run.weights.run_partition import check_tables

        check_tables(partition, checked.layout, checked.config)
    compiler = TpuEnvironment(Path(environment))
    rows = []
    for one in slices:
        say(f"checking {one}" + (": lowering and compiling, about a minute" if compiler.is_ready else ""))
        devices = devices_of(one, is_served=servers)
        if not servers:
            settings = _settings(checked, known, devices, partition, max_ids, max_unique_ids)
            checked = replace(checked, settings=settings)
        found = check_slice(checked, one, compiler)
        exchange = None
        if towers and compiler.is_ready:
            exchange = check_bag_exchange(checked, str(one), devices, compiler, bag=_mean_bag(known))
        rows.append(_row(found, _not_taken(partition, checked, devices), exchange))
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
    is_served: bool,
) -> tuple[CheckedModel, int, Mapping[str, FeatureStatistics]]:
    """The model to check, its version, and the statistics of its inputs that the catalog has."""
    from trainer.model.inputs import TypedInput
    from trainer.model.task_heads import heads_of
    from trainer.options.config import TrainConfig
    from trainer.tpu_check.checked_model import CheckedModel
    from warehouse.models.models import get_model, stored_inputs

    with open_warehouse(home) as warehouse, warehouse.catalog.read() as connection:
        record = get_model(connection, name, version or None)
        stored = stored_inputs(connection, record.id)
        known = statistics_of_inputs(connection, {one.name: one.fingerprint for one in stored})
    inputs = tuple(TypedInput(one.name, one.component.type) for one in stored)
    run = TrainConfig.from_document(options, run_dir="none")
    if not any(one.type.buckets for one in inputs):
        raise InputError("this model has no embedding inputs: nothing to check", where=f"model {name}",
                         next_step="TPU slices are checked for their embedding tables")  # fmt: skip
    checked = CheckedModel(
        inputs, run, heads_of(record.target), events or run.batch_rows, pipelined, is_served=is_served
    )
    return checked, record.version, known


def _refuse_with_servers(given: Mapping[str, object]) -> None:
    """Raise :class:`InputError` for options of tables in a slice that has none."""
    for option, value in given.items():
        if value not in ("", None, False):
            raise InputError(f"{option} must go without --servers, which hold the tables", where=option, value=value,
                             next_step=f"leave {option} out")  # fmt: skip


def _settings(
    checked: CheckedModel,
    known: Mapping[str, FeatureStatistics],
    devices: Devices,
    plan: PartitionPlan | None,
    max_ids: int | None,
    max_unique_ids: int | None,
) -> SparseCoreSettings:
    """What the slice takes of the plan, and the limits: those that are given, else by statistics. Where they come from is said."""
    from trainer.run.weights.slice_plan import slice_tables

    found = slice_tables(
        plan,
        checked.layout,
        checked.features,
        known,
        batch_events=checked.events_per_replica * devices.count,
        sparse_cores=devices.count * devices.sparse_cores,
        max_ids=max_ids,
        max_unique_ids=max_unique_ids,
    )
    say(found.reason)
    return found.settings


def _not_taken(plan: PartitionPlan | None, checked: CheckedModel, devices: Devices) -> tuple[str, ...]:
    """What a slice does not take of the plan."""
    from trainer.tables.spec import tables_of
    from trainer.tables.tpu.planned_stacks import not_taken

    if plan is None:
        return ()
    tables, whole = tables_of(checked.features), checked.settings.replicated
    return not_taken(plan, tables, devices.count, devices.sparse_cores, whole)


def _mean_bag(known: Mapping[str, FeatureStatistics]) -> int:
    """The ids of a mean bag by the statistics in the catalog, rounded up; 1 without any."""
    found = [one.mean_valency for one in known.values()]
    return max(1, math.ceil(math.fsum(found) / len(found))) if found else 1


def _row(found: SliceCheck, not_taken: tuple[str, ...], exchange: BagExchange | None) -> SliceRow:
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
                     one.max_unique_ids, one.is_replicated)
            for one in found.stacks
        ),
        step=found.step,
        problem=found.problem,
        not_taken=not_taken,
        exchange=exchange,
    )  # fmt: skip
