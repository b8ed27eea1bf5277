"""The options of the tpu engine: which TPUs train, and the limits of their SparseCores."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli.options.launchers import GKE, LOCAL, REMOTE, TPU_VM
from transforms.errors import InputError

if TYPE_CHECKING:
    from trainer.embedding.tpu.slices import TpuSlice
    from trainer.topology import Topology

#: The name of the TPUs of a machine.
TPUS_OF_THIS_MACHINE = "local"

Tpu = Annotated[
    str,
    typer.Option(
        "--tpu",
        help="Train on TPUs: local for those of this machine, or their name. Default: the cpu engine.",
        show_default=False,
    ),
]
MaxIds = Annotated[
    int | None,
    typer.Option(
        help="With --tpu: ids that one SparseCore may request from another for a stack in a step. Default: by statistics, else 256.",
        show_default=False,
    ),
]
MaxUniqueIds = Annotated[int | None, typer.Option(help="The same for distinct ids.", show_default=False)]


@dataclass(frozen=True, slots=True)
class TpuOptions:
    """TPUs, and the limits of their SparseCores that are given."""

    name: str
    max_ids: int | None = None
    max_unique_ids: int | None = None

    def arguments(self) -> list[str]:
        """The options of a command that connects to these TPUs."""
        limits = (("--max-ids", self.max_ids), ("--max-unique-ids", self.max_unique_ids))
        given = [text for option, limit in limits if limit is not None for text in (option, str(limit))]
        return ["--tpu", self.name, *given]

    def connect(self) -> TpuSlice:
        """Set up the TPUs. Raises :class:`~trainer.errors.ConfigError` if there are none that can be used."""
        from trainer.embedding.sparse_core import SparseCoreSettings
        from trainer.embedding.tpu.connected_slice import connect

        unset = SparseCoreSettings()
        return connect(
            self.name,
            SparseCoreSettings(
                default_max_ids=unset.default_max_ids if self.max_ids is None else self.max_ids,
                default_max_unique_ids=unset.default_max_unique_ids
                if self.max_unique_ids is None
                else self.max_unique_ids,
            ),
        )


def tpu_of(name: str, max_ids: int | None, max_unique_ids: int | None) -> TpuOptions | None:
    """The TPUs of a command; None for the cpu engine. Raises :class:`InputError` for limits without them, or out of range."""
    for option, limit in (("--max-ids", max_ids), ("--max-unique-ids", max_unique_ids)):
        if limit is None:
            continue
        if limit < 1:
            raise InputError(f"{option} must be >= 1", where=option, value=limit, allowed=">= 1")
        if not name:
            raise InputError(
                f"{option} must go with --tpu", where=option, value=limit, next_step="give --tpu local too"
            )
    return TpuOptions(name, max_ids, max_unique_ids) if name else None


def tpu_of_training(given: Mapping[str, Any], options: Mapping[str, Any]) -> TpuOptions | None:
    """The TPUs of ``headrace train``, by its parameters and its training options; None for the cpu engine.

    Raises :class:`InputError` where the two disagree, and for a job that a slice cannot train.
    """
    engine, name = options.get("engine"), given["tpu"]
    if name and engine not in (None, "auto", "tpu"):
        raise InputError("--tpu must go with the tpu engine", where="--tpu", value=f"engine {engine}",
                         next_step="leave --tpu out, or the option engine of --config")  # fmt: skip
    found = tpu_of(name or (TPUS_OF_THIS_MACHINE if engine == "tpu" else ""), given["max_ids"], given["max_unique_ids"])
    if found is not None:
        _check_processes(found, given)
    return found


def _check_processes(tpu: TpuOptions, given: Mapping[str, Any]) -> None:
    """Refuse processes that a slice does not serve: one process drives all TPUs of its machine."""
    launcher = given["launcher"]
    if launcher != LOCAL and tpu.name != TPUS_OF_THIS_MACHINE:
        raise InputError("the hosts of a job must train on the TPUs of their machines", where="--tpu", value=tpu.name,
                         allowed=TPUS_OF_THIS_MACHINE)  # fmt: skip
    if launcher == LOCAL and (given["hosts"] or given["follow"]):
        raise InputError("the tpu engine must train in this process, or on machines of a launcher", where="--tpu, --hosts",
                         value=given["hosts"], next_step=f"leave --hosts out, or give --launcher {GKE}, {TPU_VM} or {REMOTE}")  # fmt: skip
    if launcher == REMOTE and given["hosts"] != 1:
        raise InputError("a job on TPUs must have one host", where="--hosts", value=given["hosts"], allowed="1",
                         next_step="take a slice of one machine, or train with the cpu engine on all hosts")  # fmt: skip


def check_slice_of(tpu: TpuOptions | None, topology: Topology, options: Mapping[str, Any]) -> None:
    """Raise :class:`InputError` for a slice of a launcher on which the tpu engine cannot train."""
    if tpu is None:
        return
    generation = topology.generation
    if not generation.sparse_cores:
        raise InputError("the tpu engine must have SparseCores", where="--topology", value=str(topology), allowed="v4, v5p, v6e, tpu7x",
                         next_step="leave --tpu out: the cpu engine trains on the hosts of v5e")  # fmt: skip
    if topology.hosts > 1:
        raise InputError("a slice of the tpu engine must be one machine", where="--topology", value=f"{topology}, {topology.hosts} hosts",
                         allowed="such as v5p:2x2x1, v6e:2x4", next_step="take a slice of one machine, or leave --tpu out")  # fmt: skip
    batch_rows = options.get("batch_rows")
    cores = topology.sparse_cores
    if generation.name != "v4" and isinstance(batch_rows, int) and batch_rows % cores:
        raise InputError("batch_rows must be a multiple of the SparseCores of the slice", where="--config, batch_rows", value=batch_rows,
                         allowed=f"multiples of {cores}")  # fmt: skip
