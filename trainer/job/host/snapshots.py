"""The state of a host at the end of an attempt, kept until its part of the commit is written."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from trainer.checkpoints.host_part import LABELS, LEDGER, PREDICTIONS, HostPart, Moment
from trainer.checkpoints.parts import write_part
from trainer.checkpoints.shard_name import NO_SHARDS
from trainer.checkpoints.taken_arrays import TakenArrays
from trainer.errors import NonFiniteLoss
from trainer.job.host.attempt import TrainedState
from trainer.planning.plan import PartitionPlan
from trainer.planning.plan_document import plan_fingerprint
from trainer.run.history.history_file import HISTORY, history_bytes
from trainer.run.history.run_history import RunHistory
from trainer.run.labels.label_record import LabelRecord
from trainer.run.progress.run_statistics import STATISTICS
from trainer.run.weights.run_state import ModelWeights
from trainer.run.weights.server_shards import ServerShards
from trainer.scheduling.orders import StartEpoch
from transforms.arrays import Array
from transforms.derived_documents import document_of

#: Memory for rows that the next attempt changes while the part is written.
_MOST_ASIDE_BYTES = 256 << 20


@dataclass(frozen=True)
class Snapshot:
    """A host's state at one quiet moment. It must be written or discarded.

    Attributes:
        part: what the commit says of it.
        taken: its arrays; those of tables are read while training may go on.
        end: ends the reading of the tables.
        shards: lets servers write the rows of the tables themselves, in place of ``taken``; None: no server has any, or another host asks them.
        statistics: the file of the statistics that were sampled; None without any.
        history: the metric history of the run, of the host that keeps it.
    """

    part: HostPart
    taken: tuple[TakenArrays, ...]
    end: Callable[[], None]
    statistics: bytes | None = None
    shards: ServerShards | None = None
    history: RunHistory | None = None

    @property
    def attempt(self) -> int:
        """The attempt at whose end it was taken."""
        return self.part.attempt

    def write(self, run_dir: str) -> str:
        """Write the part durably and return its name. Raises what :func:`write_part` raises, and :class:`NonFiniteLoss`."""
        try:
            others = {} if self.statistics is None else {STATISTICS: self.statistics}
            if self.history is not None:
                others[HISTORY] = history_bytes(self.history)
            written = (
                NO_SHARDS if self.shards is None else self.shards.write(run_dir, self.part.attempt, self.part.step)
            )
            part = replace(self.part, shards=tuple(map(str, written.names)), bases=tuple(map(str, written.bases)))
            taken = tuple(replace(one, parted=()) for one in self.taken) if written else self.taken
            return write_part(run_dir, part, taken, others)
        finally:
            self.end()


def take_snapshot(
    order: StartEpoch,
    rank: int,
    stop_unit: int,
    state: TrainedState,
    weights: ModelWeights,
    labels: LabelRecord | None,
    statistics: bytes | None = None,
    partition: PartitionPlan | None = None,
    on_refusal: Callable[[str], None] = lambda reason: None,
) -> Snapshot:
    """The state at the end of an attempt. Raises :class:`NonFiniteLoss` for dense weights that are not finite.

    ``labels``: the labels of the plan, as its commits record them; None if they do not. ``statistics``: the file of the sample.
    ``partition``: the plan by which hosts hold tables. ``on_refusal``: see :meth:`ModelWeights.server_shards`.
    """
    moment = Moment(order.attempt, state.progress.step)
    tables = weights.begin_tables(_MOST_ASIDE_BYTES)  # first: it gathers what other hosts have of the dense part
    arrays: dict[str, Array] = {}
    if rank == 0:
        arrays.update(weights.dense_arrays())
        arrays.update({f"{PREDICTIONS}/{name}": array for name, array in state.collector.arrays().items()})
    wrong = [name for name, array in arrays.items() if array.dtype.kind == "f" and not np.isfinite(array).all()]
    if wrong:
        weights.end_tables()
        raise NonFiniteLoss("training diverged: the last step of an epoch left NaN or infinite weights", where=wrong[0],
                            next_step="lower the learning rates and train in a fresh run directory; the last checkpoint is intact")  # fmt: skip
    counts = None if state.ledger is None else state.ledger.counts()
    if counts is not None:
        arrays[LEDGER] = counts.uneven
    recorded = labels if rank == 0 else None
    if recorded is not None:
        arrays[LABELS] = recorded.packed
    part = HostPart(
        attempt=order.attempt,
        epoch=order.epoch,
        rank=rank,
        hosts=len(order.hosts),
        next_unit=stop_unit,
        step=state.progress.step,
        carried=state.carried,
        epoch_steps=state.epoch_steps,
        epoch_events=state.epoch_events,
        ledger=None if counts is None else counts.to_document(),
        labels=None if recorded is None else recorded.to_document(),
        epochs_done=state.progress.epochs_done,
        history=tuple(document_of(one) for one in state.progress.history) if rank == 0 else (),
        plan=order.data,
        partition="" if partition is None else plan_fingerprint(partition),
        host_steps=state.host_steps if rank == 0 else {},
        sum_order="" if rank or weights.sum_figures is None else weights.sum_figures.order,
    )
    shards = weights.server_shards(on_refusal)
    return Snapshot(part, (TakenArrays(moment, arrays, tables),), weights.end_tables, statistics, shards, state.history)
