"""One host's part of a model whose tables are on parameter servers: the host of rank 0 loads and saves them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import numpy as np

from trainer.checkpoints.parted_arrays import PartedArrays
from trainer.errors import ServerLost
from trainer.job.host.channels import Channels
from trainer.job.host.dense.sharded_updates import SHARDED_BYTES
from trainer.job.host.host_weights import HostWeights
from trainer.model.inputs import InputLayout
from trainer.model.task_heads import AnyHead
from trainer.options.config import TrainConfig
from trainer.run.reading.batches import Batch
from trainer.run.weights.dense_step import LookedUp, TableGradients
from trainer.run.weights.one_engine import place_of
from trainer.run.weights.run_state import AttemptBeginning, ReadRun
from trainer.run.weights.saved_tables import parted_sections, state_arrays, table_arrays, under
from trainer.run.weights.served_weights import ServedTables
from trainer.run.weights.server_shards import ServerShards
from trainer.servers.moves.engine_move import MoveFigures, MoveStage
from trainer.servers.moves.job_moves import JobMoves, copy_tables
from trainer.servers.run_servers import RunServers
from trainer.tables.engine import TableState, in_memory
from trainer.tables.hot_figures import HotFigures
from trainer.tables.routes.exchange import Exchange
from trainer.tables.tpu.slices import TpuSlice
from transforms.arrays import Array

_NOTHING = np.zeros(0, np.int64)


class ServedHostWeights(HostWeights):
    """See :class:`HostWeights`. Call :meth:`begin_attempt` before each attempt, on all hosts.

    Arrays of tables are those of rank 0; other hosts save tables without rows, which a commit's parts may have. ``slice_``, ``dense_values``: see :class:`HostWeights`.
    """

    def __init__(
        self,
        layout: InputLayout,
        config: TrainConfig,
        head: AnyHead,
        channels: Channels,
        moves: JobMoves,
        slice_: TpuSlice | None = None,
        *,
        dense_values: str = "float32",
        sharded_bytes: int = SHARDED_BYTES,
    ) -> None:
        super().__init__(
            layout,
            config,
            head,
            channels,
            slice_=slice_,
            dense_values=dense_values,
            sharded_bytes=sharded_bytes,
        )
        self._config, self._exchange, self._moves = config, channels.tables, moves
        self._tables: ServedTables | None = None
        self._connected: RunServers | None = None
        self._is_saving = False

    def begin_attempt(self, beginning: AttemptBeginning) -> None:
        """Connect to the servers for an attempt: requests of earlier ones are refused from now on. Tables may be moved to others first.

        Raises :class:`ServerLost` for an attempt that continues on a server without the rows that it had. Tables are loaded on the servers that
        are not away, and are not moved meanwhile.
        """
        engine = None if self._tables is None or beginning.unused else self._tables.engine
        target = self._moves.agree(self._exchange, engine, beginning.check)
        servers = self._moves.servers.without(beginning.unused)
        if servers != self._connected:
            beginning.finish_writing()
            self._forget()
        if beginning.continues and self._tables is None:
            raise ServerLost("a host must continue with the same parameter servers", value=", ".join(map(str, servers.addresses)),
                             next_step="run training again: it goes on from its last checkpoint")  # fmt: skip
        self._connect(servers, beginning)
        if target is None:
            return
        try:
            beginning.finish_writing()
            figures = self._move(target, beginning)
        except BaseException as error:
            self._moves.failed(error, target)
            self._forget()
            raise
        self._moves.done(target, figures)

    def _connect(self, servers: RunServers, beginning: AttemptBeginning) -> None:
        rank, hosts, check = self._exchange.rank, self._exchange.hosts, beginning.check
        connects = servers.connect(beginning.attempt, rank, hosts, check, beginning.check_state)
        workers = servers.connect_workers(beginning.attempt, self._config.batches_held, rank, hosts, check)
        if self._tables is None:
            make_engine = partial(servers.engine_over, connects, workers=workers)
            self._tables = ServedTables(self.layout, self._config, self.head, make_engine)
        else:
            self._tables.engine.connect(connects, workers, keeps_rows=beginning.continues)
        self._connected = servers

    def _move(self, target: RunServers, beginning: AttemptBeginning) -> MoveFigures:
        """Go on with the tables on other servers, where rank 0 copies the rows unless they are loaded afterwards."""
        source, self._tables = self.tables.engine, None
        assert self._connected is not None
        sources = self._connected.sources(beginning.attempt)
        try:
            if beginning.continues:
                source.finish()  # before a worker has a newer session of this host
            self._connect(target, beginning)
            engine, figures = self.tables.engine, MoveFigures(MoveStage.DONE)
            meet(self._exchange)  # all hosts have opened the tables
            if beginning.continues and self._loads:
                figures = copy_tables(source.direct, engine.direct, sources, beginning.check)
            meet(self._exchange)
            if beginning.continues:
                engine.open()
        finally:
            source.close()
        return figures

    def _forget(self) -> None:
        """Make the engine again for the next attempt."""
        if self._tables is not None:
            self._tables.engine.close()
            self._tables = None

    @property
    def tables(self) -> ServedTables:
        """The tables; after :meth:`begin_attempt`."""
        assert self._tables is not None, "an attempt begins first"
        return self._tables

    @property
    def _loads(self) -> bool:
        return self._exchange.rank == 0

    @property
    def hot_figures(self) -> HotFigures | None:
        """See :attr:`Weights.hot_figures`."""
        return self.tables.engine.hot_figures

    def initial_arrays(self) -> dict[str, Array]:
        """See :meth:`Weights.initial_arrays`: tables without changed rows."""
        return self.dense_arrays()

    def begin_look_up(self, batch: Batch) -> Callable[[], LookedUp]:
        """See :meth:`Weights.begin_look_up`."""
        return self.tables.begin_look_up(batch)

    def look_up(self, batch: Batch) -> LookedUp:
        """See :meth:`Weights.look_up`."""
        return self.tables.look_up(batch)

    def _update_rows(self, batch: Batch, gradients: TableGradients) -> None:
        self.tables.update(batch, gradients)

    def arrays(self) -> dict[str, Array]:
        """See :meth:`Weights.arrays`."""
        self._gather_dense(to_all=True)
        states = self.tables.arrays() if self._loads else state_arrays(self._empty())
        return {**self.dense_arrays(), **states}

    def _empty(self) -> list[tuple[str, str, TableState]]:
        engine = self.tables.engine
        return [(*place_of(one.name), engine.direct.no_rows(t)) for t, one in enumerate(engine.tables)]

    def begin_tables(self, most_bytes: int) -> tuple[PartedArrays, ...]:
        """See :meth:`Weights.begin_tables`. The servers have made the updates of all hosts before any row is read."""
        self.tables.engine.finish()
        meet(self._exchange)
        self._gather_dense()
        if self._loads:
            self._is_saving = True
            return self.tables.begin(most_bytes)
        found = []
        for kind, name, state in self._empty():
            kinds = table_arrays(kind, name, 0, state.weights.shape[1], state.slots.shape[1])
            found.append(PartedArrays(kinds, iter([(state.rows, state.weights, state.slots)])))
            found += parted_sections(kind, name, in_memory(state.sections).by_rows)
        return tuple(found)

    def server_shards(self, on_refusal: Callable[[str], None]) -> ServerShards | None:
        """See :meth:`Weights.server_shards`: rank 0 asks the servers."""
        return self.tables.server_shards(on_refusal) if self._loads else None

    def end_tables(self) -> None:
        """See :meth:`Weights.end_tables`."""
        if self._is_saving:
            self._is_saving = False
            self.tables.end()

    def load(self, arrays: Mapping[str, Array]) -> None:
        """See :meth:`Weights.load`. ``arrays``: on the host of rank 0 with all rows of all tables; without any tables they are empty."""
        has_tables = any(not name.startswith("dense/") for name in arrays)
        self._load(arrays, partial(self.tables.load, arrays) if has_tables else self.tables.clear)

    def load_saved(self, run_dir: str | Path, saved: ReadRun, on_refusal: Callable[[str], None]) -> None:
        """See :meth:`ModelWeights.load_saved <trainer.run.weights.run_state.ModelWeights.load_saved>`: rank 0 lets the servers read."""
        if saved.unread:
            self._load(saved.arrays, partial(self.tables.load_saved, run_dir, saved, on_refusal))
        else:
            self.load(saved.arrays)

    def _load(self, arrays: Mapping[str, Array], load_tables: Callable[[], None]) -> None:
        self.dense.load_state(under(arrays, "dense/"))
        meet(self._exchange)  # all hosts have opened the tables
        if self._loads:
            load_tables()
        meet(self._exchange)
        self.tables.engine.open()


def meet(exchange: Exchange) -> None:
    """Wait for all hosts."""
    exchange.all_to_all([[_NOTHING]] * exchange.hosts)
