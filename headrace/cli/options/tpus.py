"""The options of the tpu engine: which TPUs train, and the limits of their SparseCores."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import typer

from headrace.cli.options.option_groups import command_line
from transforms.errors import InputError

if TYPE_CHECKING:
    from trainer.options.topology import Topology
    from trainer.tables.tpu.slices import TpuSlice

#: The name of the TPUs of a machine.
TPUS_OF_THIS_MACHINE = "local"


@dataclass(frozen=True, slots=True)
class TpuOptions:
    """TPUs, and the limits of their SparseCores that are given. Raises :class:`InputError` for limits out of range."""

    PANEL: ClassVar[str] = "TPU"

    tpu: Annotated[
        str,
        typer.Option(
            help="Train on TPUs: local for those of this machine, their name, or host:port,… of a headrace role tpu-server on each machine of a slice; with --servers the dense part alone. Default: the cpu engine.", show_default=False
        ),
    ] = ""  # fmt: skip
    max_ids: Annotated[
        int | None,
        typer.Option(
            help="With --tpu: ids that one SparseCore may request from another for a stack in a step. Default: by statistics, else 256.",
            show_default=False,
        ),
    ] = None
    max_unique_ids: Annotated[int | None, typer.Option(help="The same for distinct ids.", show_default=False)] = None

    def __post_init__(self) -> None:
        for option, limit in self._limits():
            if limit is not None and limit < 1:
                raise InputError(f"{option} must be >= 1", where=option, value=limit, allowed=">= 1")

    def _limits(self) -> tuple[tuple[str, int | None], ...]:
        return ("--max-ids", self.max_ids), ("--max-unique-ids", self.max_unique_ids)

    def chosen(self, default: str = "") -> TpuOptions | None:
        """These options with the name of the TPUs, or ``default``; None for the cpu engine.

        Raises :class:`InputError` for limits without TPUs.
        """
        name = self.tpu or default
        if name:
            return replace(self, tpu=name)
        for option, limit in self._limits():
            if limit is not None:
                raise InputError(
                    f"{option} must go with --tpu", where=option, value=limit, next_step="give --tpu local too"
                )
        return None

    def of_training(self, options: Mapping[str, Any]) -> TpuOptions | None:
        """As :meth:`chosen`, by the training options, too. Raises :class:`InputError` where the two disagree."""
        engine = options.get("engine")
        if self.tpu and engine not in (None, "auto", "tpu"):
            raise InputError("--tpu must go with the tpu engine", where="--tpu", value=f"engine {engine}",
                             next_step="leave --tpu out, or the option engine of --config")  # fmt: skip
        return self.chosen(TPUS_OF_THIS_MACHINE if engine == "tpu" else "")

    def check_servers(self, servers: str) -> None:
        """Raise :class:`InputError` for limits of SparseCores that have no table, since all tables are on ``servers``."""
        for option, limit in self._limits():
            if servers and limit is not None:
                raise InputError(f"{option} must go without --servers, which hold the tables", where=option, value=limit,
                                 next_step=f"leave {option} out")  # fmt: skip

    def arguments(self) -> list[str]:
        """The options of a command that connects to these TPUs."""
        return command_line(self)

    def connect(self) -> TpuSlice:
        """Set up the TPUs; this process ends when a machine of theirs is lost.

        Raises :class:`~trainer.errors.ConfigError` if there are none that can be used.
        """
        from headrace.terminal.stopping import end_process
        from trainer.tables.sparse_core import SparseCoreSettings
        from trainer.tables.tpu.connected_slice import connect

        unset = SparseCoreSettings()
        return connect(
            self.tpu,
            SparseCoreSettings(
                default_max_ids=unset.default_max_ids if self.max_ids is None else self.max_ids,
                default_max_unique_ids=unset.default_max_unique_ids
                if self.max_unique_ids is None
                else self.max_unique_ids,
            ),
            on_lost=end_process,
        )


def check_slice_of(
    tpu: TpuOptions | None, topology: Topology, options: Mapping[str, Any], *, is_served: bool = False
) -> None:
    """Raise :class:`InputError` for a slice of a launcher that cannot train; ``is_served``: servers hold the tables."""
    if tpu is None:
        return
    generation = topology.generation
    if not (generation.sparse_cores or is_served):
        raise InputError("the tpu engine must have SparseCores", where="--topology", value=str(topology), allowed="v4, v5p, v6e, tpu7x",
                         next_step="give --servers N too: then servers hold the tables; or leave --tpu out: the cpu engine trains on the hosts of v5e")  # fmt: skip
    batch_rows = options.get("batch_rows")
    has_cores = not is_served and generation.name != "v4"
    if has_cores and isinstance(batch_rows, int) and batch_rows % topology.sparse_cores:
        raise InputError("batch_rows must be a multiple of the SparseCores of the slice", where="--config, batch_rows", value=batch_rows,
                         allowed=f"multiples of {topology.sparse_cores}")  # fmt: skip
