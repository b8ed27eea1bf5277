"""``headrace role``: the processes of a training job, as a supervisor or a cluster starts them."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli.options.devices import DeviceOptions
from headrace.cli.options.metrics import MetricsOptions
from headrace.cli.options.option_groups import grouped
from headrace.cli.options.session import open_warehouse
from headrace.cli.options.tokens import read_token_file
from headrace.cli.options.tpus import TpuOptions
from headrace.launchers.role_commands import SLICE_PORT
from headrace.metrics.process import Process
from headrace.terminal.logs import log_as_role
from headrace.terminal.quantities import check_grace
from headrace.terminal.quiet import import_tensorflow_quietly, keep_tensorflow_quiet
from transforms.errors import HeadraceError, InputError
from transforms.execution.memory import keep_freed_memory
from transforms.installation import own_module
from transforms.metrics.registry import Registry

if TYPE_CHECKING:
    import pyarrow as pa

    from trainer.job.control.job_files import JobFiles
    from trainer.job.launch.role_options import RoleOptions
    from trainer.run.reading.unit_reader import ReadBySolution
    from trainer.wire.flight.addresses import Address
    from warehouse.errors import MemoDamaged
    from warehouse.solution.parts import SolutionFragment
    from warehouse.solution.solution import ReadSolution

app = typer.Typer(
    help="The processes of a training job: headrace train starts them on this machine.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

Run = Annotated[
    str,
    typer.Argument(
        help="The run directory of the job; of a run in a bucket, its job folder; with --token-file, a folder of this process."
    ),
]
Name = Annotated[str, typer.Option(help="The name of the process among those of its kind.")]
Listen = Annotated[str, typer.Option("--address", help="Where it serves, as host:port; port 0 is any.")]
Supervised = Annotated[
    int, typer.Option("--supervisor", help="The process that started this one; it ends with it.", show_default=False)
]
Advertised = Annotated[
    str,
    typer.Option("--advertise", help="The address at which others reach it. Default: --address.", show_default=False),
]
Controller = Annotated[
    str,
    typer.Option(
        "--controller", help="The address of the controller. Default: as the job's files say.", show_default=False
    ),
]
TokenFile = Annotated[
    str,
    typer.Option(
        "--token-file",
        help="The token of a job on other machines: its document comes from --controller.",
        show_default=False,
    ),
]
OverStatus = Annotated[
    int,
    typer.Option(
        "--over-status",
        help="The exit status after the end of its job: 75 where another job will want the process.",
    ),
]
SlowDiskFile = Annotated[str, typer.Option("--slow-disk", hidden=True, help="A file of headrace chaos with a delay.")]


def _opened(kind: str, name: str, run: str, address: str, supervisor: int) -> tuple[JobFiles, Address]:
    from trainer.job.control.job_files import JobFiles
    from trainer.job.launch.role_signals import end_with_supervisor
    from trainer.wire.flight.addresses import Address

    log_as_role(kind, name=name, run=run)
    if supervisor:
        end_with_supervisor(supervisor)
    return JobFiles(Path(run)), Address.parse(address)


@app.command("controller")
@grouped
def controller(
    run: Run,
    commit: Annotated[
        str, typer.Option(help="The newest intact commit, as epochs,attempt,unit. Default: that of the log.")
    ] = "",
    address: Listen = "127.0.0.1:0",
    supervisor: Supervised = 0,
    *,
    metrics: MetricsOptions,
) -> None:
    """Decide: keep the state of the job, and publish its commits."""
    from trainer.job.launch.controller_process import run_controller
    from trainer.job.launch.role_signals import on_termination
    from trainer.scheduling.orders import Commit

    files, place = _opened("controller", "controller", run, address, supervisor)
    newest = Commit(*_numbers(commit)) if commit else None
    registry = Registry()
    with metrics.bound(Process("controller", "controller", run=run)) as serve:
        serve(registry)
        run_controller(files, newest=newest, address=place, on_signals=on_termination, metrics=registry)


def _numbers(text: str) -> tuple[int, int, int]:
    parts = text.split(",")
    if len(parts) != 3 or not all(part.isascii() and part.isdigit() for part in parts):
        raise InputError("a commit must be three numbers", where="--commit", value=text, allowed="epochs,attempt,unit")
    return int(parts[0]), int(parts[1]), int(parts[2])


def _role(files: JobFiles, name: str, address: Address, advertised: str, controller: str, token: str) -> RoleOptions:
    from trainer.job.launch.role_options import RoleOptions
    from trainer.wire.flight.addresses import Address

    parse = Address.parse
    return RoleOptions(
        files,
        name,
        address,
        parse(advertised) if advertised else None,
        parse(controller) if controller else None,
        read_token_file(token) if token else "",
    )


def _run_of(run: str, token_file: str) -> str:
    """The run of a role, in its metrics; "" where ``run`` is a folder of the process alone."""
    return "" if token_file else run


def _end(is_over: bool, over_status: int) -> None:
    """End with the status that has a cluster start the role again, or if its job is over with ``over_status``."""
    from trainer.job.launch.role_signals import LEFT_STATUS

    if status := over_status if is_over else LEFT_STATUS:
        raise typer.Exit(status)


def _slow(file: str) -> Callable[[], None]:
    from trainer.job.launch.chaos.slow_disk import SlowDisk

    return SlowDisk(Path(file)).wait if file else lambda: None


def _slowed(read: ReadBySolution, file: str) -> ReadBySolution:
    wait = _slow(file)

    def slowed(solution: ReadSolution, fragment: SolutionFragment) -> pa.Table:
        wait()
        return read(solution, fragment)

    return slowed


@app.command("reader")
@grouped
def reader(
    run: Run,
    name: Name = "r0",
    address: Listen = "127.0.0.1:0",
    advertised: Advertised = "",
    controller: Controller = "",
    token_file: TokenFile = "",
    over_status: OverStatus = 0,
    slow_disk: SlowDiskFile = "",
    supervisor: Supervised = 0,
    *,
    metrics: MetricsOptions,
) -> None:
    """Read work units for the hosts. Status 75: it left a job that goes on."""
    from trainer.job.launch.reader_process import run_reader
    from trainer.job.launch.role_signals import on_termination
    from trainer.run.reading.unit_reader import read_by_solution
    from warehouse.storage.storage import Storage

    files, place = _opened("reader", name, run, address, supervisor)
    keep_freed_memory()
    options = _role(files, name, place, advertised, controller, token_file)

    def open_read(home: str) -> ReadBySolution:
        read = read_by_solution(Storage(home), partial(_record_damage, home))
        return _slowed(read, slow_disk) if slow_disk else read

    registry = Registry()
    with metrics.bound(Process("reader", name, run=_run_of(run, token_file))) as serve:
        serve(registry)
        is_over = run_reader(options, open_read, on_signals=on_termination, metrics=registry)
    _end(is_over, over_status)


def _record_damage(home: str, memo: str, path: str, error: MemoDamaged) -> None:
    """Queue a damaged memo again. The reader has computed it, so the catalog may be away."""
    from warehouse.memos.memos import damage_recorder

    try:
        with open_warehouse(home) as warehouse:
            damage_recorder(warehouse)(memo, path, error)
    except HeadraceError as failed:
        logging.getLogger(__name__).warning("the damage of %s was not recorded: %s", path, failed.what)


@app.command("host")
@grouped
def host(
    run: Run,
    name: Name = "h0",
    address: Listen = "127.0.0.1:0",
    advertised: Advertised = "",
    controller: Controller = "",
    token_file: TokenFile = "",
    grace_secs: Annotated[float, typer.Option(help="The preemption notice that SIGTERM gives.")] = 30.0,
    notice_metadata: Annotated[
        str, typer.Option(help="Take preemption notices of this machine from this metadata server.")
    ] = "",
    over_status: OverStatus = 0,
    *,
    tpu: TpuOptions,
    device: DeviceOptions,
    metrics: MetricsOptions,
    slow_disk: SlowDiskFile = "",
    supervisor: Supervised = 0,
) -> None:
    """Train. Status 75: it left a job that goes on."""
    from trainer.job.launch.host_process import run_host
    from trainer.job.launch.notices import MetadataNotice
    from trainer.job.launch.role_signals import on_termination
    from trainer.run.host_metrics import HostMetrics

    tpus = tpu.chosen()
    device.let_be_seen()
    files, place = _opened("host", name, run, address, supervisor)
    keep_freed_memory()
    options = _role(files, name, place, advertised, controller, token_file)
    with metrics.bound(Process("host", name, run=_run_of(run, token_file))) as serve:
        recorded, registry = HostMetrics(), Registry()
        registry.add("host", recorded.families)
        serve(registry)
        is_over = run_host(
            replace(options, grace_secs=check_grace("--grace-secs", grace_secs)),
            prepare=_prepare_to_train,
            use_device=device.use,
            on_signals=on_termination,
            before_write=_slow(slow_disk),
            notice_sources=[MetadataNotice(notice_metadata, grace_secs=grace_secs)] if notice_metadata else (),
            connect=None if tpus is None else tpus.connect,
            metrics=recorded,
        )
    _end(is_over, over_status)


def _prepare_to_train() -> None:
    """Load the kernels of most models while the host waits for its first epoch."""
    keep_tensorflow_quiet()
    import_module(own_module("trainer.model.compiled.compiled_dense"))


@app.command("tpu-server")
@grouped
def tpu_server(
    port: Annotated[
        int, typer.Option(help="Where it serves, on all addresses of this machine: in a private network.")
    ] = SLICE_PORT,
    name: Annotated[
        str,
        typer.Option(
            "--host",
            help="The name of the host that drives it, which gets a notice when SIGTERM comes.",
            show_default=False,
        ),
    ] = "",
    controller: Annotated[
        str, typer.Option("--controller", help="With --host: the address of the controller.", show_default=False)
    ] = "",
    token_file: Annotated[
        str, typer.Option("--token-file", help="With --host: the token of the job.", show_default=False)
    ] = "",
    grace_secs: Annotated[float, typer.Option(help="With --host: the seconds that it serves after SIGTERM.")] = 30.0,
    cpus: Annotated[int, typer.Option("--cpus", hidden=True, help="CPUs that stand for devices.")] = 0,
    supervisor: Supervised = 0,
    *,
    metrics: MetricsOptions,
) -> None:
    """Run the programs of a host on the TPUs of this machine, one of several of a slice. Status 143: it was terminated."""
    from headrace.terminal.stopping import SIGTERM_STATUS
    from trainer.job.launch.role_signals import end_with_supervisor, on_termination
    from trainer.job.launch.slice_metrics import SliceMetrics
    from trainer.job.launch.slice_server import notice_of_host, run_slice_server
    from trainer.wire.flight.addresses import Address

    log_as_role("tpu-server", host=name)
    given = {"--host": name, "--controller": controller, "--token-file": token_file}
    if missing := [option for option, value in given.items() if not value and any(given.values())]:
        raise InputError("--host, --controller and --token-file must be given together", where=missing[0], next_step=f"give {missing[0]} too")  # fmt: skip
    notify = notice_of_host(name, Address.parse(controller), read_token_file(token_file)) if name else None
    if supervisor:
        end_with_supervisor(supervisor)
    with metrics.bound(Process("tpu_server", name or str(port))) as serve:
        recorded, registry = SliceMetrics(port), Registry()
        registry.add("tpu_server", recorded.families)
        serve(registry)
        import_tensorflow_quietly()
        run_slice_server(
            port,
            on_signals=on_termination,
            notify=notify,
            grace_secs=check_grace("--grace-secs", grace_secs),
            cpus=cpus,
            metrics=recorded,
        )
    # TensorFlow cannot end its server, and the end of the interpreter would wait for it
    logging.shutdown()
    os._exit(SIGTERM_STATUS)


@app.command("phases")
def phases(
    arguments: Annotated[
        list[str],
        typer.Argument(
            metavar="-- train ARGS… -- train ARGS…", help="The controllers of initial and of caught-up training."
        ),
    ],
) -> None:
    """Train the phases of a run one after another, as the controller of each."""
    from headrace.cli.phased_training import train_phases
    from headrace.cli.train_options.arguments import controllers_of_phases

    train_phases(controllers_of_phases(arguments))
