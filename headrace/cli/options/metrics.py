"""The options of a process that serves metrics."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar

import typer

from headrace.cli.options.launchers import LOCAL, REMOTE
from headrace.cli.options.option_groups import Mark, command_line
from headrace.metrics.address import MetricsAddress
from headrace.terminal.output import say
from transforms.errors import InputError
from transforms.metrics.registry import Registry

if TYPE_CHECKING:
    from headrace.metrics.process import Process

#: Serves the metrics of a registry, in the process that calls it.
Serve = Callable[[Registry], None]


@contextmanager
def needs_prometheus(option: str) -> Iterator[None]:
    """Imports in the block need ``prometheus_client``. Raises :class:`InputError` for ``option`` without it."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name != "prometheus_client":
            raise
        raise InputError("prometheus_client must be installed for metrics", where=option, value=str(error),
                         next_step="pip install 'headrace[metrics]'") from error  # fmt: skip


@dataclass(frozen=True, slots=True)
class MetricsOptions:
    """Where a process serves its metrics. Raises :class:`InputError` for options without an address."""

    PANEL: ClassVar[str] = "Metrics"

    metrics_address: Annotated[
        str,
        typer.Option(
            metavar="HOST:PORT",
            help="Serve metrics for Prometheus at http://HOST:PORT/metrics; without HOST for this machine alone. Port 0 is any.",
        ),
    ] = ""
    metrics_targets: Annotated[
        str,
        typer.Option(
            metavar="FOLDER",
            help="Also write that address to a file in this folder, which Prometheus reads (file_sd_configs). Of a job: of each "
            "process; default: job/metrics in the run directory.",
            show_default=False,
        ),
        Mark.PATH,
    ] = ""
    anonymous_metrics: Annotated[
        bool, typer.Option("--anonymous-metrics", help="Hash the names of clients in metrics.")
    ] = False

    metrics_name: Annotated[str, typer.Option(help="The name of the process in metrics.", hidden=True)] = ""
    metrics_run: Annotated[str, typer.Option(help="The run of the process in metrics.", hidden=True)] = ""

    def __post_init__(self) -> None:
        given = {"--metrics-targets": self.metrics_targets, "--anonymous-metrics": self.anonymous_metrics}
        for option, value in given.items():
            if value and not self.metrics_address:
                raise InputError(f"{option} must go with --metrics-address", where=option, value=value,
                                 next_step="give --metrics-address 127.0.0.1:0 too")  # fmt: skip

        if self.metrics_address:
            MetricsAddress.parse(self.metrics_address)  # raises

    @property
    def address(self) -> MetricsAddress | None:
        """Where the process serves; None: it serves no metrics."""
        return MetricsAddress.parse(self.metrics_address) if self.metrics_address else None

    def of_child(self, name: str, run: str, folder: Path) -> list[str]:
        """The options of a process of this machine that this one starts: a free port of the same host.

        Args:
            name: of the process among those of its kind.
            run: the folder of its run.
            folder: of the files with the addresses, unless a folder is given.
        """
        if (address := self.address) is None:
            return []
        targets = os.path.abspath(self.metrics_targets or folder)
        free = str(replace(address, port=0))
        return command_line(
            replace(self, metrics_address=free, metrics_targets=targets, metrics_name=name, metrics_run=run)
        )

    def check_processes(self, launcher: str, *, is_job: bool) -> None:
        """Raise :class:`InputError` for an address that the processes of a training cannot have."""
        if (address := self.address) is None:
            return
        if launcher == LOCAL:
            if is_job and address.port:
                raise InputError("the processes of a job on this machine must have free ports for their metrics: they are several, and not always as many",
                                 where="--metrics-address", value=self.metrics_address, allowed="a host with port 0",
                                 next_step="give port 0: the addresses are in the folder of --metrics-targets, or in job/metrics of the run directory")  # fmt: skip
        elif not address.port or self.metrics_targets or (launcher != REMOTE and address.is_loopback):
            raise InputError("processes on other machines must serve metrics at a port that a scraper knows and reaches", where="--metrics-address, --metrics-targets",
                             value=self.metrics_address, allowed="such as 0.0.0.0:9464, without --metrics-targets")  # fmt: skip

    @contextmanager
    def bound(self, process: Process) -> Iterator[Serve]:
        """A function that serves the metrics of ``process`` until the block ends, at an address that is bound now.

        Standard error shows the address. Raises :class:`InputError` for an address that cannot be bound, and without ``prometheus_client``.
        """
        if (address := self.address) is None:
            yield lambda registry: None
            return
        with needs_prometheus("--metrics-address"):
            from headrace.metrics.endpoint import Endpoint
        from headrace.metrics.lineage import lineage_families
        from headrace.metrics.targets import listed_target, target_file

        with ExitStack() as serving:
            endpoint = serving.enter_context(Endpoint(address, is_anonymous=self.anonymous_metrics))
            process = replace(process, name=self.metrics_name or process.name, run=self.metrics_run or process.run)
            if self.metrics_targets:
                file = target_file(Path(self.metrics_targets), process)
                serving.enter_context(listed_target(file, str(endpoint.address), process.labels))
            say(f"metrics for Prometheus: http://{endpoint.address}/metrics")

            def serve(registry: Registry) -> None:
                registry.add("process", process.families)
                if (
                    lineage := sys.modules.get("headrace.lineage.sender")
                ) is not None:  # a process that sends events has it
                    registry.add("lineage", lambda: lineage_families(**asdict(lineage.COUNTS)))
                endpoint.serve(registry)

            yield serve
